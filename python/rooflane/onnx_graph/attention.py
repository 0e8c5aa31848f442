"""Attention from its parts: a product, scaled and masked, softmax, and a product with values."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .graph import OWN, Graph, Node, Shape

# What is added to a score, or takes its place, so that its weight is 0: exporters write the least
# float16 or float32, minus infinity or -10000.
INVISIBLE = -1e4


@dataclass(frozen=True)
class _Mask:
    name: str
    visible: Callable[[np.ndarray], np.ndarray]  # from its numbers


@dataclass(frozen=True)
class _Scores:
    """The product of queries and keys, and what becomes of it before softmax."""
    product: Node
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()


def find_attention(graph: Graph, node: Node, takes_masks: bool) -> Node | None:
    """The attention with this node as its last product; nothing when it is none, when something
    between is needed elsewhere, or when the kernel does not take its mask (`takes_masks`: one for
    all heads). Without a mask where that hides nothing, and causal where a known mask says so. Its
    k is [...,head_dim,kv_len] with `k_transposed`."""
    shape = graph.shape(node.outputs[0])
    if node.op != "MatMul" or not shape or len(shape) < 3:
        return None
    softmax = _softmax(graph, node.input(0))
    scores = next(_scores(graph, softmax.input(0)), None) if softmax else None
    if scores is None:
        return None
    q, k, v = scores.product.inputs[0], scores.product.inputs[1], node.input(1)
    shapes = [graph.shape(name) for name in (q, k, v)]
    if any(s is None or len(s) != len(shape) for s in shapes):
        return None
    mask = _one_mask(graph, scores.masks, shapes[0][-2], shapes[1][-1])
    if mask is None or mask not in ("", "causal") and not (
            takes_masks and _is_for_all_heads(graph, mask, len(shape))):
        return None
    scale = scores.scale * _take_factor(graph, scores.product, 0) * \
        _take_factor(graph, scores.product, 1)
    q, k = scores.product.inputs[:2]
    rows = _untransposed(graph, k)
    return Node(OWN + "attention",
                [q, _ungrouped(graph, rows or k), _ungrouped(graph, v),
                 "" if mask == "causal" else mask], node.outputs,
                {"scale": scale, "causal": int(mask == "causal"), "k_transposed": int(not rows)},
                node.name)


def _sole(graph: Graph, name: str) -> Node | None:
    """The node that writes a value which only one other reads."""
    return graph.producer(name) if graph.sole_reader(name) else None


def _softmax(graph: Graph, name: str) -> Node | None:
    """The softmax with these weights; rows of NaN, from masks that hide all, may be zeroed."""
    node = graph.producer(name)
    readers = 1
    if node is not None and node.op == "Where" and graph.sole_reader(name):
        test = graph.producer(node.input(0))
        if test is None or test.op != "IsNaN" or test.input(0) != node.input(2):
            return None
        name, readers = node.input(2), 2
        node = graph.producer(name)
    if node is not None and node.op == "Reshape" and graph.sole_reader(name) and \
            _same_matrices(graph, node):
        name = node.input(0)
        node = graph.producer(name)
    if node is None or node.op != "Softmax" or len(graph.readers(name)) != readers or \
            name in graph.outputs:
        return None
    rank = len(graph.shape(name) or ())
    default = -1 if node.opset >= 13 else 1
    return node if node.get("axis", default) in (-1, rank - 1) else None


def _same_matrices(graph: Graph, node: Node) -> bool:
    """Whether a reshape leaves the last two axes."""
    before, after = graph.shape(node.input(0)), graph.shape(node.outputs[0])
    return bool(before and after) and len(before) >= 2 and before[-2:] == after[-2:]


def _scores(graph: Graph, name: str, depth: int = 0) -> Iterator[_Scores]:
    """What leads from a product of two matrices to these scores; the ways there may be."""
    node = _sole(graph, name)
    shape = graph.shape(name)
    if node is None or depth > 8:  # two masks, scales and reshapes among them
        return
    if node.op == "MatMul":
        if not any(graph.values[x].is_weight for x in node.inputs):
            yield _Scores(node)
    elif node.op == "Reshape" and _same_matrices(graph, node):
        yield from _scores(graph, node.input(0), depth + 1)
    elif node.op in ("Mul", "Div"):
        for x, factor in _factors(graph, node):
            for found in _scores(graph, x, depth + 1):
                yield replace(found, scale=found.scale * factor)
    elif node.op in ("Add", "Where"):
        for x, mask in _masked(graph, node):
            if graph.shape(x) == shape:
                for found in _scores(graph, x, depth + 1):
                    yield replace(found, masks=(*found.masks, mask))


def _factors(graph: Graph, node: Node) -> Iterator[tuple[str, float]]:
    """What a node multiplies by a known number, and that number."""
    for index in (0, 1) if node.op == "Mul" else (0,):
        number = graph.scalar(node.input(1 - index))
        if number:
            yield node.input(index), number if node.op == "Mul" else 1 / number


def _masked(graph: Graph, node: Node) -> Iterator[tuple[str, _Mask]]:
    if node.op == "Add":
        for index in (0, 1):
            yield node.input(index), _Mask(node.input(1 - index), lambda data: data > INVISIBLE)
        return
    flags, yes, no = node.inputs[:3]
    for x, other, wanted in ((yes, no, True), (no, yes, False)):
        data = graph.values[other].data
        if data is not None and data.size and float(np.max(data)) <= INVISIBLE:
            yield x, _Mask(flags, lambda data, wanted=wanted: data.astype(bool) == wanted)


def _one_mask(graph: Graph, masks: tuple[_Mask, ...], q_len: int, kv_len: int) -> str | None:
    """The mask that is left where those that hide nothing are dropped; "causal" where it is that;
    nothing where there are two."""
    left = ""
    for mask in masks:
        name = _unexpanded(graph, mask.name)
        data = graph.values[name].data
        visible = None
        if data is not None and data.size == np.prod(data.shape[-2:]):
            try:
                visible = np.broadcast_to(mask.visible(data.reshape(data.shape[-2:])),
                                          (q_len, kv_len))
            except ValueError:
                visible = None
        if visible is not None and visible.all():
            continue
        is_causal = visible is not None and \
            np.array_equal(visible, np.tri(q_len, kv_len, kv_len - q_len, dtype=bool))
        if left and not (is_causal and left == "causal"):
            return None
        left = "causal" if is_causal else name
    return left


def _unexpanded(graph: Graph, name: str) -> str:
    """A value before it was repeated."""
    node = graph.producer(name)
    while node is not None and node.op == "Expand":
        name = node.input(0)
        node = graph.producer(name)
    return name


def _is_for_all_heads(graph: Graph, mask: str, rank: int) -> bool:
    """For axes [batch,heads,q_len,kv_len], where there are four: the first may be any."""
    shape = graph.shape(mask)
    if shape is None or len(shape) > 4 or not shape:
        return False
    shape = (1,) * (4 - len(shape)) + shape
    return shape[1] == 1 and shape[3] > 1 and (rank == 4 or shape[0] == 1)


def _take_factor(graph: Graph, product: Node, index: int) -> float:
    """The known number that an operand was multiplied by, before or after it was laid out in heads;
    the multiplication is left out from then on."""
    reader, name = product, product.input(index)
    for _ in range(4):  # bias, reshape, transpose and the factor itself
        node = _sole(graph, name)
        if node is None:
            break
        if node.op in ("Mul", "Div"):
            for x, factor in _factors(graph, node):
                if graph.shape(x) == graph.shape(name):
                    reader.inputs = [x if old == name else old for old in reader.inputs]
                    return factor
        if node.op not in ("Reshape", "Transpose"):
            break
        reader, name = node, node.input(0)
    return 1.0


def _untransposed(graph: Graph, name: str) -> str | None:
    """What a transposition of the last two axes was made from."""
    node = graph.producer(name)
    if node is None or node.op != "Transpose":
        return None
    rank = len(graph.shape(name) or ())
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    return node.input(0) if node.get("perm", list(range(rank))[::-1]) == swapped else None


def _ungrouped(graph: Graph, name: str) -> str:
    """Heads before they were repeated for the queries that share them."""
    merged = graph.producer(name)
    repeated = graph.producer(merged.input(0)) if merged and merged.op == "Reshape" else None
    added = graph.producer(repeated.input(0)) if repeated and repeated.op == "Expand" else None
    if added is None or added.op not in ("Unsqueeze", "Reshape"):
        return name
    before = graph.shape(added.input(0))
    after: Shape | None = graph.shape(repeated.outputs[0])
    if not before or not after or len(before) != 4 or len(after) != 5 or \
            graph.shape(added.outputs[0]) != (*before[:2], 1, *before[2:]) or \
            after[:2] + after[3:] != before:
        return name
    return added.input(0)
