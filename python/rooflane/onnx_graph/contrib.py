"""Operators of ONNX Runtime that the onnx package does not know: their shapes, and the plain nodes
that they stand for."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .graph import OWN, Graph, Node, Shape, Value

MS = "com.microsoft."
# ONNX Runtime's own graphs have some of them in ONNX's domain.
LIKE_FIRST = {MS + name for name in (
    "BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "RotaryEmbedding", "BiasAdd", "RemovePadding",
    "RestorePadding", "SimplifiedLayerNormalization")} | {
    "SimplifiedLayerNormalization", "FastGelu", "BiasGelu", "SkipLayerNormalization"}


def shapes(node: Node, values: Mapping[str, Value]) -> dict[str, Shape]:
    """The shapes of a node's outputs that follow from its inputs."""
    given = [values[name].shape if name else None for name in node.inputs]
    if not given or given[0] is None:
        return {}
    first = given[0]
    name = node.op.removeprefix(MS)
    outputs = node.outputs
    if node.op in LIKE_FIRST:
        found = {outputs[0]: first}
        if name.startswith("Skip") and len(outputs) > 3:
            found[outputs[3]] = first  # the sum, which the next layer adds to
        return found
    width = _last_axis(name, node, given)
    if width is not None and first:
        return {outputs[0]: (*first[:-1], width)}
    if name in ("FusedMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul") and \
            len(given) > 1 and given[1] is not None:
        shape = _product(node, first, given[1])
        return {outputs[0]: shape} if shape else {}
    return {}


def _last_axis(name: str, node: Node, given: list[Shape | None]) -> int | None:
    """The width of an operator's result for each row, where that is all that changes."""
    first = given[0] or ()
    second = given[1] if len(given) > 1 else None
    if name == "MatMulNBits":
        return node.get("N", 0) or None
    if name == "Attention" and len(first) == 3 and second is not None and len(second) == 2:
        widths = node.get("qkv_hidden_sizes", [])
        return widths[2] if widths and len(widths) == 3 else second[1] // 3
    if name == "MultiHeadAttention" and len(first) == 3:
        third = given[2] if len(given) > 2 else None
        if third is None:
            return None
        return third[2] if len(third) == 3 else third[1] * third[3]
    if name == "GroupQueryAttention" and len(first) == 3:
        if second is not None:
            return first[2]
        heads = node.get("num_heads", 0) + 2 * node.get("kv_num_heads", 0)
        return first[2] * node.get("num_heads", 0) // heads if heads else None
    return None


def _product(node: Node, a: Shape, b: Shape) -> Shape | None:
    if len(a) < 2 or len(b) < 2:
        return None
    m = a[-1] if node.get("transA", 0) else a[-2]
    n = b[-2] if node.get("transB", 0) else b[-1]
    batch = a[:-2] if len(a) >= len(b) else b[:-2]
    return (*batch, m, n)


def expand(graph: Graph) -> None:
    """Writes fused operators out, so that one way leads from either form to kernels."""
    changes = []
    for node in graph.nodes:
        writer = WRITERS.get(node.op.removeprefix(MS)) if node.op.startswith(MS) or \
            node.op in LIKE_FIRST else None
        if writer is not None and (nodes := writer(graph, node)) is not None:
            changes.append((node, nodes))
    graph.replace(changes)


def _sum(graph: Graph, node: Node, a: str, b: str, result: str = "") -> Node:
    result = result or graph.add_value(f"{node.outputs[0]}.sum", a)
    return Node("Add", [a, b], [result], name=f"{node.name}.add", opset=14)


