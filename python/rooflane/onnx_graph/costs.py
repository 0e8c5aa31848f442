"""What nodes cost: the kernels by the formulas of their records, other operators by the plainest
count. Every operand counts once, four bytes an element, whatever the file stores."""
from __future__ import annotations

import math
from dataclasses import dataclass

from .graph import OWN, Graph, Node

# Operations an element of the output, an exp or a root counted as one. What is not listed moves
# data or makes indices, and has none.
PER_OUTPUT = dict.fromkeys(
    "Add Sub Mul Div Max Min Pow Neg Abs Exp Log Sqrt Reciprocal Erf Floor Ceil Round Sign Relu "
    "Tanh Sin Cos Tan PRelu LeakyRelu Clip Mod Where Softsign ThresholdedRelu".split(), 1) | {
    "Sigmoid": 4, "HardSigmoid": 3, "HardSwish": 4, "Elu": 3, "Selu": 4, "Celu": 3, "Softplus": 3,
    "Mish": 6, "Gelu": 5, "QuickGelu": 5, "BatchNormalization": 2, "QuantizeLinear": 3,
    "DequantizeLinear": 2, "DynamicQuantizeLinear": 5, "Resize": 8, "Upsample": 8}
PER_INPUT = dict.fromkeys(
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd GlobalAveragePool GlobalMaxPool ArgMax "
    "ArgMin CumSum TopK".split(), 1) | {
    "ReduceL1": 2, "ReduceL2": 2, "ReduceSumSquare": 2, "ReduceLogSumExp": 3, "LogSoftmax": 5,
    "Softmax": 5, "Hardmax": 2, "InstanceNormalization": 7, "GroupNormalization": 7,
    "LayerNormalization": 7, "RMSNormalization": 5, "LpNormalization": 3, "LRN": 5}
PARTS = ("Gather", "GatherElements", "GatherND", "Slice", "Split", OWN + "split")
ACTIVATIONS = {"relu": 1, "gelu": 5, "gelu_tanh": 9, "silu": 4, "tanh": 1}


@dataclass(frozen=True)
class Cost:
    flops: float = 0
    bytes: float = 0
    is_known: bool = True

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes,
                    self.is_known and other.is_known)


def moved(graph: Graph, node: Node) -> float:
    """Bytes of all operands once; of a gather or slice only the elements taken."""
    if node.op in PARTS:
        return 8.0 * sum(graph.values[name].elements for name in node.outputs if name)
    names = dict.fromkeys([*node.inputs, *node.outputs])
    return 4.0 * sum(graph.values[name].elements for name in names if name)


def cost(graph: Graph, node: Node) -> Cost:
    """The cost of any node; not known for a loop or where shapes are not known."""
    shapes = [graph.shape(name) for name in [*node.inputs, *node.outputs] if name]
    if any(shape is None for shape in shapes) or node.op in ("Loop", "Scan", "If"):
        return Cost(0, moved(graph, node), False)
    return Cost(_flops(graph, node), moved(graph, node))


def _flops(graph: Graph, node: Node) -> float:
    op = node.op.split(".")[-1]
    out = graph.values[node.result].elements
    first = graph.values[node.input(0)].elements if node.input(0) else 0
    if node.op.startswith(OWN):
        return _own_flops(graph, node, op, out)
    if op in ("MatMul", "Gemm", "MatMulInteger", "MatMulNBits", "FusedMatMul", "QLinearMatMul",
              "DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        return 2.0 * out * _inner(graph, node)
    if op in ("Conv", "ConvInteger", "QLinearConv", "FusedConv"):
        weight = graph.shape(node.input(3 if op == "QLinearConv" else 1)) or ()
        return 2.0 * out * math.prod(weight[1:])
    if op == "ConvTranspose":
        return 2.0 * first * math.prod((graph.shape(node.input(1)) or ())[1:])
    if op in ("LSTM", "GRU", "RNN"):
        return _recurrent(graph, node)
    if op in ("MaxPool", "AveragePool", "LpPool"):
        return float(out * math.prod(node.get("kernel_shape", [])))
    if op == "Einsum":
        return _einsum(graph, node)
    if op in PER_INPUT:
        return float(PER_INPUT[op] * first)
    if op in ("Sum", "Mean"):
        return float(out * (len(node.inputs) - 1))
    return float(PER_OUTPUT.get(op, 0) * out)


def _own_flops(graph: Graph, node: Node, op: str, out: int) -> float:
    if op == "gemm":
        return 2.0 * out * _inner(graph, node)
    if op == "attention":
        return attention_flops(graph, node)
    if op == "activation":
        return float(out * (ACTIVATIONS[node.get("kind")] + bool(node.input(1))))
    # rope: four products and two sums a pair; rmsnorm: square, sum, two products, the root's share.
    return float(out * {"layernorm": 7, "rmsnorm": 4, "rope": 3}.get(op, 0))


def attention_flops(graph: Graph, node: Node) -> float:
    """Flops of the visible pairs of queries and keys."""
    q, out = graph.shape(node.input(0)) or (), graph.shape(node.outputs[0]) or ()
    k = graph.shape(node.input(1)) or ()
    q_len, kv_len = q[-2], k[-1] if node.get("k_transposed") else k[-2]
    pairs = q_len * kv_len
    if node.get("causal"):
        seeing = min(q_len, kv_len)
        pairs = seeing * (2 * kv_len - seeing + 1) / 2
    return 2.0 * math.prod(q[:-2]) * pairs * (q[-1] + out[-1])


def _inner(graph: Graph, node: Node) -> int:
    """The dimension that a product sums over."""
    a = graph.shape(node.input(0)) or (1,)
    transposed = node.get("trans_a") or node.get("transA")
    return a[-2] if transposed and len(a) > 1 else a[-1]


def _recurrent(graph: Graph, node: Node) -> float:
    """Products of each step's input and state."""
    x, w, r = (graph.shape(node.input(i)) or () for i in range(3))
    if len(x) != 3 or len(w) != 3 or len(r) != 3:
        return 0.0
    return 2.0 * x[0] * x[1] * (math.prod(w) + math.prod(r))


def _einsum(graph: Graph, node: Node) -> float:
    """Two operations for each combination of indices."""
    terms = node.get("equation", "").replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, name in zip(terms, node.inputs):
        sizes |= dict(zip(term, graph.shape(name) or ()))
    return 2.0 * math.prod(sizes.values()) if len(terms) > 1 else 0.0
