"""Kernels that multiply matrices: gemm and attention."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .building import MOST_ROUNDS, Builder, Left, rounds
from .costs import Cost
from .graph import Node, Shape
from .rows import NEEDS_COPY, number
from .views import View

Kernels = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Operand:
    """A matrix, or several behind leading axes; `is_transposed`: the transposed is meant."""
    view: View
    is_transposed: bool = False

    @property
    def rows(self) -> int:
        return self.view.shape[-1 if self.is_transposed else -2]

    @property
    def cols(self) -> int:
        return self.view.shape[-2 if self.is_transposed else -1]

    def transposed(self) -> Operand:
        return Operand(self.view, not self.is_transposed)

    def oriented(self) -> Operand | None:
        """Stored so that its rows are contiguous."""
        if self.view.is_contiguous_last:
            return self
        swapped = Operand(self.view.transpose(), not self.is_transposed)
        return swapped if swapped.view.is_contiguous_last else None


@dataclass(frozen=True)
class _Product:
    """c = a·b for each of the leading axes: the first `loops` are looped over, the others are the
    batch."""
    a: Operand
    b: Operand
    loops: int

    def matrices(self, view: View) -> View | None:
        """With one axis for the batch, or none for a batch of one."""
        lead = self.a.view.shape[:-2]
        batch = math.prod(lead[self.loops:])
        return view.reshape((*lead[:self.loops], *([batch] if batch > 1 else []),
                             *view.shape[-2:]))

    def result(self, view: View) -> tuple[View, bool] | None:
        """c for the kernel, and whether that is the transposed product."""
        whole = view.reshape((*self.a.view.shape[:-2], self.a.rows, self.b.cols))
        if whole is None:
            return None
        swapped = not whole.is_contiguous_last
        whole = whole.transpose() if swapped else whole
        c = self.matrices(whole) if whole.is_contiguous_last else None
        return None if c is None else (c, swapped)


def map_gemm(builder: Builder, node: Node, kernels: Kernels) -> str:
    a, b = builder.view(node.input(0)), builder.view(node.input(1))
    bias = builder.view(node.input(2)) if node.input(2) else None
    if a is None or b is None or (node.input(2) and bias is None):
        return NEEDS_COPY
    a = a.reshape((1, *a.shape)) if len(a.shape) == 1 else a
    b = b.reshape((*b.shape, 1)) if len(b.shape) == 1 else b
    left = Operand(a, bool(node.get("trans_a")))
    right = Operand(b, bool(node.get("trans_b")))
    lead = _broadcast(a.shape[:-2], b.shape[:-2])
    if lead is None or left.cols != right.rows:
        return "its operands do not fit"
    parameters = {}
    if (alpha := node.get("alpha", 1.0)) != 1:
        parameters["alpha"] = number(alpha)
    # One matrix b for all: the rows of all matrices a are one matrix.
    flat_b = b.reshape(b.shape[-2:]) if not left.is_transposed else None
    flat_a = a.reshape((math.prod(a.shape[:-1]), a.shape[-1])) if flat_b is not None else None
    if flat_a is not None:
        left, right = Operand(flat_a), Operand(flat_b, right.is_transposed)
    else:
        left = Operand(a.expand((*lead, *a.shape[-2:])), left.is_transposed)
        right = Operand(b.expand((*lead, *b.shape[-2:])), right.is_transposed)
    return add_product(builder, node, parameters, left, right, bias, number(node.get("beta", 1.0)))


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    """Leading axes of two operands, as NumPy broadcasts them."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        return None
    return tuple(max(x, y) for x, y in zip(a, b))


def add_product(builder: Builder, node: Node, parameters: dict[str, str], a: Operand,
                 b: Operand, bias: View | None = None, beta: str = "1",
                 bias_is_for_rows: bool = False) -> str:
    """A step of gemm; transposed where the reader of c, or the bias, needs it so."""
    a, b = a.oriented(), b.oriented()
    count = rounds([a.view, b.view], 2) if a is not None and b is not None else None
    if count is None:
        return NEEDS_COPY
    product = _Product(a, b, count)
    if product.matrices(a.view) is None or product.matrices(b.view) is None:
        return NEEDS_COPY

    def accept(view: View) -> bool:
        found = product.result(view)
        return found is not None and (bias is None or found[1] == bias_is_for_rows)

    shape = (*a.view.shape[:count], a.rows, b.cols)
    found = product.result(builder.place(node.outputs[0], accept))
    if found is None:
        return NEEDS_COPY
    c, swapped = found
    if swapped:
        a, b = b.transposed(), a.transposed()
    if bias is not None and swapped != bias_is_for_rows:
        builder.left.append(Left("Add", "a summand is repeated along the last axis",
                                 Cost(c.elements, 8 * c.elements)))
        bias = None
    left, right = product.matrices(a.view), product.matrices(b.view)
    left, right, c = _one_matrix(left, right, c, a.is_transposed)
    reads = {"a": left, "b": right}
    parameters |= {name: "1" for name, operand in (("trans_a", a), ("trans_b", b))
                   if operand.is_transposed}
    _note_weight(a.view, not a.is_transposed)
    _note_weight(b.view, b.is_transposed)
    # One row reads each weight once: packed copies are made for more.
    if b.view.tensor.kind == "weight" and a.rows > 1:
        parameters["prepack"] = "1"
    if bias is not None:
        row = bias.reshape((b.cols,))
        wide = row.expand(c.shape) if row is not None else None
        if wide is None or not wide.is_contiguous_last:
            return NEEDS_COPY
        parameters["beta"], reads["c0"] = beta, wide
    builder.add_step(node, "gemm", parameters, reads, {"c": c}, shape[:count])
    return ""


