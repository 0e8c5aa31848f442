"""Convolutions that are a product: of one point, or of patches that neither overlap nor pad."""
from __future__ import annotations

import math
from collections.abc import Mapping

from .building import Builder
from .graph import Node
from .products import Operand, add_product
from .rows import NEEDS_COPY
from .views import View


def map_convolution(builder: Builder, node: Node, kernels: Mapping[str, frozenset[str]]) -> str:
    """Channels and points as columns, times the weight; patches become columns first."""
    x, w = builder.view(node.input(0)), builder.view(node.input(1))
    bias = builder.view(node.input(2)) if node.input(2) else None
    if x is None or w is None or len(w.shape) < 3 or (node.input(2) and bias is None):
        return NEEDS_COPY
    spatial = w.shape[2:]
    strides = node.get("strides", []) or [1] * len(spatial)
    if node.get("group", 1) != 1 or any(node.get("pads", [])) or \
            list(strides) != list(spatial) or any(size != 1 for size in node.get("dilations", [])) \
            or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return "kernels that overlap, pad or have groups"
    matrix = w.reshape((w.shape[0], math.prod(w.shape[1:])))
    if math.prod(spatial) == 1:
        columns = x.reshape((x.shape[0], x.shape[1], math.prod(x.shape[2:])))
    else:
        if len(spatial) != 2 or spatial[0] != spatial[1]:
            return "patches that are no squares"
        if "im2patch" not in kernels:
            return "no kernel im2patch in this program"
        columns = _patches(builder, node, x, spatial[0])
    if matrix is None or columns is None:
        return NEEDS_COPY
    if columns.shape[0] == 1:
        columns = columns.reshape(columns.shape[1:])
    else:
        matrix = matrix.reshape((1, *matrix.shape)).expand((columns.shape[0], *matrix.shape))
    return add_product(builder, node, {}, Operand(matrix), Operand(columns), bias,
                       bias_is_for_rows=True)


def _patches(builder: Builder, node: Node, x: View, patch: int) -> View | None:
    """A step that gives a column for each patch. What is left over at the edges is left out."""
    height, width = (size // patch for size in x.shape[2:])
    for axis, count in ((2, height), (3, width)):
        if x.shape[axis] != count * patch:
            x = x.slice(axis, 0, count * patch)
    if not x.is_contiguous_last:
        return None
    shape = (x.shape[0], height * width, x.shape[1] * patch * patch)
    patches = builder.new(f"{node.result}.patches", shape)
    builder.add_step(node, "im2patch", {"patch": str(patch)}, {"image": x}, {"patches": patches},
                     suffix="patches")
    return patches.transpose()
