#!/usr/bin/env python3
"""Every kernel from Python against NumPy in double: python_kernels_test.py BUILD_DIR.

Seeded shapes; rows with gaps between them, formats, results given and made.
"""
from __future__ import annotations

import sys
import unittest
from pathlib import Path

import package_environment
import skip

SEED = 20261126
TOLERANCE = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 8e-2}


def array(rng, shape, dtype="float32", gap=True):
    """Normal numbers; with a gap behind each row of the last axis."""
    wide = (*shape[:-1], shape[-1] + (3 if gap else 0)) if shape else shape
    return rng.standard_normal(wide).astype(dtype)[..., :shape[-1]]


class Kernels(unittest.TestCase):
    """Each kernel's function on a few random problems."""

    def setUp(self):
        self.rng = np.random.default_rng(SEED)

    def size(self, most=40):
        return int(self.rng.integers(1, most))

    def close(self, got, want, dtype="float32"):
        self.assertEqual(got.shape, want.shape)
        self.assertEqual(got.dtype.name, dtype)
        scale = np.maximum(1, np.abs(want))
        error = np.max(np.abs(got.astype("float64") - want) / scale, initial=0)
        self.assertLess(error, TOLERANCE[dtype], f"seed {SEED}")

    def products(self):
        for trans_a in (False, True):
            for trans_b in (False, True):
                batch, m, n, k = (self.size() for _ in range(4))
                a = array(self.rng, (batch, k, m) if trans_a else (batch, m, k))
                b = array(self.rng, (batch, n, k) if trans_b else (batch, k, n))
                of_a, of_b = (x.astype("float64").swapaxes(1, 2) if transposed else
                              x.astype("float64") for x, transposed in ((a, trans_a), (b, trans_b)))
                yield a, b, {"trans_a": trans_a, "trans_b": trans_b}, of_a @ of_b

    def test_gemm(self):
        for a, b, transposed, want in self.products():
            self.close(rooflane.gemm(a, b, **transposed), want)
            c0 = array(self.rng, want.shape)
            got = rooflane.gemm(a, b, c0, alpha=2, beta=0.5, **transposed)
            self.close(got, 2 * want + 0.5 * c0)
            self.close(rooflane.gemm(a, b, c0, **transposed), want + c0)
            self.close(rooflane.gemm(a[0], b[0], **transposed), want[0])
            out = np.full_like(c0, np.nan)
            self.assertIs(rooflane.gemm(a, b, out=out, **transposed), out)
            self.close(out, want)

    def test_gemm_with_an_epilogue(self):
        for a, b, transposed, want in self.products():
            bias, residual = array(self.rng, want.shape[2:]), array(self.rng, want.shape)
            got = rooflane.gemm(a, b, bias=bias, residual=residual, epilogue="gelu", **transposed)
            self.close(got, references.ACTIVATIONS["gelu"](want + bias) + residual)
            if want.shape[2] % 2 == 0:
                half = want.shape[2] // 2
                gate, up = want[..., :half], want[..., half:]
                self.close(rooflane.gemm(a, b, gate=True, **transposed),
                           references.ACTIVATIONS["silu"](gate) * up)

    def test_gemm_of_quantised_weights(self):
        sys.path.insert(0, str(package_environment.ROOT / "scripts"))
        from peer_workers.formats import block_parts, encode_blocks
        a, weights = array(self.rng, (5, 64)), self.rng.standard_normal((7, 64))
        for name in ("q8_0", "q4_0", "q4_1"):
            b = encode_blocks(weights, name).reshape(7, -1)
            integers, scale, least = block_parts(b, name)
            decoded = (integers.reshape(7, -1, 32) * scale[..., None].astype("float64")
                       + least[..., None]).reshape(7, 64)
            self.close(rooflane.gemm(a, b, trans_b=True, b_type=name), a @ decoded.T)
        small = self.rng.integers(-127, 127, (7, 64)).astype("int8")
        scale = array(self.rng, (7,), gap=False)
        self.close(rooflane.gemm(a, small, trans_b=True, b_scale=scale),
                   a.astype("float64") @ (small * scale[:, None].astype("float64")).T)

    def test_gemm_of_integers(self):
        a = self.rng.integers(-128, 128, (9, 33)).astype("int8")
        b = self.rng.integers(-128, 128, (33, 6)).astype("int8")
        got = rooflane.gemm(a, b, c_type="s32")
        self.assertTrue((got == a.astype("int32") @ b.astype("int32")).all())

    def test_rows(self):
        for dtype in ("float32", "float16", "bfloat16"):
            kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
            x = array(self.rng, (self.size(), self.size()), kind)
            gamma, beta = (array(self.rng, x.shape[1:], kind, gap=False) for _ in range(2))
            wide, wide_gamma, wide_beta = (t.astype("float64") for t in (x, gamma, beta))
            self.close(rooflane.softmax(x), references.softmax(wide), dtype)
            self.close(rooflane.layer_norm(x, gamma, beta, eps=1e-3),
                       references.layer_norm(wide, wide_gamma, wide_beta, 1e-3), dtype)
            self.close(rooflane.rms_norm(x, gamma, x), references.rms_norm(2 * wide, wide_gamma,
                                                                           1e-5), dtype)
            self.close(rooflane.add(x, beta), wide + wide_beta, dtype)
            self.close(rooflane.add(x, x), 2 * wide, dtype)
            for name, function in references.ACTIVATIONS.items():
                self.close(rooflane.activation(x, name), function(wide), dtype)
                self.close(rooflane.activation(x, name, x), function(wide) * wide, dtype)

    def test_rows_of_any_rank(self):
        for shape in ((7,), (2, 7), (2, 3, 7), (2, 1, 3, 7)):
            x = array(self.rng, shape, gap=False)
            self.close(rooflane.softmax(x), references.softmax(x.astype("float64")))
            mask = np.zeros_like(x)
            self.close(rooflane.softmax(x, mask, scale=3),
                       references.softmax(3 * x.astype("float64")))

    def test_attention(self):
        for causal in (False, True):
            q = array(self.rng, (2, 4, 9, 16))
            k, v = array(self.rng, (2, 2, 13, 16)), array(self.rng, (2, 2, 13, 8))
            wide = [t.astype("float64") for t in (q, k, v)]
            self.close(rooflane.attention(q, k, v, causal=causal),
                       references.attention(*wide, causal=causal))
            mask = array(self.rng, (9, 13))
            self.close(rooflane.attention(q, k, v, mask, causal=causal),
                       references.attention(*wide, causal, mask))
            self.close(rooflane.attention(q, k, v, causal=causal, window=5, softcap=2.0),
                       references.attention(*wide, causal, window=5, softcap=2.0))
            short = np.array([13, 6], "int32")
            got = rooflane.attention(q, k, v, lengths=short)
            self.close(got[1:], references.attention(wide[0][1:], wide[1][1:, :, :6],
                                                     wide[2][1:, :, :6]))

    def test_rope(self):
        x = array(self.rng, (2, 3, 11, 16))
        for style in ("half", "interleaved"):
            self.close(rooflane.rope(x, base=500, offset=7, style=style),
                       references.rope(x.astype("float64"), 500, 7, style))

    def test_indices(self):
        table, ids = array(self.rng, (20, 9)), self.rng.integers(0, 20, (3, 5)).astype("int32")
        self.close(rooflane.embed(table, ids), table[ids])
        x, segment = array(self.rng, (50, 6)), self.rng.integers(0, 8, 50).astype("int32")
        wide = x.astype("float64")
        self.close(rooflane.segment_sum(x, segment, 8), references.segment_sum(wide, segment, 8))
        self.close(rooflane.segment_softmax(x, segment, 8),
                   references.segment_softmax(wide, segment))
        segment.sort()
        self.close(rooflane.segment_sum(x, segment, 8, sorted=True),
                   references.segment_sum(wide, segment, 8))
        values, ids = rooflane.topk(x, 4)
        want = np.argsort(-x, axis=1, kind="stable")[:, :4]
        self.assertTrue((ids == want).all())
        self.assertTrue((values == np.take_along_axis(x, want, 1)).all())

    def test_im2patch(self):
        image = array(self.rng, (2, 3, 8, 12), gap=False)
        self.assertTrue((rooflane.im2patch(image, 4) == references.im2patch(image, 4)).all())

    def test_any_kernel_by_name(self):
        x = array(self.rng, (5, 7))
        gamma = array(self.rng, (7,), gap=False)
        for kernel in rooflane.kernels():
            with self.subTest(kernel.name), self.assertRaisesRegex(ValueError, kernel.name):
                rooflane.compute(kernel.name, {})  # says what is missing
        y, = rooflane.compute("rmsnorm", {"x": x, "gamma": gamma}, eps=1e-3)
        self.close(y, references.rms_norm(x.astype("float64"), gamma.astype("float64"), 1e-3))

    def test_every_variant_that_is_here_agrees(self):
        x = array(self.rng, (5, 70))
        for variant in rooflane.variants("softmax"):
            with self.subTest(variant.name):
                if variant.absent is None:
                    self.close(rooflane.softmax(x, variant=variant.name),
                               references.softmax(x.astype("float64")))
                else:
                    with self.assertRaises(rooflane.Unavailable):
                        rooflane.softmax(x, variant=variant.name)


if __name__ == "__main__":
    package_environment.enter(Path(sys.argv[1]))
    import ml_dtypes
    import numpy as np
    import rooflane

    import python_references as references
    skip.main([sys.argv[0], *sys.argv[2:]])
