"""What the user says about sizes that a file leaves open: symbols, and axes without a name."""
from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from .graph import InputError, Shape

# A tebibyte of float32, the most that a model file may declare.
MOST_ELEMENTS = 2**38

OPERATORS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: lambda x, y: Fraction(x // y)}


@dataclass
class Sizes:
    """The options' values."""
    batch: int | None = None  # first axes that are open
    length: int | None = None  # second ones
    symbols: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # of inputs
    data: dict[str, np.ndarray] = field(default_factory=dict)  # of inputs

    def resolve(self, inputs: dict[str, list[int | str]]) -> dict[str, Shape]:
        """The shapes of all inputs, from axes that are numbers, symbols' names or "" (open).
        Raises InputError naming everything that is open still."""
        for name in [*self.shapes, *self.data]:
            if name not in inputs:
                raise InputError(f"no input '{name}'; the file has {', '.join(inputs) or 'none'}")
        known = dict(self.symbols)
        for name, axes in inputs.items():
            self._learn(name, axes, known)
        missing: dict[str, list[str]] = {}
        shapes = {}
        for name, axes in inputs.items():
            axes = list(self.shapes.get(name, axes))
            sizes = [self._size(axis, index, known) for index, axis in enumerate(axes)]
            for index, (axis, size) in enumerate(zip(axes, sizes)):
                if size is None:
                    what = str(axis) or f"axis {index} of {name}"
                    missing.setdefault(what, []).append(name)
            shapes[name] = tuple(size or 0 for size in sizes)
        self._refuse_unused(inputs)
        if missing:
            raise InputError(self._missing_text(missing))
        for name, shape in shapes.items():
            check_shape(name, shape)
        return shapes

    def _learn(self, name: str, axes: list[int | str], known: dict[str, int]) -> None:
        """Symbols with values that follow from --shape, --batch and --len; --dim goes first."""
        given = self.shapes.get(name)
        if given is not None and len(given) != len(axes):
            raise InputError(f"--shape {name}: {len(given)} axes, the file has {len(axes)}")
        for index, axis in enumerate(axes):
            if given is not None and isinstance(axis, int) and axis != given[index]:
                raise InputError(f"--shape {name}: axis {index} is {axis} in the file")
            by_place = (self.batch, self.length)[index] if index < 2 else None
            size = by_place if given is None else given[index]
            if isinstance(axis, str) and axis.isidentifier() and size is not None:
                known.setdefault(axis, size)

    def _size(self, axis: int | str, index: int, known: dict[str, int]) -> int | None:
        if isinstance(axis, int):
            return axis
        if axis in known:
            return known[axis]
        if axis and (size := evaluate(axis, known)) is not None:
            return size
        return (self.batch, self.length)[index] if index < 2 else None

    def _refuse_unused(self, inputs: dict[str, list[int | str]]) -> None:
        names = dict.fromkeys(str(axis) for axes in inputs.values() for axis in axes
                              if isinstance(axis, str) and axis)
        parts = {part for name in names for part in symbols_of(name)} | set(names)
        for name in self.symbols:
            if name not in parts:
                raise InputError(f"--dim {name}: no such symbol; the inputs have "
                                 f"{', '.join(names) or 'none'}")

    @staticmethod
    def _missing_text(missing: dict[str, list[str]]) -> str:
        parts = []
        for what, inputs in missing.items():
            named = "" if what.startswith("axis ") else f" (of {', '.join(dict.fromkeys(inputs))})"
            parts.append(what + named)
        symbols = [what for what in missing if not what.startswith("axis ")]
        hint = f"--dim {symbols[0]}=N" if symbols else \
            f"--shape {next(iter(missing.values()))[0]}=NxN"
        return f"sizes without a value: {'; '.join(parts)}; give {hint}, or --batch N and --len N"


def check_shape(name: str, shape: Iterable[int]) -> None:
    """Raises InputError on sizes that no machine has."""
    shape = tuple(shape)
    if any(size < 0 for size in shape) or math.prod(max(size, 1) for size in shape) > MOST_ELEMENTS:
        raise InputError(f"{name} is {list(shape)}: allowed are axes of 0 or more and at most "
                         f"{MOST_ELEMENTS} elements")


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body if len(text) < 1000 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def symbols_of(text: str) -> set[str]:
    """The symbols of an expression such as `past + length`."""
    tree = _parsed(text)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()


def evaluate(text: str, known: dict[str, int]) -> int | None:
    """The value of an expression of symbols, + - * / and floor; nothing when it is none, a symbol
    has no value or it does not come out whole."""
    def value(node: ast.expr) -> Fraction | None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Fraction(node.value)
        if isinstance(node, ast.Name) and node.id in known:
            return Fraction(known[node.id])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and \
                node.func.id == "floor" and len(node.args) == 1:
            inner = value(node.args[0])
            return None if inner is None else Fraction(math.floor(inner))
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = value(node.left), value(node.right)
            if left is None or right is None:
                return None
            return OPERATORS[type(node.op)](left, right)
        return None

    tree = _parsed(text)
    try:
        result = value(tree) if tree is not None else None
    except ZeroDivisionError:
        return None
    return int(result) if result is not None and result.denominator == 1 else None
