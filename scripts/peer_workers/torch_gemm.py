"""GEMM by PyTorch beyond matrices of one type as they are: weights packed beforehand, integers,
quantised weights, results of another type. Each problem gives the ways there are, by name; which
is fastest, torch_peer.py asks.

The kernels are those that torchao's int8 and int4 weight-only layers and TorchInductor call on a
CPU.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from peer_workers.formats import block_parts
from peer_workers.peer import Unsupported
from peer_workers.problem import Problem
from peer_workers.torch_kernels import Tensors, epilogue_function

SHORT = ("bfloat16", "float16")
GROUP = 32  # of int4 weights, as GGUF's blocks
INT4_COLUMNS = 16  # that _weight_int4pack_mm takes together
# Post-operations of oneDNN's linear: attribute and algorithm.
FUSED = {"relu": ("relu", ""), "leaky_relu": ("leaky_relu", ""), "gelu": ("gelu", "none"),
         "gelu_tanh": ("gelu", "tanh"), "silu": ("swish", ""), "clamp": ("hardtanh", "")}


@dataclass
class Way:
    """A call of `operands`; `writes`: into the caller's output."""
    call: Callable[..., torch.Tensor]
    operands: list[torch.Tensor]
    writes: bool = False
    math: str = ""  # what it computes in, where that is not the math asked for
    packed_bytes: int = 0


def plain(p: Problem) -> bool:
    """Whether it is a·b of two matrices."""
    return p.batch == 1 and p.alpha == 1 and p.beta == 0


