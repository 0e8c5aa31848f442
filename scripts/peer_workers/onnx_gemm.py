"""GEMM as ONNX graphs: float products and what follows them, integers, quantised weights. Each
problem gives the ways there are, by name; which one is fastest is onnx_peer.py's question.

Operators are those of the ONNX standard and com.microsoft, ONNX Runtime's own.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper

from peer_workers.formats import BLOCK, BLOCK_BYTES, block_parts
from peer_workers.peer import Arrays, Unsupported
from peer_workers.problem import Problem

OWN = "com.microsoft"
# accuracy_level of MatMulNBits: what a's elements become before they are multiplied.
ACCURACY_LEVELS = {"fp32": 1, "f16": 2, "bf16": 3, "int8-dynamic": 4}
# For 8-bit weights with a scale per column: MatMulNBits takes scales per block of 16 to 256.
LONGEST_BLOCK = 128


@dataclass
class Graph:
    """Nodes from the problem's tensors to its outputs, with constants of their own. Tensors in
    `replaced` are not handed to the model: a constant stands for them."""
    nodes: list[onnx.NodeProto]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    replaced: Sequence[str] = ()
    math: str = ""  # what it computes in, where that is not the math asked for


def node(operator: str, inputs: Sequence[str], output: str, **attributes) -> onnx.NodeProto:
    """A node of one output; operators of ONNX Runtime's own begin with their domain."""
    domain, _, name = operator.rpartition("/")
    return helper.make_node(name, list(inputs), [output], domain=domain, **attributes)


class Chain:
    """Nodes one behind the other: each takes the result of the one before."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.value = ""

    def then(self, operator: str, *inputs: str, **attributes) -> None:
        """Appends an operator; its first input is the value so far, where there is one."""
        before = [self.value] if self.value else []
        self.value = f"value{len(self.nodes)}"
        self.nodes.append(node(operator, [*before, *inputs], self.value, **attributes))

    def constant(self, name: str, value: float) -> str:
        """A number as an input."""
        self.constants[name] = np.float32(value)
        return name

    def graph(self) -> Graph:
        """The whole graph; its last value is c."""
        self.nodes[-1].output[0] = "c"
        return Graph(self.nodes, self.constants)


def product(p: Problem, chain: Chain) -> list[str]:
    """alpha·op(a)·op(b) + beta·c0, or + bias where that is what follows first; the functions that
    are left to apply. Gemm for a single matrix, MatMul, which knows batches, for several."""
    functions = p.functions
    if p.batch == 1:
        added = ["c0"] if p.beta != 0 else functions[:1] if functions[:1] == ["bias"] else []
        chain.then("Gemm", "a", "b", *added, alpha=p.alpha, transA=p.trans_a, transB=p.trans_b,
                   beta=p.beta if p.beta != 0 else 1.0)
        return functions[1:] if added == ["bias"] else functions
    chain.then(f"{OWN}/FusedMatMul", "a", "b", transA=p.trans_a, transB=p.trans_b, alpha=p.alpha)
    if p.beta != 0:
        chain.nodes.append(node("Mul", ["c0", chain.constant("beta", p.beta)], "scaled_c0"))
        chain.then("Add", "scaled_c0")
    return functions


def standard(p: Problem, chain: Chain, function: str) -> None:
    """A function of an epilogue as operators of the standard, which the optimiser may fuse."""
    if function in ("bias", "add"):
        chain.then("Add", "bias" if function == "bias" else "residual")
    elif function == "leaky_relu":
        chain.then("LeakyRelu", alpha=p.slope)
    elif function == "clamp":
        chain.then("Clip", chain.constant("low", p.low), chain.constant("high", p.high))
    elif function == "silu":
        value = chain.value
        chain.then("Sigmoid")
        chain.then("Mul", value)
    elif function.startswith("gelu"):
        chain.then("Gelu", approximate="tanh" if function == "gelu_tanh" else "none")
    else:
        chain.then("Relu")


def by_operators(p: Problem) -> Graph:
    """The product, then operator by operator."""
    chain = Chain()
    for function in product(p, chain):
        standard(p, chain, function)
    return chain.graph()


def by_fused_operators(p: Problem) -> Graph:
    """The same with the runtime's fused ones: BiasGelu, FastGelu with a bias, QuickGelu."""
    chain = Chain()
    chain.then(f"{OWN}/FusedMatMul", "a", "b", transA=p.trans_a, transB=p.trans_b, alpha=p.alpha)
    left = list(p.functions)
    while left:
        function = left.pop(0)
        gelu = {"gelu": "BiasGelu", "gelu_tanh": "FastGelu"}.get(left[0]) if left else None
        if function == "bias" and gelu is not None:
            left.pop(0)
            chain.then(f"{OWN}/{gelu}", "bias")
        elif function == "silu":
            chain.then(f"{OWN}/QuickGelu", alpha=1.0)
        else:
            standard(p, chain, function)
    return chain.graph()


