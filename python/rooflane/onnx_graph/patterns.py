"""What several nodes compute together: norms, activations, rotary positions, products with what
surrounds them. Attention is attention.py's."""
from __future__ import annotations

import math
from collections.abc import Callable

from . import rewriting
from .attention import find_attention
from .graph import OWN, Graph, Node
from .matching import Any, Match, Number, OneOf, Op, Pattern, find, product

X = Any("x")
ONE = Number(1.0)
HALF = Number(0.5)


def _mean(x: Pattern) -> Op:
    return Op("ReduceMean", (x,), rewriting.last_axis_only)


def _square(x: Pattern) -> OneOf:
    return OneOf((Op("Pow", (x, Number(2.0))), Op("Mul", (x, x))))


def _over_root(x: Pattern, variance: Pattern) -> OneOf:
    """x / sqrt(variance + eps)."""
    root = Op("Sqrt", (Op("Add", (variance, Number(name="eps"))),))
    inverse = OneOf((Op("Reciprocal", (root,)), Op("Div", (ONE, root))))
    return OneOf((Op("Div", (x, root)), Op("Mul", (x, inverse))))


def _norms() -> list[tuple[str, Pattern]]:
    centred = Op("Sub", (X, _mean(X)))
    return [("layernorm", _over_root(centred, _mean(_square(centred)))),
            ("rmsnorm", _over_root(X, _mean(_square(X))))]


def _activations() -> list[tuple[str, Pattern]]:
    root = math.sqrt(2)
    erf = Op("Erf", (OneOf((Op("Div", (X, Number(root))), Op("Mul", (X, Number(1 / root))))),))
    cube = OneOf((Op("Pow", (X, Number(3.0))), *product(X, X, X).patterns[:1]))
    scale, cubic = Number(math.sqrt(2 / math.pi)), Number(0.044715)
    inner = OneOf((
        Op("Mul", (scale, Op("Add", (X, Op("Mul", (cubic, cube)))))),
        *product(X, scale, Op("Add", (ONE, Op("Mul", (cubic, _square(X)))))).patterns,
        *product(X, scale, Op("Add", (ONE, product(X, X, cubic)))).patterns))
    tanh = Op("Tanh", (inner,))
    return [("gelu", product(X, HALF, Op("Add", (erf, ONE)))),
            ("gelu_tanh", product(X, HALF, Op("Add", (tanh, ONE)))),
            ("silu", Op("Mul", (X, Op("Sigmoid", (X,)))))]


def _half(which: int) -> Callable[[Graph, Node], bool]:
    """Whether a Slice takes the first or the second half of the last axis."""
    def check(graph: Graph, node: Node) -> bool:
        shape = graph.shape(node.input(0))
        starts, ends = graph.integers(node, "starts", 1), graph.integers(node, "ends", 2)
        axes = graph.integers(node, "axes", 3)
        if not shape or not starts or not ends or len(starts) != 1 or \
                axes not in ([-1], [len(shape) - 1]):
            return False
        half = shape[-1] // 2
        begin, end = (half, shape[-1]) if which else (0, half)
        return starts[0] % shape[-1] == begin and (ends[0] == end or (which and ends[0] > end))
    return check


def _rotary() -> Pattern:
    """x·cos + (-x₂, x₁)·sin."""
    first, second = (Op("Slice", (X,), _half(which)) for which in (0, 1))
    rotated = Op("Concat", (Op("Neg", (second,)), first))
    return Op("Add", (Op("Mul", (X, Any("cos"))), Op("Mul", (rotated, Any("sin")))))


NORMS, ACTIVATIONS, ROTARY = _norms(), _activations(), _rotary()


def _bare(graph: Graph, node: Node) -> Node | None:
    """A norm without its factors, an activation, a rotation."""
    for name, pattern in NORMS:
        if match := find(graph, node, pattern):
            return Node(OWN + name, [match.values["x"]], node.outputs[:1],
                        {"epsilon": match.numbers["eps"]}, node.name)
    for kind, pattern in ACTIVATIONS:
        if match := find(graph, node, pattern):
            return Node(OWN + "activation", [match.values["x"]], node.outputs[:1], {"kind": kind},
                        node.name)
    if (match := find(graph, node, ROTARY)) and _fits_rotary(graph, match):
        return Node(OWN + "rope", [match.values["x"]], node.outputs[:1], {"style": "half"},
                    node.name)
    return None


def _fits_rotary(graph: Graph, match: Match) -> bool:
    """Positions alike for all heads."""
    shape = graph.shape(match.values["x"])
    angles = [graph.shape(match.values[name]) for name in ("cos", "sin")]
    return bool(shape) and len(shape) in (3, 4) and shape[-1] % 2 == 0 and \
        all(angle is not None and angle[-1] == shape[-1] and math.prod(angle[:-1]) in
            (shape[-2], shape[0] * shape[-2]) for angle in angles)


