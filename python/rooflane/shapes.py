"""Operands as numpy.matmul and PyTorch's functions take them, in the forms that kernels have.

Everything here is a view of the same memory but for ids, lengths and masks of bool, which are small
beside what they choose from: those are copied to the kernel's type.
"""
from __future__ import annotations

import sys
from typing import Any, NamedTuple

Array = Any
Shape = tuple[int, ...]


def _is_torch(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _strides(array: Array) -> Shape:
    """In elements."""
    if _is_torch(array):
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def viewable(array: Array) -> Array:
    """The same memory as an array that can be indexed, transposed and reshaped without a copy."""
    if _is_torch(array) or hasattr(array, "swapaxes") and hasattr(array, "strides"):
        return array
    import numpy
    return numpy.from_dlpack(array) if hasattr(array, "__dlpack__") else numpy.asarray(array)


def _expanded(array: Array, shape: Shape) -> Array:
    """Axes in front and axes of length 1 repeated, with strides of 0."""
    if tuple(array.shape) == shape:
        return array
    if _is_torch(array):
        return array.expand(shape)
    import numpy
    return numpy.broadcast_to(array, shape)


def _joined(array: Array, first: int, last: int) -> Array | None:
    """Axes [first,last) as one; None where their strides do not allow it without a copy."""
    strides = _strides(array)
    length, stride = 1, 0
    for axis in range(last - 1, first - 1, -1):
        if array.shape[axis] == 1:
            continue
        if length == 1:
            stride = strides[axis]
        elif strides[axis] != stride * length and 0 not in array.shape:
            return None
        length *= array.shape[axis]
    return array.reshape((*array.shape[:first], length, *array.shape[last:]))


def _leading(*shapes: Shape) -> Shape:
    """What leading axes are broadcast to. Raises ValueError."""
    rank = max(map(len, shapes))
    result = []
    for lengths in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes)):
        others = {length for length in lengths if length != 1}
        if len(others) > 1:
            told = " and ".join(map(str, shapes))
            raise ValueError(f"batch axes {told} cannot be broadcast together")
        result.append(others.pop() if others else 1)
    return tuple(result)


class Product(NamedTuple):
    """A product of matrices in the kernel's form."""
    arrays: dict[str, Array]
    flags: dict[str, bool]  # trans_a, trans_b
    out: Array | None
    lead: Shape | None  # c's axes before its columns, as the caller sees it; None: the kernel's own
    columns: bool       # c has an axis of columns
    slices: Shape       # leading axes that no strides express: a product for each element of them

    def seen(self, c: Array) -> Array:
        """The kernel's c with the axes that numpy.matmul gives it."""
        if self.lead is None:
            return c
        return c.reshape((*self.lead, *(c.shape[-1:] if self.columns else ())))


def _transposed_if_needed(array: Array, trans: bool) -> tuple[Array, bool]:
    """The transposed view and flag where only that has a last axis without gaps."""
    if array.ndim < 2 or array.shape[-1] == 1:
        return array, trans  # nothing lies apart
    strides = _strides(array)
    if strides[-1] == 1 or (strides[-2] != 1 and array.shape[-2] != 1):
        return array, trans
    return array.swapaxes(-1, -2), not trans


def in_blocks(b_type: str | None) -> bool:
    """Whether weights of this format are bytes of blocks, which are never read transposed."""
    return b_type is not None and b_type.startswith("q")


def matrices(arrays: dict[str, Array], flags: dict[str, bool], of_blocks: bool,
             ) -> tuple[dict[str, Array], dict[str, bool]]:
    """a and b as views that a kernel reads in place, with the flags trans_a and trans_b that say
    so, given those of the arrays. of_blocks: as in_blocks says."""
    views, taken = dict(arrays), dict(flags)
    for name in ("a", "b"):
        if name in views and hasattr(views[name], "shape") and not (name == "b" and of_blocks):
            views[name], taken[f"trans_{name}"] = _transposed_if_needed(
                viewable(views[name]), flags[f"trans_{name}"])
    return views, taken


def _has_the_kernels_form(a: Array, b: Array) -> bool:
    """True of most calls, which shall not pay for the others; and where the kernel refuses."""
    try:
        return bool(a.flags.c_contiguous and b.flags.c_contiguous and a.ndim == b.ndim and
                    1 < a.ndim < 4 and (a.ndim == 2 or len(a) == len(b)))
    except AttributeError:  # not NumPy's
        return not (hasattr(a, "shape") and hasattr(b, "shape"))


