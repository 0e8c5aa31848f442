"""A graph as data: values with their shapes, nodes in the order in which they run."""
from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]

# Domain of the nodes that stand for several of the file's: each is what one kernel does.
OWN = "rooflane."


class InputError(Exception):
    """What the user gave is wrong; the text says what, in one line, whatever names a file has."""

    def __init__(self, text: str):
        super().__init__("".join(c if c.isprintable() else "?" for c in text))


@dataclass(eq=False)
class Value:
    """What a node writes, or the file gives."""
    name: str
    shape: Shape | None = None  # none: it depends on data
    element: int = 0  # of onnx.TensorProto.DataType
    data: np.ndarray | None = None  # of small values that are known before a run
    is_weight: bool = False  # the same in every run
    is_input: bool = False

    @property
    def elements(self) -> int:
        """How many; 0 where the shape is not known."""
        return math.prod(self.shape) if self.shape is not None else 0


@dataclass(eq=False)
class Node:
    op: str  # "MatMul"; of other domains than ONNX's own "com.microsoft.FastGelu"
    inputs: list[str]  # "" where an optional one is left out
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    opset: int = 0

    def input(self, index: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def result(self) -> str:
        """The first output that is not left out."""
        return next(name for name in self.outputs if name)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; the default, too, where its kind is another than the default's: nobody has
        checked those of operators that the onnx package does not know."""
        value = self.attributes.get(name, default)
        if default is None or isinstance(value, type(default)) or \
                isinstance(default, float) and isinstance(value, int):
            return value
        return default


class Graph:
    """Nodes with who writes and who reads each value."""

    def __init__(self, values: dict[str, Value], nodes: list[Node], outputs: list[str]):
        self.values = values
        self.nodes = nodes
        self.outputs = outputs
        self.refresh()

    def refresh(self) -> None:
        """Drops nodes with results that nobody needs; finds writers and readers again."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.outputs):
                kept.append(node)
                needed.update(name for name in node.inputs if name)
        self.nodes = kept[::-1]
        self._producers = {name: node for node in self.nodes for name in node.outputs if name}
        self._readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    self._readers.setdefault(name, []).append(node)

    def producer(self, name: str) -> Node | None:
        return self._producers.get(name)

    def readers(self, name: str) -> list[Node]:
        return self._readers.get(name, [])

    def sole_reader(self, name: str) -> Node | None:
        """The one node that reads a value, unless the graph outputs that value."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def shape(self, name: str) -> Shape | None:
        return self.values[name].shape if name else None

    def scalar(self, name: str) -> float | None:
        """The number that a value is known to be, whatever its rank."""
        data = self.values[name].data if name else None
        if data is None or data.size != 1 or data.dtype.kind not in "fiub":
            return None
        return float(data.reshape(()))

    def integers(self, node: Node, attribute: str, index: int) -> list[int] | None:
        """A list that old versions of an operator have as attribute, new ones as input."""
        if attribute in node.attributes:
            value = node.attributes[attribute]
            return list(value) if isinstance(value, (list, tuple)) else [value]
        if not node.input(index):
            return None
        data = self.values[node.input(index)].data
        return None if data is None else [int(number) for number in data.reshape(-1)]

    def add_value(self, name: str, like: str, shape: Shape | None = None) -> str:
        """A new value, of the element type of another and, unless given, its shape. Its name."""
        unique = name
        while unique in self.values:
            unique += "_"
        other = self.values[like]
        self.values[unique] = Value(unique, other.shape if shape is None else shape, other.element,
                                    is_weight=other.is_weight)
        return unique

    def substitute(self, others: dict[str, str]) -> None:
        """Reads other values instead."""
        def final(name: str) -> str:
            while name in others:
                name = others[name]
            return name

        for node in self.nodes:
            node.inputs = [final(name) for name in node.inputs]
        self.outputs = [final(name) for name in self.outputs]
        self.refresh()

    def replace(self, changes: Iterable[tuple[Node, list[Node]]]) -> None:
        """Replaces nodes by others; the last of these writes the value that the first ones
        wrote."""
        by_node = dict(changes)
        self.nodes = [new for node in self.nodes for new in by_node.get(node, [node])]
        self.refresh()