def _skip_norm(graph: Graph, node: Node) -> list[Node] | None:
    """x + skip (+ bias), then a norm; the sum may be an output, too."""
    is_rms = "Simplified" in node.op
    bias = node.input(3 if is_rms else 4)
    kept = node.outputs[3] if len(node.outputs) > 3 else ""
    nodes = [_sum(graph, node, node.input(0), node.input(1), "" if bias else kept)]
    if bias:
        nodes.append(_sum(graph, node, nodes[-1].outputs[0], bias, kept))
    x = nodes[-1].outputs[0]
    epsilon = {"epsilon": node.get("epsilon", 1e-12)}
    if is_rms:
        nodes.append(Node(OWN + "rmsnorm", [x, node.input(2)], node.outputs[:1], epsilon,
                          node.name))
    else:
        nodes.append(Node("LayerNormalization", [x, node.input(2), node.input(3)],
                          node.outputs[:1], {"axis": -1, **epsilon}, node.name, 17))
    return nodes


def _rms_norm(graph: Graph, node: Node) -> list[Node] | None:
    if node.get("axis", -1) not in (-1, len(graph.shape(node.input(0)) or ()) - 1):
        return None
    return [Node(OWN + "rmsnorm", node.inputs[:2], node.outputs[:1],
                 {"epsilon": node.get("epsilon", 1e-5)}, node.name)]


def _gelu(graph: Graph, node: Node) -> list[Node] | None:
    kind = "gelu_tanh" if "Fast" in node.op or node.get("approximate", "") == "tanh" else "gelu"
    nodes = []
    x = node.input(0)
    if bias := node.input(1):
        nodes.append(_sum(graph, node, x, bias))
        x = nodes[0].outputs[0]
    return [*nodes, Node(OWN + "activation", [x], node.outputs[:1], {"kind": kind}, node.name)]


def _fused_matmul(graph: Graph, node: Node) -> list[Node] | None:
    if node.get("transBatchA", 0) or node.get("transBatchB", 0):
        return None
    return [Node(OWN + "gemm", node.inputs[:2], node.outputs[:1],
                 {"trans_a": node.get("transA", 0), "trans_b": node.get("transB", 0),
                  "alpha": node.get("alpha", 1.0)}, node.name)]


def _reshape(graph: Graph, x: str, shape: Shape, order: tuple[int, ...]) -> tuple[list[Node], str]:
    """x in other axes, then permuted: two nodes and the name of the result."""
    split = graph.add_value(f"{x}.split", x, shape)
    moved = graph.add_value(f"{x}.heads", x, tuple(shape[i] for i in order))
    return [Node(OWN + "view", [x], [split]),
            Node("Transpose", [split], [moved], {"perm": list(order)})], moved