def matrices(p: Problem, tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """op(a) [m,k] and op(b) [k,n], as views."""
    a, b = tensors["a"][0], tensors["b"][0]
    return a.t() if p.trans_a else a, b.t() if p.trans_b else b


def scalars(p: Problem, function: str) -> list[float]:
    """What a post-operation is told beside its name."""
    return {"leaky_relu": [p.slope], "clamp": [p.low, p.high]}.get(function, [])


def by_prepacked_linear(p: Problem, tensors: Tensors) -> dict[str, Way]:
    """oneDNN's linear with b reordered: bias, one function and a residual as its post-operations.
    In float32 also MKL's packed linear, with functions in passes of their own."""
    a, b = matrices(p, tensors)
    weights = b.t().contiguous()
    if a.dtype == torch.float16 and not p.functions:  # few CPUs have float16 products
        return decoded(p, a, weights.float())
    functions = [] if p.functions == ["gate"] else list(p.functions)
    bias = tensors["bias"] if functions[:1] == ["bias"] else None
    if bias is not None:
        functions.pop(0)
    ways = {}
    if a.dtype == torch.float32:
        packed = torch.ops.mkl._mkl_reorder_linear_weight(weights, p.m)
        ways["mkl_linear"] = Way(
            lambda x: after(p, torch.ops.mkl._mkl_linear(x, packed, weights, bias, p.m),
                            functions, tensors), [a], packed_bytes=weights.nbytes)
    packed_b = torch.ops.mkldnn._reorder_linear_weight(weights, p.m)
    fused, rest = ("none", ""), functions
    if functions and functions[0] in FUSED:
        fused, rest = FUSED[functions[0]], functions[1:]
    linear = torch.ops.mkldnn._linear_pointwise
    if functions == ["add"]:
        residual = tensors["residual"][0]
        ways["mkldnn linear"] = Way(
            lambda x: linear.binary(x, residual, packed_b, bias, "add"), [a],
            packed_bytes=weights.nbytes)
        return ways
    if rest and a.dtype != torch.float32:
        raise Unsupported(f"{'+'.join(rest)}: PyTorch would round c to {p.output.dtype} first")
    numbers = scalars(p, functions[0]) if functions else []
    ways["mkldnn linear"] = Way(
        lambda x: after(p, linear(x, packed_b, bias, fused[0], numbers, fused[1] or None), rest,
                        tensors), [a], packed_bytes=weights.nbytes)
    return ways


def after(p: Problem, c: torch.Tensor, functions: list[str], tensors: Tensors) -> torch.Tensor:
    """What of an epilogue is left to passes of its own; gate=1 is one."""
    if p.functions == ["gate"]:
        return torch.nn.functional.silu(c[:, :p.n]).mul_(c[:, p.n:])
    for name in functions:
        if name in ("bias", "add"):
            c = c + (tensors["bias"] if name == "bias" else tensors["residual"][0])
        else:
            c = epilogue_function(p, name)(c)
    return c


def dynamic(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Each row of a as int8 with a scale of its own, and exact sums: what torchao's
    Int8DynamicActivationInt8Weight does."""
    largest = a.abs().amax(1, keepdim=True)
    quotients = torch.round(a * (127 / largest)).to(torch.int8)
    return torch._int_mm(quotients, b).to(torch.float32) * (largest / 127) * scale


def of_channels(p: Problem, tensors: Tensors) -> dict[str, Way]:
    """8-bit weights with a scale per column."""
    a, b = matrices(p, tensors)
    scale = tensors["b_scale"]
    if p.math == "int8-dynamic":
        if a.dtype != torch.float32:
            raise Unsupported("PyTorch: quantises float32 rows here")
        return {"_int_mm of quantised rows": Way(dynamic, [a, b, scale])}
    if not p.trans_b or a.dtype != getattr(torch, p.output.dtype):
        raise Unsupported("PyTorch: _weight_int8pack_mm takes trans_b=1 and c of a's type")
    ways = {"_weight_int8pack_mm": Way(torch._weight_int8pack_mm, [a, b.t(), scale.to(a.dtype)],
                                       math=rounding_of(p))}
    if a.dtype == torch.float32:
        ways["float32 copies"] = Way(lambda x, y, s: torch.mm(x, y.float()).mul_(s), [a, b, scale])
    if p.prepack:
        ways |= decoded(p, a, b.t().float() * scale[:, None])
    return ways


def decoded(p: Problem, a: torch.Tensor, weights: torch.Tensor) -> dict[str, Way]:
    """Weights [n,k] that were made float32 beforehand, as transformers reads a GGUF file."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weights, a.shape[0])
    linear, type_of_c = torch.ops.mkldnn._linear_pointwise, getattr(torch, p.output.dtype)
    return {"decoded to float32": Way(
        lambda x: linear(x.float(), packed, None, "none", [], None).to(type_of_c), [a],
        packed_bytes=weights.nbytes)}


def rounding_of(p: Problem) -> str:
    """The math of operands that are rounded to the first tensor's type: weights with scales, or
    those of attention; nothing where that is float32."""
    return {"bfloat16": "bf16", "float16": "f16"}.get(p.tensors[0].dtype, "")


def of_blocks(p: Problem, tensors: Tensors, kind: str) -> dict[str, Way]:
    """Weights by blocks of 32, repacked: of 4 bits value = scale · (integer - 8) + zero. PyTorch
    has no product with such of 8."""
    if p.math == "int8-dynamic":
        raise Unsupported("PyTorch: quantises rows beside weights with a scale per column alone")
    if not p.prepack:
        raise Unsupported("PyTorch: weights by blocks are repacked beforehand: prepack=1")
    if p.tensors[0].dtype != p.output.dtype:
        raise Unsupported("PyTorch: _weight_int4pack_mm gives c of a's type")
    integers, scale, low = block_parts(tensors["b"][0].numpy(), kind)
    values = (integers.reshape(p.n, -1, GROUP) * scale[..., None].astype(np.float64)
              + low[..., None]).reshape(p.n, p.k).astype(np.float32)
    ways = decoded(p, tensors["a"][0], torch.from_numpy(values))
    if kind == "q8_0" or p.n % INT4_COLUMNS:
        return ways
    both = np.stack([scale.T, (low + 8 * scale).T], axis=2)  # [k/32,n,2]
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.from_numpy(integers.astype(np.int32)), 1)
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
    scales = torch.from_numpy(np.ascontiguousarray(both)).to(tensors["a"].dtype)
    ways["_weight_int4pack_mm"] = Way(lambda a: multiply(a, packed, GROUP, scales),
                                      [tensors["a"][0]], math=rounding_of(p),
                                      packed_bytes=packed.nbytes + scales.nbytes)
    return ways


def short_floats(p: Problem, tensors: Tensors) -> dict[str, Way]:
    """mm of 16-bit floats, which without a CPU's instructions for them is plain loops; or float32
    copies made in the run."""
    operands, out = list(matrices(p, tensors)), tensors["c"][0]
    return {"mm": Way(lambda x, y: torch.mm(x, y, out=out), operands, writes=True),
            "float32 copies": Way(lambda x, y: out.copy_(torch.mm(x.float(), y.float())), operands,
                                  writes=True)}


def special_ways(p: Problem, tensors: Tensors) -> dict[str, Way] | None:
    """The ways of a problem that is more than matrices of one type; nothing: it is that. Raises
    Unsupported."""
    a, b, c = p.tensors[0].dtype, p.tensors[1].dtype, p.output.dtype
    if not p.prepack and a == b == c:
        if p.functions and a in SHORT:
            raise Unsupported(f"PyTorch rounds c to {a} before {'+'.join(p.functions)}")
        return short_floats(p, tensors) if a in SHORT and plain(p) else None
    if not plain(p):
        raise Unsupported("PyTorch: with packed weights or several types a·b of two matrices alone")
    if b == "int8":
        return {"_int_mm": Way(lambda x, y: torch._int_mm(x, y, out=tensors["c"][0]),
                               list(matrices(p, tensors)), writes=True)}
    if b in ("q8_0", "q4_0", "q4_1", "int8_per_channel"):
        if p.functions or p.trans_a:
            raise Unsupported("PyTorch: quantised weights without trans_a, epilogue and gate")
        return of_channels(p, tensors) if b == "int8_per_channel" else of_blocks(p, tensors, b)
    if a == b == c:
        return by_prepacked_linear(p, tensors)
    if p.functions or c != "float32":
        raise Unsupported("PyTorch's operations take tensors of one type")
    if p.prepack:
        a_matrix, b_matrix = matrices(p, tensors)
        return decoded(p, a_matrix, b_matrix.t().float().contiguous())
    return {"float32 copies": Way(lambda x, y: torch.mm(x.float(), y.float(), out=tensors["c"][0]),
                                  list(matrices(p, tensors)), writes=True)}


class Frozen(torch.nn.Module):
    """The product with b, and a bias that follows, as constants that TorchInductor may lay out in
    its own way."""

    def __init__(self, p: Problem, tensors: Tensors):
        super().__init__()
        self.problem = p
        _, b = matrices(p, tensors)
        self.weight = torch.nn.Parameter(b.t().clone(), requires_grad=False)
        self.functions = [] if p.functions == ["gate"] else list(p.functions)
        self.bias = None
        if self.functions[:1] == ["bias"]:
            self.functions.pop(0)
            self.bias = torch.nn.Parameter(tensors["bias"].clone(), requires_grad=False)

    def forward(self, a: torch.Tensor, *residuals: torch.Tensor) -> torch.Tensor:
        c = torch.nn.functional.linear(a, self.weight, self.bias)
        return after(self.problem, c, self.functions,
                     {"residual": residuals[0][None] if residuals else None})


def frozen(p: Problem, tensors: Tensors) -> Way:
    """For torch.compile with freezing."""
    if p.functions.count("bias") > (p.functions[:1] == ["bias"]):
        raise Unsupported("a bias that does not follow the product is not frozen here")
    a, _ = matrices(p, tensors)
    residuals = [tensors["residual"][0]] if "add" in p.functions else []
    module = Frozen(p, tensors).eval()
    return Way(module, [a, *residuals], packed_bytes=module.weight.nbytes)


def quantised_linear(p: Problem, tensors: Tensors) -> Way:
    """quantized::linear_dynamic: a gets one scale and zero point. Raises Unsupported."""
    if p.tensors[1].dtype != "int8_per_channel":
        raise Unsupported("of b_type=s8c only; peer torch has the others")
    if not (p.prepack and p.trans_b and plain(p)) or p.trans_a or p.functions:
        raise Unsupported("quantized::linear_dynamic packs its weights: prepack=1, trans_b=1, a·bᵀ "
                          "of two matrices")
    if {p.tensors[0].dtype, p.output.dtype} != {"float32"}:
        raise Unsupported("quantized::linear_dynamic multiplies float32")
    scale = tensors["b_scale"].to(torch.float64)
    weights = torch._make_per_channel_quantized_tensor(
        tensors["b"][0], scale, torch.zeros(p.n, dtype=torch.int64), 0)
    packed = torch.ops.quantized.linear_prepack(weights, None)
    # reduce_range guards vpmaddubsw against overflow; engine x86 knows where that is needed.
    return Way(lambda a: torch.ops.quantized.linear_dynamic(a, packed, False),
               [tensors["a"][0]], math="int8-tensor", packed_bytes=tensors["b"].nbytes)
