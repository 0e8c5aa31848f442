"""Kernels that work on rows: sums, activations, norms, softmax, rotation, rows of a table."""
from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .building import Builder, rounds
from .graph import OWN, Node
from .views import Tensor, View

Kernels = Mapping[str, frozenset[str]]

NEEDS_COPY = "needs a copy"


def number(value: float) -> str:
    """A parameter as the file gives it: an attribute is a float32, 1e-5 shall be written as
    that."""
    text = repr(float(np.format_float_scientific(np.float32(value))))
    return text.removesuffix(".0")


def _emit(builder: Builder, node: Node, kernel: str, parameters: dict[str, str],
          matrices: dict[str, View], vectors: Mapping[str, View] | None = None,
          is_pointwise: bool = False) -> str:
    """One step over the rows of matrices of one shape. The order of rows is all the same to it, and
    where it `is_pointwise` that of elements: operands that lie in their tensors alike are taken as
    they lie there."""
    vectors = vectors or {}
    views = list(matrices.values())
    first = views[0]
    is_contiguous = all(view.is_contiguous_last for view in [*views, *vectors.values()])
    count = rounds(views, 1) if is_contiguous else None
    keeps_rows = is_pointwise or (is_contiguous and first.shape[-1] == first.tensor.shape[-1])
    if count != 0 and keeps_rows and node.outputs[0] not in builder.graph.outputs and \
            all(view.covers() and view.same_elements(first) for view in views):
        result = Tensor(node.outputs[0], first.tensor.shape)
        builder.views[node.outputs[0]] = first.replayed(result)
        wholes = {name: View.whole(view.tensor) for name, view in matrices.items()}
        builder.add_step(node, kernel, parameters, {**wholes, **vectors},
                         {"y": View.whole(result)})
        return ""
    if count is None:
        return NEEDS_COPY
    y = builder.place(node.outputs[0], lambda view: view.is_contiguous_last and
                      view.shape == first.shape and rounds([*views, view], 1) == count)
    builder.add_step(node, kernel, parameters, {**matrices, **vectors}, {"y": y},
                     first.shape[:count])
    return ""


def _vector(builder: Builder, name: str, cols: int, offset: str) -> View | None:
    """A factor or a summand for each column; where there is none one that changes nothing."""
    if not name:
        return builder.constant("ones" if offset == "1" else "zeros", cols, offset)
    view = builder.view(name)
    if view is None or view.elements != cols:
        return None
    if view.tensor.kind == "weight" and view.parent is None and offset != "0":
        view.tensor.options.setdefault("offset", offset)
    return view.reshape((cols,))


def map_norm(builder: Builder, node: Node, kernels: Kernels) -> str:
    """layernorm and rmsnorm."""
    x = builder.view(node.input(0))
    if x is None:
        return NEEDS_COPY
    cols = x.shape[-1]
    gamma = _vector(builder, node.input(1), cols, "1")
    vectors = {"gamma": gamma}
    kernel = node.op.removeprefix(OWN)
    if kernel == "layernorm":
        vectors["beta"] = _vector(builder, node.input(2), cols, "0")
    if any(view is None for view in vectors.values()):
        return "its factors change from row to row"
    parameters = {"eps": number(node.get("epsilon", 1e-5))}
    return _emit(builder, node, kernel, parameters, {"x": x}, vectors)


def map_softmax(builder: Builder, node: Node, kernels: Kernels) -> str:
    x = builder.view(node.input(0))
    if x is None:
        return NEEDS_COPY
    rank = len(x.shape)
    axis = node.get("axis", -1 if node.opset >= 13 else 1) % max(rank, 1)
    # Old versions take all axes from this one on as one.
    if node.opset < 13 and math.prod(x.shape[axis + 1:]) > 1:
        flat = x.reshape((*x.shape[:axis], math.prod(x.shape[axis:])))
        if flat is None:
            return NEEDS_COPY
        y = builder.place(node.outputs[0], lambda view: False)
        builder.add_step(node, "softmax", {}, {"x": flat}, {"y": y.reshape(flat.shape)})
        return ""
    if math.prod(x.shape[axis + 1:]) > 1:
        return "not along the last axis"
    if axis != rank - 1:
        flat = x.reshape(x.shape[:axis + 1])
        y = builder.place(node.outputs[0], lambda view: False)
        if flat is None or not flat.is_contiguous_last or rounds([flat], 1) != 0:
            return NEEDS_COPY
        builder.add_step(node, "softmax", {}, {"x": flat}, {"y": y.reshape(flat.shape)})
        return ""
    return _emit(builder, node, "softmax", {}, {"x": x})