def _one_matrix(a: View, b: View, c: View, a_is_transposed: bool) -> tuple[View, View, View]:
    """Without a batch where all of it reads the same b: the rows of all a are one matrix."""
    if len(b.shape) != 3 or b.strides[0] != 0 or a_is_transposed:
        return a, b, c
    rows = a.shape[0] * a.shape[1]
    flat_a, flat_c = a.reshape((rows, a.shape[2])), c.reshape((rows, c.shape[2]))
    return (a, b, c) if flat_a is None or flat_c is None else (flat_a, b.index(0, 0), flat_c)


def _note_weight(view: View, is_last: bool) -> None:
    """Notes for a weight how many products a sum has, where that is not its last axis."""
    tensor = view.tensor
    if tensor.kind != "weight" or len(tensor.shape) < 2:
        return
    terms = view.shape[-1 if is_last else -2]
    if terms != tensor.shape[-1]:
        tensor.options.setdefault("fan", str(terms))


def map_attention(builder: Builder, node: Node, kernels: Kernels) -> str:
    q, k, v = (builder.view(node.input(i)) for i in range(3))
    if q is None or k is None or v is None:
        return NEEDS_COPY
    k = k.transpose() if node.get("k_transposed") else k
    heads = [_four_axes(view) for view in (q, k, v)]
    if any(view is None or not view.is_contiguous_last for view in heads):
        return NEEDS_COPY
    q, k, v = heads
    if q.shape[1] % k.shape[1] or k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or \
            q.shape[3] != k.shape[3]:
        return "its operands do not fit"
    if v.shape[3] != q.shape[3] and "v_dim" not in kernels["attention"]:
        return "values of another width"
    parameters = {"causal": str(node.get("causal", 0))}
    scale = node.get("scale", 1.0)
    if abs(scale * math.sqrt(q.shape[3]) - 1) > 1e-3:
        parameters["scale"] = number(scale)
    reads = {"q": q, "k": k, "v": v}
    loops = 0
    if node.input(3):
        mask = _mask(builder, node.input(3), q.shape[2], k.shape[2])
        if mask is None:
            return NEEDS_COPY
        reads["mask"] = mask
        loops = len(mask.shape) - 2
    shape = (*q.shape[:3], v.shape[3])

    def result(view: View) -> View | None:
        four = view.reshape(shape)
        return four if four is not None and four.is_contiguous_last else None

    o = result(builder.place(node.outputs[0], lambda view: result(view) is not None))
    if loops:  # an axis that the loop takes away, and a batch of 1 for the kernel
        for name in "qkv":
            reads[name] = reads[name].reshape((shape[0], 1, *reads[name].shape[1:]))
        o = o.reshape((shape[0], 1, *shape[1:]))
    builder.add_step(node, "attention", parameters, reads, {"o": o}, shape[:loops])
    return ""


def _four_axes(view: View) -> View | None:
    """[batch,heads,len,head_dim]"""
    rank = len(view.shape)
    if rank <= 4:
        return view.reshape((*(1,) * (4 - rank), *view.shape))
    return view.reshape((math.prod(view.shape[:-3]), *view.shape[-3:]))


def _mask(builder: Builder, name: str, q_len: int, kv_len: int) -> View | None:
    """[q_len,kv_len], or one for each of the batch behind an axis that is looped over."""
    view = builder.view(name)
    if view is None:
        return None
    view = view.reshape((*(1,) * (4 - len(view.shape)), *view.shape))
    lead = view.shape[:1] if view.shape[0] > 1 else ()
    flat = view.reshape((*lead, *view.shape[2:]))
    wide = flat.expand((*lead, q_len, kv_len)) if flat is not None else None
    fits = wide is not None and wide.is_contiguous_last and math.prod(lead) <= MOST_ROUNDS
    return wide if fits else None
