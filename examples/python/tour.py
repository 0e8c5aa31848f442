#!/usr/bin/env python3
"""A tour in cells, which Jupyter and editors run one by one: a layer, and how fast it is."""
# %% A layer of a transformer with rooflane's kernels; arrays are used in place.
import numpy as np
import rooflane

batch, heads, length, width = 1, 4, 32, 16
hidden = heads * width
rng = np.random.default_rng(7)


def matrix(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32) / np.sqrt(np.float32(shape[-1]))


x = matrix(length, hidden)
gamma = np.ones(hidden, np.float32)
w_qkv, w_out = matrix(3 * hidden, hidden), matrix(hidden, hidden)
w_gate_up, w_down = matrix(8 * hidden, hidden), matrix(hidden, 4 * hidden)


def layer(x: np.ndarray, **options) -> np.ndarray:
    """[length,hidden] -> [length,hidden]."""
    qkv = rooflane.gemm(rooflane.rms_norm(x, gamma, **options), w_qkv, trans_b=True, **options)
    # Views: q, k and v are read out of qkv, nothing is moved.
    q, k, v = (part.reshape(length, heads, width).transpose(1, 0, 2)[None]
               for part in np.split(qkv, 3, axis=1))
    o = rooflane.attention(rooflane.rope(q, **options), rooflane.rope(k, **options), v, causal=True,
                           **options)
    o = o[0].transpose(1, 0, 2).reshape(length, hidden)  # NumPy copies
    x = rooflane.gemm(o, w_out, trans_b=True, residual=x, **options)
    up = rooflane.gemm(rooflane.rms_norm(x, gamma, **options), w_gate_up, trans_b=True, gate=True,
                       **options)
    return rooflane.gemm(up, w_down, trans_b=True, residual=x, **options)


y = layer(x)
print("agrees with plain loops:", np.allclose(y, layer(x, variant="scalar"), atol=1e-4))

# %% What there is on this machine, and what there is not.
for variant in rooflane.variants("attention"):
    print(f"{variant.name:8} {variant.threads:7} {variant.absent or ''}")

# %% How fast its products are, and against which limit.
shape = f"gemm:m={length},n={3 * hidden},k={hidden},trans_b=1"
old = rooflane.bench(shape, variant=["hwy", "scalar"], threads=1, launches=1)
judged = rooflane.roofline(old)
print(judged[["variant", "status", "p50_ns", "gflops", "roof_pct", "bound", "over_scalar"]])

# %% The same later: what became faster or slower.
new = rooflane.bench(shape, variant=["hwy", "scalar"], threads=1, launches=1)
print(rooflane.compare(old, new)[["variant", "verdict", "ratio"]])