def gated(p: Problem) -> Graph:
    """silu(a·gate)·(a·up) of one product."""
    nodes = [node(f"{OWN}/FusedMatMul", ["a", "b"], "both", transA=p.trans_a, transB=p.trans_b,
                  alpha=p.alpha),
             helper.make_node("Split", ["both"], ["gate", "up"], axis=-1, num_outputs=2),
             node(f"{OWN}/QuickGelu", ["gate"], "activated", alpha=1.0),
             node("Mul", ["activated", "up"], "c")]
    return Graph(nodes)


def converted(p: Problem) -> Graph:
    """Float16 operands to float32, and a float32 product of them."""
    graph = by_operators(p)
    for name in ("a", "b", "c0"):
        for one in graph.nodes:
            one.input[:] = [f"{name}_32" if name == given else given for given in one.input]
    casts = [node("Cast", [tensor.name], f"{tensor.name}_32", to=TensorProto.FLOAT)
             for tensor in p.tensors if tensor.name in ("a", "b", "c0")]
    return Graph(casts + graph.nodes, graph.constants)


def float_ways(p: Problem) -> dict[str, Graph]:
    """Ways for float operands."""
    types = {tensor.dtype for tensor in p.tensors}
    if types - {"float32"}:
        if p.functions:
            raise Unsupported(f"ONNX Runtime: {'+'.join(p.functions)} of float16 is not built here")
        whole = {"Gemm f16": by_operators(p)} if types == {"float16"} else {}
        return whole or {"Cast": converted(p)}
    if p.functions == ["gate"]:
        return {"FusedMatMul QuickGelu": gated(p)}
    ways = {"": by_operators(p)}
    if p.functions and p.beta == 0:
        ways["fused operators"] = by_fused_operators(p)
    return ways


def in_order(p: Problem, arrays: Arrays, graph: Graph) -> tuple[str, str]:
    """Names of op(a) and op(b) for operators that transpose nothing. A constant b is transposed
    here, another in the run."""
    names = ["a", "b"]
    for place, transposed in ((0, p.trans_a), (1, p.trans_b)):
        if not transposed:
            continue
        name, names[place] = names[place], f"{names[place]}_t"
        if name == "b" and p.prepack:
            graph.constants["b_t"] = np.ascontiguousarray(arrays["b"][0].T)
            graph.replaced = [*graph.replaced, "b"]
        else:
            perm = [1, 0] if p.batch == 1 else [0, 2, 1]
            graph.nodes.append(node("Transpose", [name], f"{name}_t", perm=perm))
    return names[0], names[1]


def integers(p: Problem, arrays: Arrays) -> dict[str, Graph]:
    """s32 = u8 or s8 times s8; of s8 also by 128 more, as u8 with a zero point."""
    plain, shifted = Graph([]), Graph([])
    a, b = in_order(p, arrays, plain)
    plain.nodes.append(node("MatMulInteger", [a, b], "c"))
    ways = {"MatMulInteger": plain}
    if p.tensors[0].dtype == "int8":
        a, b = in_order(p, arrays, shifted)
        shifted.constants["half"] = np.uint8(128)
        shifted.nodes += [node("Cast", [a], "a_bits", to=TensorProto.UINT8),
                          node("BitwiseXor", ["a_bits", "half"], "a_shifted"),
                          node("MatMulInteger", ["a_shifted", b, "half"], "c")]
        ways["MatMulInteger of a + 128"] = shifted
    return ways