def _own_name(graph: Graph, node: Node) -> Node | None:
    """ONNX's own operators under the kernels' names."""
    rank = len(graph.shape(node.input(0)) or ()) if node.inputs else 0
    is_last = node.get("axis", -1) in (-1, rank - 1) and not any(node.outputs[1:])
    if node.op in ("Relu", "Tanh"):
        attributes = {"kind": node.op.lower()}
        return Node(OWN + "activation", node.inputs, node.outputs, attributes, node.name)
    if node.op == "Gelu":
        kind = "gelu_tanh" if node.get("approximate", "none") == "tanh" else "gelu"
        return Node(OWN + "activation", node.inputs, node.outputs, {"kind": kind}, node.name)
    if node.op in ("LayerNormalization", "RMSNormalization") and is_last:
        kernel = "layernorm" if node.op[0] == "L" else "rmsnorm"
        return Node(OWN + kernel, node.inputs, node.outputs[:1],
                    {"epsilon": node.get("epsilon", 1e-5)}, node.name)
    if node.op == "MatMul":
        return Node(OWN + "gemm", node.inputs, node.outputs, {}, node.name)
    if node.op == "Gemm":
        return _gemm(graph, node)
    return None


def _gemm(graph: Graph, node: Node) -> Node | None:
    n = (graph.shape(node.outputs[0]) or (0,))[-1]
    bias = node.input(2)
    if bias and not is_bias(graph, bias, n):
        return None
    return Node(OWN + "gemm", [*node.inputs[:2], bias], node.outputs,
                {"trans_a": node.get("transA", 0), "trans_b": node.get("transB", 0),
                 "alpha": node.get("alpha", 1.0), "beta": node.get("beta", 1.0)}, node.name)


def is_bias(graph: Graph, name: str, n: int) -> bool:
    return graph.values[name].is_weight and rewriting.is_vector(graph, name, n)


def _with_factors(graph: Graph, node: Node) -> Node | None:
    """norm·gamma, + beta; product·alpha, + bias; activation·gate."""
    if node.op not in ("Mul", "Add", "Div"):
        return None
    for index in (0, 1) if node.op != "Div" else (0,):
        inner = graph.producer(node.input(index))
        other = node.input(1 - index)
        if inner is None or graph.sole_reader(node.input(index)) is not node or \
                graph.shape(node.input(index)) != graph.shape(node.outputs[0]):
            continue
        if (changed := _joined(graph, node, inner, other)) is not None:
            changed.outputs, changed.name = node.outputs[:1], inner.name or node.name
            return changed
    return None


def _joined(graph: Graph, node: Node, inner: Node, other: str) -> Node | None:
    cols = (graph.shape(node.outputs[0]) or (0,))[-1]
    padded = [*inner.inputs, "", ""]
    is_column = rewriting.is_vector(graph, other, cols)
    attributes = dict(inner.attributes)
    if inner.op in (OWN + "layernorm", OWN + "rmsnorm") and is_column:
        if node.op == "Mul" and not padded[1]:
            return Node(inner.op, [padded[0], other], [], attributes)
        if node.op == "Add" and inner.op == OWN + "layernorm" and padded[1] and not padded[2]:
            return Node(inner.op, [*padded[:2], other], [], attributes)
    if inner.op == OWN + "gemm":
        if node.op == "Add" and not padded[2] and is_bias(graph, other, cols):
            return Node(inner.op, [*padded[:2], other], [], attributes)
        number = graph.scalar(other)
        if node.op in ("Mul", "Div") and not padded[2] and number:
            attributes["alpha"] = attributes.get("alpha", 1.0) * \
                (number if node.op == "Mul" else 1 / number)
            return Node(inner.op, padded[:2], [], attributes)
    if inner.op == OWN + "activation" and node.op == "Mul" and not padded[1] and \
            graph.shape(other) == graph.shape(node.outputs[0]) and \
            inner.get("kind") in ("silu", "gelu", "gelu_tanh", "relu"):
        return Node(inner.op, [padded[0], other], [], attributes)
    return None


def fuse(graph: Graph, takes_masks: bool) -> None:
    """Names what nodes compute together; the largest patterns first, so that none is cut up.
    `takes_masks`: whether the attention kernel does."""
    def attention(graph: Graph, node: Node) -> Node | None:
        return find_attention(graph, node, takes_masks)

    for change in (_bare, attention, _own_name, _with_factors, _with_factors):
        changes = [(node, [new]) for node in graph.nodes if (new := change(graph, node))]
        graph.replace(changes)