def _heads(graph: Graph, x: str, heads: int) -> tuple[list[Node], str]:
    """[batch,len,width] as [batch,heads,len,head_dim]."""
    batch, length, width = graph.shape(x) or (0, 0, 0)
    return _reshape(graph, x, (batch, length, heads, width // heads), (0, 2, 1, 3))


def _attend(graph: Graph, node: Node, qkv: list[str], heads: int, kv_heads: int) -> list[Node]:
    """Attention over [batch,len,width] each, back to that form; rotated where the node says so,
    keys and values appended to those of the past."""
    is_grouped = node.op == MS + "GroupQueryAttention"
    nodes: list[Node] = []
    split = []
    for index, (x, count) in enumerate(zip(qkv, (heads, kv_heads, kv_heads))):
        more, moved = _heads(graph, x, count)
        if is_grouped and node.get("do_rotary", 0) and index < 2:
            more.append(_rotated(graph, node, moved))
            moved = more[-1].outputs[0]
        if index > 0 and len(node.outputs) > index and node.outputs[index]:
            more.append(_appended(graph, node, index, moved))
            moved = node.outputs[index]
        nodes += more
        split.append(moved)
    batch, _, length, head_dim = graph.shape(split[0]) or (0, 0, 0, 1)
    v_dim = (graph.shape(split[2]) or (0,))[-1]
    heard = graph.add_value(f"{node.outputs[0]}.heads", split[0], (batch, heads, length, v_dim))
    moved = graph.add_value(f"{node.outputs[0]}.rows", heard, (batch, length, heads, v_dim))
    attributes = {"scale": node.get("scale", 0.0) or 1 / math.sqrt(max(head_dim, 1)),
                  "causal": int(bool(node.get("unidirectional", 0) or is_grouped))}
    nodes.append(Node(OWN + "attention", [*split, ""], [heard], attributes, node.name))
    nodes.append(Node("Transpose", [heard], [moved], {"perm": [0, 2, 1, 3]}))
    nodes.append(Node(OWN + "view", [moved], node.outputs[:1]))
    return nodes


def _rotated(graph: Graph, node: Node, x: str) -> Node:
    """At the positions behind the past."""
    past = graph.shape(node.input(3)) if node.input(3) else None
    style = "interleaved" if node.get("rotary_interleaved", 0) else "half"
    result = graph.add_value(f"{x}.rotated", x)
    return Node(OWN + "rope", [x], [result], {"style": style, "offset": past[2] if past else 0},
                result)


def _appended(graph: Graph, node: Node, index: int, new: str) -> Node:
    """`present`: what was there, then what is new."""
    past = node.input(2 + index)
    result = graph.values[node.outputs[index]]
    shape = list(graph.shape(new) or ())
    shape[2] += (graph.shape(past) or (0, 0, 0, 0))[2] if past else 0
    result.shape = tuple(shape)
    return Node("Concat", [past, new] if past else [new], [result.name], {"axis": 2})


def _packed_attention(graph: Graph, node: Node) -> list[Node] | None:
    """Attention of the first versions: input, weights of q, k and v side by side, bias."""
    heads = node.get("num_heads", 0)
    x, w = graph.shape(node.input(0)), graph.shape(node.input(1))
    widths = node.get("qkv_hidden_sizes", []) or ([w[1] // 3] * 3 if w and len(w) == 2 else [])
    extra = any(node.input(i) for i in (4, 6)) or any(node.outputs[1:])
    # A mask index per sequence is a length, full ones here; other masks are rare in this form.
    if not x or len(x) != 3 or len(widths) != 3 or extra or heads < 1 or \
            any(width % heads for width in widths) or sum(widths) != w[1]:
        return None
    qkv = graph.add_value(f"{node.outputs[0]}.qkv", node.input(0), (x[0], x[1], sum(widths)))
    nodes = [Node("MatMul", node.inputs[:2], [qkv], name=f"{node.name}.qkv", opset=13)]
    if node.input(2):
        nodes.append(_sum(graph, node, qkv, node.input(2)))
        qkv = nodes[-1].outputs[0]
    parts = [graph.add_value(f"{node.outputs[0]}.{part}", qkv, (x[0], x[1], width))
             for part, width in zip("qkv", widths)]
    nodes.append(Node(OWN + "split", [qkv], parts, {"axis": 2, "sizes": list(widths)}))
    return nodes + _attend(graph, node, parts, heads, heads)


def _multi_head(graph: Graph, node: Node) -> list[Node] | None:
    """MultiHeadAttention and GroupQueryAttention over q, k and v of three axes each."""
    is_grouped = node.op == MS + "GroupQueryAttention"
    given = [graph.shape(node.input(i)) for i in range(3)]
    heads = node.get("num_heads", 0)
    kv_heads = node.get("kv_num_heads", heads) if is_grouped else heads
    # MultiHeadAttention's biases, added masks and past.
    extra = not is_grouped and (any(node.input(i) for i in (3, 5, 6, 7)) or any(node.outputs[1:]))
    past = [graph.shape(node.input(i)) for i in (3, 4) if is_grouped and node.input(i)]
    if extra or any(shape is None or len(shape) != 4 for shape in past) or \
            any(shape is None or len(shape) != 3 for shape in given) or heads < 1 or \
            kv_heads < 1 or node.get("softcap", 0.0) or node.get("local_window_size", -1) > 0 or \
            any(shape[2] % count for shape, count in zip(given, (heads, kv_heads, kv_heads))):
        return None
    return _attend(graph, node, node.inputs[:3], heads, kv_heads)


WRITERS: dict[str, Callable[[Graph, Node], list[Node] | None]] = {
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "FastGelu": _gelu, "BiasGelu": _gelu, "Gelu": _gelu,
    "FusedMatMul": _fused_matmul,
    "Attention": _packed_attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _multi_head,
}
