"""Nodes that compute nothing where strides do: each gives a view, or false where that needs
a copy."""
from __future__ import annotations

from .building import VIEWS, Builder, Left
from .costs import Cost
from .graph import OWN, Node
from .views import View


def _set(builder: Builder, name: str, view: View | None) -> bool:
    if view is None:
        return False
    builder.views[name] = view
    return True


def _same_elements(builder: Builder, node: Node) -> bool:
    x = builder.view(node.input(0))
    shape = builder.graph.shape(node.outputs[0])
    return x is not None and shape is not None and \
        _set(builder, node.outputs[0], x.reshape(shape or (1,)))


def _transpose(builder: Builder, node: Node) -> bool:
    x = builder.view(node.input(0))
    return x is not None and _set(builder, node.outputs[0], x.permute(tuple(builder.order(node))))


def _expand(builder: Builder, node: Node) -> bool:
    x = builder.view(node.input(0))
    shape = builder.graph.shape(node.outputs[0])
    return x is not None and shape is not None and _set(builder, node.outputs[0], x.expand(shape))


def _slice(builder: Builder, node: Node) -> bool:
    """Steps of 1 only."""
    graph = builder.graph
    x = builder.view(node.input(0))
    starts, ends = graph.integers(node, "starts", 1), graph.integers(node, "ends", 2)
    if x is None or not starts or not ends or len(starts) != len(ends):
        return False
    steps = graph.integers(node, "steps", 4) or [1] * len(starts)
    axes = graph.integers(node, "axes", 3) or list(range(len(starts)))
    rank = len(x.shape)
    if set(steps) != {1} or len(axes) != len(starts) or len(steps) != len(starts) or \
            any(not -rank <= axis < rank for axis in axes):
        return False
    for axis, start, end in zip(axes, starts, ends):
        begin, stop, _ = slice(start, end).indices(x.shape[axis])
        if (begin, stop) != (0, x.shape[axis % rank]):
            x = x.slice(axis % rank, begin, max(begin, stop))
    return x.shape == (graph.shape(node.outputs[0]) or (1,)) and _set(builder, node.outputs[0], x)


def _split(builder: Builder, node: Node) -> bool:
    x = builder.view(node.input(0))
    if x is None:
        return False
    axis = node.get("axis", 0) % len(x.shape)
    begin = 0
    for name in node.outputs:
        shape = builder.graph.shape(name) if name else None
        if shape is None:
            return False
        builder.views[name] = x.slice(axis, begin, begin + shape[axis])
        begin += shape[axis]
    return True


def _gather(builder: Builder, node: Node) -> bool:
    """One known index, or some that follow one another."""
    x, data = builder.view(node.input(0)), builder.graph.values[node.input(1)].data
    if x is None or data is None or data.size == 0 or data.ndim > 1:
        return False
    axis = node.get("axis", 0) % len(x.shape)
    indices = [int(i) + (x.shape[axis] if i < 0 else 0) for i in data.reshape(-1)]
    first = indices[0]
    if indices != list(range(first, first + len(indices))) or first < 0 or \
            indices[-1] >= x.shape[axis]:
        return False
    if data.ndim == 0:
        return _set(builder, node.outputs[0], x.index(axis, first))
    return _set(builder, node.outputs[0], x.slice(axis, first, first + len(indices)))


def _concat(builder: Builder, node: Node) -> bool:
    """Where steps wrote its parts into the result: parts of the model's inputs are there already,
    as those of a cache are."""
    whole = builder.joined(node)
    if whole is None:
        return False
    builder.views[node.outputs[0]] = whole
    values = builder.graph.values
    copied = [name for name in node.inputs if name and name not in builder.placed[node] and
              not values[name].is_input and values[name].elements]
    if copied:
        moved = Cost(0, 8.0 * sum(values[name].elements for name in copied))
        builder.left.append(Left(node.op, "moves data", moved))
    return True


VIEW_NODES = dict.fromkeys(VIEWS, _same_elements) | {
    "Transpose": _transpose, "Expand": _expand, "Slice": _slice, "Split": _split,
    OWN + "split": _split, "Gather": _gather, "Concat": _concat}
