"""Tensors of a model file and what steps see of them: the views that src/model/strided.hpp reads,
with the same rules for what needs a copy."""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from .graph import Shape

MOST_AXES = 4  # that a tensor of the file may have; its views may have 8
MOST_VIEW_AXES = 8


@dataclass(eq=False)
class Tensor:
    """`KIND NAME [AXES] OPTIONS` of the file."""
    name: str
    shape: Shape
    kind: str = "buffer"
    options: dict[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True, eq=False)
class View:
    """Elements of a tensor: axes and strides; how they came from another view, its `parent`."""
    tensor: Tensor
    shape: Shape
    strides: Shape
    offset: int = 0
    parent: View | None = None
    change: str = ""
    arguments: tuple[str, ...] = ()

    @staticmethod
    def whole(tensor: Tensor) -> View:
        return View(tensor, tensor.shape, row_major(tensor.shape))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous_last(self) -> bool:
        """Kernels take no other rows."""
        return self.shape[-1] <= 1 or self.strides[-1] == 1

    def text(self, name: str) -> str:
        """As the file has it, of a tensor of that name."""
        if self.parent is None:
            return name
        inner = ", ".join(self.arguments)
        call = f"[{inner}]" if self.change == "[]" else f".{self.change}({inner})"
        return self.parent.text(name) + call

    def reshape(self, shape: Shape) -> View | None:
        """The same elements in other axes; nothing where that needs a copy."""
        if shape == self.shape:
            return self
        if math.prod(shape) != self.elements or len(shape) > MOST_VIEW_AXES:
            return None
        strides = _reshaped(self.shape, self.strides, shape)
        if strides is None:
            return None
        return self._changed(shape, strides, self.offset, "view", tuple(map(str, shape)))

    def permute(self, order: tuple[int, ...]) -> View:
        """Axis order[0] first, and so on; permuted twice is permuted once."""
        if self.change == "permute" and self.parent is not None:
            before = [int(axis) for axis in self.arguments]
            return self.parent.permute(tuple(before[axis] for axis in order))
        return self._changed(tuple(self.shape[i] for i in order),
                             tuple(self.strides[i] for i in order), self.offset, "permute",
                             tuple(map(str, order)))

    def transpose(self) -> View:
        """The last two axes swapped."""
        rank = len(self.shape)
        return self.permute((*range(rank - 2), rank - 1, rank - 2))

    def slice(self, axis: int, begin: int, end: int) -> View:
        if self.change == "permute" and self.parent is not None:
            order = tuple(int(axis) for axis in self.arguments)
            return self.parent.slice(order[axis], begin, end).permute(order)
        shape = (*self.shape[:axis], end - begin, *self.shape[axis + 1:])
        words = [":"] * axis + [f"{begin}:{end}"]
        return self._changed(shape, self.strides, self.offset + begin * self.strides[axis], "[]",
                             tuple(words))

    def index(self, axis: int, at: int | str) -> View:
        """One element of an axis, which is dropped; `at` may be a loop's symbol, with any view."""
        shape = self.shape[:axis] + self.shape[axis + 1:]
        strides = self.strides[:axis] + self.strides[axis + 1:]
        offset = self.offset + (at * self.strides[axis] if isinstance(at, int) else 0)
        words = (*[":"] * axis, str(at))
        if axis == 0 and isinstance(at, str) and self.change == "[]" and self.parent and \
                not any(":" in word for word in self.arguments):
            return View(self.tensor, shape, strides, offset, self.parent, "[]",
                        (*self.arguments, str(at)))
        if isinstance(at, str):
            return View(self.tensor, shape, strides, offset, self, "[]", words)
        return self._changed(shape or (1,), strides or (1,), offset, "[]", words)

    def expand(self, shape: Shape) -> View | None:
        """Axes of 1, and new ones in front, repeated."""
        before = len(shape) - len(self.shape)
        if before < 0 or len(shape) > MOST_VIEW_AXES or shape == self.shape:
            return self if shape == self.shape else None
        strides = [0] * before
        for wanted, size, stride in zip(shape[before:], self.shape, self.strides):
            if size not in (1, wanted):
                return None
            strides.append(stride if size == wanted else 0)
        return self._changed(shape, tuple(strides), self.offset, "expand", tuple(map(str, shape)))

    def replayed(self, tensor: Tensor) -> View:
        """The same way from another tensor of the same shape."""
        if self.parent is None:
            return View.whole(tensor)
        parent = self.parent.replayed(tensor)
        return View(tensor, self.shape, self.strides, self.offset, parent, self.change,
                    self.arguments)

    def same_elements(self, other: View) -> bool:
        """Whether two views lie in their tensors alike."""
        return self.shape == other.shape and self.offset == other.offset and \
            self.tensor.shape == other.tensor.shape and \
            all(size == 1 or x == y
                for size, x, y in zip(self.shape, self.strides, other.strides))

    def covers(self) -> bool:
        """Whether it holds each element of its tensor, once."""
        return self.elements == math.prod(self.tensor.shape) and \
            not any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.strides))

    def _changed(self, shape: Shape, strides: Shape, offset: int, change: str,
                 arguments: tuple[str, ...]) -> View:
        """A view of this one; by a shorter way where it is all of the tensor in order, or was the
        same before on the way here. Reshaped twice is reshaped once."""
        result = View(self.tensor, shape, strides, offset, self, change, arguments)
        whole = View.whole(self.tensor)
        if result.same_elements(View(self.tensor, shape, row_major(shape))) and \
                math.prod(shape) == whole.elements:
            return whole if shape == whole.shape else View(
                self.tensor, shape, row_major(shape), 0, whole, "view", tuple(map(str, shape)))
        known: View | None = self
        while known is not None:
            if known.same_elements(result):
                return known
            known = known.parent
        if change == "view" and self.change == "view" and self.parent is not None:
            return self.parent.reshape(shape) or result
        return result


def row_major(shape: Shape) -> Shape:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return tuple(strides)


def one_stride(shape: Shape, strides: Shape) -> bool:
    """Whether axes can be walked as one."""
    return len(_merged(shape, strides)) <= 1


def _merged(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    """Lengths and strides of axes of more than 1, merged as far as possible."""
    result: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        if result and result[-1][1] == stride * size:
            result[-1] = (result[-1][0] * size, stride)
        else:
            result.append((size, stride))
    return result


def _reshaped(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides of the wanted axes: each must be cut from one of the old, merged as far as
    possible."""
    if 0 in shape:
        return row_major(wanted)
    old = _merged(shape, strides)
    result = [1] * len(wanted)
    left, stride = 1, 1
    for i in range(len(wanted) - 1, -1, -1):
        if wanted[i] == 1:
            result[i] = stride
            continue
        if left == 1:
            if not old:
                return None
            left, stride = old.pop()
        if left % wanted[i] != 0:
            return None
        result[i] = stride
        stride *= wanted[i]
        left //= wanted[i]
    return tuple(result) if not old and left == 1 else None