def map_pointwise(builder: Builder, node: Node, kernels: Kernels) -> str:
    """activation, with its gate."""
    x = builder.view(node.input(0))
    g = builder.view(node.input(1)) if node.input(1) else x
    if x is None or g is None:
        return NEEDS_COPY
    parameters = {"kind": node.get("kind")}
    matrices = {"x": x}
    if node.input(1):
        parameters["gate"], matrices["g"] = "1", g
    return _emit(builder, node, "activation", parameters, matrices, is_pointwise=True)


def map_add(builder: Builder, node: Node, kernels: Kernels) -> str:
    """Two of one shape, or one repeated along leading axes of the other."""
    shape = builder.graph.shape(node.outputs[0]) or (1,)
    given = [builder.view(name) for name in node.inputs]
    if len(given) != 2 or any(view is None for view in given):
        return NEEDS_COPY
    x, r = given if given[0].shape == shape else given[::-1]
    if x.shape != shape:
        return "both operands are repeated"
    if r.shape == shape:
        return _emit(builder, node, "add", {}, {"x": x, "r": r}, is_pointwise=True)
    if r.elements == shape[-1] and r.shape[-1] == shape[-1] and "broadcast" in kernels["add"]:
        row = r.reshape((shape[-1],))
        return _emit(builder, node, "add", {"broadcast": "1"}, {"x": x}, {"r": row}) if row else \
            NEEDS_COPY
    wide = r.expand(shape)
    if wide is None or not wide.is_contiguous_last:
        return "a summand is repeated along the last axis"
    return _emit(builder, node, "add", {}, {"x": x, "r": wide})


def map_rope(builder: Builder, node: Node, kernels: Kernels) -> str:
    x = builder.view(node.input(0))
    x = x.reshape((1, *x.shape)) if x is not None and len(x.shape) == 3 else x
    if x is None or len(x.shape) != 4 or not x.is_contiguous_last:
        return NEEDS_COPY
    shape = builder.graph.shape(node.outputs[0]) or ()
    y = builder.place(node.outputs[0], lambda view: view.is_contiguous_last)
    y = y if len(shape) == 4 else y.reshape(x.shape)
    parameters = {"style": node.get("style")}
    if offset := node.get("offset", 0):
        parameters["offset"] = str(offset)
    builder.add_step(node, "rope", parameters, {"x": x}, {"y": y})
    return ""


def map_embed(builder: Builder, node: Node, kernels: Kernels) -> str:
    """Rows of a weight by indices that are not known."""
    graph = builder.graph
    table = builder.view(node.input(0))
    ids = graph.values[node.input(1)]
    if table is None or table.tensor.kind != "weight" or len(table.shape) != 2 or \
            node.get("axis", 0) != 0 or not ids.elements:
        return "no rows of a weight"
    view = builder.view(ids.name)
    flat = view.reshape((ids.elements,)) if view is not None else None
    if flat is None or not table.is_contiguous_last or not flat.is_contiguous_last:
        return NEEDS_COPY
    if flat.tensor.kind in ("buffer", "state"):
        return "indices from another step"
    # An index that serves two tables must be one of both.
    below = min(table.shape[0], int(flat.tensor.options.get("below", table.shape[0])))
    flat.tensor.kind = "input"
    flat.tensor.options["below"] = str(below)
    if table.parent is None:
        table.tensor.options.setdefault("scale", "0.2")
    cols = table.shape[1]
    y = builder.place(node.outputs[0], lambda v: v.reshape((ids.elements, cols)) is not None)
    builder.add_step(node, "embed", {}, {"table": table, "ids": flat},
                     {"y": y.reshape((ids.elements, cols))})
    return ""


def map_topk(builder: Builder, node: Node, kernels: Kernels) -> str:
    """TopK and ArgMax along the last axis."""
    x = builder.view(node.input(0))
    is_argmax = node.op == "ArgMax"
    k = 1 if is_argmax else builder.graph.scalar(node.input(1))
    default = 0 if is_argmax else -1
    if x is None or k is None or node.get("axis", default) not in (-1, len(x.shape) - 1) or \
            node.get("largest", 1) != 1 or node.get("select_last_index", 0):
        return "not the largest of the last axis"
    if not x.is_contiguous_last or rounds([x], 1) != 0:
        return NEEDS_COPY
    shape = (*x.shape[:-1], int(k))
    names = ["", node.result] if is_argmax else [*node.outputs, ""][:2]
    writes = {}
    for operand, name in zip(("values", "ids"), names):
        view = builder.new(name or f"{node.result}.{operand}", shape)
        if operand == "ids":
            view.tensor.options["type"] = "s32"
        if name:
            builder.views[name] = view.reshape(builder.graph.shape(name) or (1,))
        writes[operand] = view
    builder.add_step(node, "topk", {"k": str(int(k))}, {"x": x}, writes)
    return ""