def product(arrays: dict[str, Array], flags: dict[str, bool], out: Array | None,
            of_blocks: bool) -> Product:
    """numpy.matmul's rules: 1-D operands, batch axes broadcast, transposed views.

    arrays: a, b, and c0 and residual, which are like c; flags and of_blocks as in matrices. Raises
    ValueError.
    """
    a, b = arrays["a"], arrays["b"]
    if _has_the_kernels_form(a, b):
        return Product(arrays, flags, out, None, True, ())
    a, b = viewable(a), viewable(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{'b' if a.ndim else 'a'} has no axes: allowed are 1 and more")
    is_row, is_column = a.ndim == 1, b.ndim == 1
    for name, vector in (("trans_a", is_row), ("trans_b", is_column)):
        if vector and flags[name]:
            raise ValueError(f"{name}=True of a vector")
    named, flags = matrices({**arrays, "a": a[None] if is_row else a,
                             "b": b[:, None] if is_column else b}, flags, of_blocks)
    leads = tuple(named["a"].shape[:-2]), tuple(named["b"].shape[:-2])
    if leads[0] == leads[1] and len(leads[0]) <= 1 and not is_row and not is_column:
        return Product(named, flags, out, None, True, ())

    lead = _leading(*leads)
    likes = [name for name in ("c0", "residual") if name in named]
    if out is not None:
        named["out"] = out
        likes.append("out")
    for name in likes:
        like = viewable(named[name])
        like = like[..., None] if is_column else like
        like = like[..., None, :] if is_row else like
        named[name] = _expanded(like, (*lead, *like.shape[-2:])) if name != "out" else like
    rows = () if is_row else (named["a"].shape[-1 if flags["trans_a"] else -2],)
    named, slices = _with_one_batch_axis(named, lead, flags["trans_a"])
    return Product(named, flags, named.pop("out", None), (*lead, *rows), not is_column, slices)


def _with_one_batch_axis(named: dict[str, Array], lead: Shape, trans_a: bool,
                         ) -> tuple[dict[str, Array], Shape]:
    """Views with at most one batch axis; or, with all of `lead`, what to take apart."""
    matrices = [name for name in named if name in ("a", "b", "c0", "residual", "out")]
    if named["b"].ndim == 2 and not trans_a:
        # A single b: the rows of all batches are the rows of one product.
        rows = {name: _joined(named[name], 0, named[name].ndim - 1)
                for name in matrices if name != "b"}
        if all(array is not None for array in rows.values()):
            return {**named, **rows}, ()
    spread = {name: _expanded(named[name], (*lead, *named[name].shape[-2:])) if name != "out"
              else named[name] for name in matrices}
    joined = {name: _joined(array, 0, len(lead)) for name, array in spread.items()}
    if all(array is not None for array in joined.values()):
        return {**named, **joined}, ()
    return {**named, **spread}, lead[:-1]


def indices(name: str, array: Array) -> Array:
    """Integers of any type and order as int32. Raises ValueError where one does not fit."""
    dtype = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if not dtype.startswith(("int", "uint")):
        return array
    array = viewable(array)
    if dtype == "int32" and (array.ndim == 0 or _strides(array)[-1] == 1):
        return array
    limit = 2**31
    if dtype in ("int64", "uint32", "uint64") and 0 not in array.shape:
        low, high = int(array.min()), int(array.max())
        if low < -limit or high >= limit:
            raise ValueError(f"{name} holds {low if low < -limit else high}, which no int32 is")
    if _is_torch(array):
        return array.to(sys.modules["torch"].int32).contiguous()
    return array.astype("int32", order="C")


def added_mask(mask: Array | None) -> Array | None:
    """A mask of bool, true where an element takes part, as what is added to the scores."""
    if str(getattr(mask, "dtype", "")).removeprefix("torch.") != "bool":
        return mask
    if _is_torch(mask):
        torch = sys.modules["torch"]
        return torch.zeros(mask.shape, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
    import numpy
    mask = viewable(mask)
    return numpy.where(mask, numpy.float32(0), numpy.float32(-numpy.inf))


def matrix_of(name: str, array: Array) -> Array:
    """Without leading axes of length 1. Raises ValueError for others."""
    lengths = tuple(getattr(array, "shape", ()))[:-2]
    if not lengths:
        return array
    if any(length != 1 for length in lengths):
        raise ValueError(f"{name} {tuple(array.shape)}: one mask serves all batches and heads: "
                         f"allowed is [q_len,kv_len]; call attention once for each mask")
    array = viewable(array)
    return array.reshape(array.shape[-2:])