def quantising(p: Problem, arrays: Arrays) -> Graph:
    """float32 times s8c: a becomes u8 with one scale and zero point in the run."""
    graph = Graph([], math="int8-tensor")
    a, b = in_order(p, arrays, graph)
    graph.nodes.append(node(f"{OWN}/DynamicQuantizeMatMul", [a, b, "b_scale"], "c"))
    return graph


def refusal_of_weights(p: Problem, kind: str) -> str | None:
    """Why MatMulNBits cannot have weights; nothing when it can."""
    if not p.prepack:
        return "MatMulNBits takes its weights repacked: prepack=1"
    if p.batch != 1 or p.trans_a or not p.trans_b or p.alpha != 1 or p.beta != 0 or p.functions:
        return "MatMulNBits is a·bᵀ of two matrices, without alpha, beta or what follows"
    if {p.tensors[0].dtype, p.output.dtype} != {"float32"}:
        return "MatMulNBits multiplies float32 here"
    if kind == "int8_per_channel" and p.k % BLOCK:
        return f"MatMulNBits takes k in blocks of {BLOCK}"
    return None


def weights(p: Problem, arrays: Arrays, kind: str, level: int) -> Graph:
    """Weight-only: the same integers and scales in MatMulNBits' layout, where element 2i is in the
    low half of byte i and 2i + 1 in the high one. q4_1's minimum becomes a zero point that need not
    be an integer."""
    b = arrays["b"][0]
    block, constants = BLOCK, {}
    if kind == "int8_per_channel":
        while block < LONGEST_BLOCK and p.k % (2 * block) == 0:
            block *= 2
        whole = b.view(np.uint8) ^ 0x80
        scale = np.repeat(arrays["b_scale"], p.k // block)
    else:
        whole, scale, low = block_parts(b, kind)
        if kind == "q4_1":
            if np.any((scale == 0) & (low != 0)):
                raise Unsupported("ONNX Runtime: a block without a scale has no zero point")
            zero = np.divide(-low, scale, out=np.zeros_like(low), where=scale != 0)
            constants["b_zero"] = zero.reshape(-1)
    bits = 4 if kind.startswith("q4") else 8
    packed = whole[:, 0::2] | whole[:, 1::2] << 4 if bits == 4 else whole
    constants |= {"b_packed": packed.reshape(p.n, p.k // block, block * bits // 8),
                  "b_scales": scale.reshape(-1)}
    inputs = ["a", "b_packed", "b_scales"] + (["b_zero"] if "b_zero" in constants else [])
    multiply = node(f"{OWN}/MatMulNBits", inputs, "c", K=p.k, N=p.n, bits=bits, block_size=block,
                    accuracy_level=level)
    # With such zero points it decodes weights whatever the level.
    math = "int8-dynamic" if level == 4 and kind != "q4_1" else "fp32"
    return Graph([multiply], constants, ["b", "b_scale"], math)


def weight_ways(p: Problem, arrays: Arrays, kind: str, level: int | None) -> dict[str, Graph]:
    """Ways for quantised weights at an accuracy level, or that of the math asked for."""
    level = level or ACCURACY_LEVELS.get(p.math, 4)
    if level == 4 and kind == "int8_per_channel":
        if {p.tensors[0].dtype, p.output.dtype} != {"float32"}:
            raise Unsupported("ONNX Runtime: DynamicQuantizeMatMul multiplies float32")
        return {"DynamicQuantizeMatMul": quantising(p, arrays)}
    if reason := refusal_of_weights(p, kind):
        raise Unsupported(f"ONNX Runtime: {reason}")
    if kind == "q4_1" and level == 4:
        raise Unsupported("ONNX Runtime: q4_1's zero points are no integers, which accuracy level "
                          "4 needs; it computes in fp32 then")
    return {f"MatMulNBits accuracy_level={level}": weights(p, arrays, kind, level)}


def ways(p: Problem, arrays: Arrays, level: int | None) -> dict[str, Graph]:
    """The graphs that compute a problem, by name. Raises Unsupported."""
    b = p.tensors[1].dtype
    if b in BLOCK_BYTES or b == "int8_per_channel":
        return weight_ways(p, arrays, b, level)
    if level is not None:
        raise Unsupported("of quantised weights only; peer onnxruntime has the others")
    if b == "int8":
        return integers(p, arrays)
    return float_ways(p)
