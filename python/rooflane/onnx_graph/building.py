"""The model file under construction: tensors, steps, and where each value of the graph lies."""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .costs import Cost
from .graph import OWN, Graph, Node, Shape
from .views import MOST_AXES, Tensor, View, one_stride

VIEWS = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", OWN + "view")
# Calls that one step may make in loops; beyond that starting them is what is measured.
MOST_ROUNDS = 256
LONGEST_STEP = 56  # of a step; the program allows 64


@dataclass(eq=False)
class Step:
    """`step NAME KERNEL PARAMETERS OPERANDS` of the file, within loops of these lengths."""
    name: str
    kernel: str
    parameters: dict[str, str]
    reads: dict[str, View]
    writes: dict[str, View]
    loops: tuple[int, ...] = ()

    def operands(self) -> dict[str, View]:
        return {**self.reads, **self.writes}


@dataclass(frozen=True)
class Left:
    """A node that no kernel does."""
    op: str
    reason: str
    cost: Cost


class Builder:
    """Views of the graph's values in tensors of the file. Tensors are declared when a step uses
    them: what nodes without a kernel compute is an input of the model."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.views: dict[str, View] = {}
        self.steps: list[Step] = []
        self.left: list[Left] = []  # what no step does
        self._constants: dict[tuple[str, int], View] = {}
        self._step_names: set[str] = set()
        self._joined: dict[Node, View] = {}  # results of Concat that steps write into
        self.placed: dict[Node, set[str]] = {}  # which of its parts

    def view(self, name: str) -> View | None:
        """Where a value lies; nothing when its shape is not known."""
        if name not in self.views:
            value = self.graph.values[name]
            if value.shape is None or 0 in value.shape:
                return None
            self.views[name] = self.new(name, value.shape, "weight" if value.is_weight else
                                         "input")
        return self.views[name]

    def new(self, name: str, shape: Shape, kind: str = "buffer") -> View:
        """A tensor of its own, named when it is written; what has more axes than a file's tensor
        may have is a view of that."""
        shape = shape or (1,)
        merged = len(shape) - MOST_AXES + 1
        held = shape if merged < 2 else (math.prod(shape[:merged]), *shape[merged:])
        view = View.whole(Tensor(name, held, kind)).reshape(shape)
        assert view is not None
        return view

    def constant(self, name: str, cols: int, value: str) -> View:
        """A vector of one number."""
        if (name, cols) not in self._constants:
            view = self.new(f"{name}_{cols}", (cols,), "weight")
            view.tensor.options.update({"scale": "0", "offset": value})
            self._constants[name, cols] = view
        return self._constants[name, cols]

    def add_step(self, node: Node, kernel: str, parameters: dict[str, str],
                 reads: dict[str, View], writes: dict[str, View],
                 loops: Sequence[int] = (), suffix: str = "") -> None:
        """A step; views are those before the loops' indices. `suffix`: of its name."""
        text = f"{node.name or node.result}_{suffix}"
        text = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[-LONGEST_STEP:].strip("_")
        text = f"{kernel}_{text}" if not text or text[0].isdigit() else text
        self.steps.append(Step(numbered(text, self._step_names), kernel, parameters, reads, writes,
                               tuple(loops)))

    def place(self, name: str, accept: Callable[[View], bool]) -> View:
        """Where a step writes a value: so that what reads it needs no copy, if `accept` likes that;
        else as the graph has its axes, which it must like."""
        for view, joined in self._layouts(name):
            if not accept(view):
                continue
            self.views[name] = view
            if joined is not None:
                node, whole, part = joined
                self._joined[node] = whole
                self.placed.setdefault(node, set()).add(part)
            return view
        self.views[name] = self.new(name, self.graph.shape(name) or ())
        return self.views[name]

    def _layouts(self, name: str) -> Iterator[tuple[View, tuple[Node, View, str] | None]]:
        """The layout that the last of the following reshapes and transpositions needs: within the
        result of a Concat, then as each transposition leaves it."""
        chain: list[Node] = []
        last = name
        reader = self.graph.sole_reader(last)
        while reader is not None and reader.op in VIEWS and reader.input(0) == last:
            chain.append(reader)
            last = reader.outputs[0]
            reader = self.graph.sole_reader(last)
        if any(self.graph.shape(node.outputs[0]) is None for node in chain):
            return
        if reader is not None and reader.op == "Concat" and reader.inputs.count(last) == 1:
            for whole in self._wholes(reader, chain):
                part = self._part(whole, reader, last)
                view = self._backwards(part, chain) if part else None
                if view is not None:
                    yield view, (reader, whole, last)
        for count in range(len(chain), 0, -1):
            if chain[count - 1].op != "Transpose":
                continue
            end = chain[count - 1].outputs[0]
            # Products take their operands transposed, too, and attention its keys as rows.
            if self.order(chain[count - 1])[-1] != len(self.graph.shape(end) or ()) - 1 and \
                    any(reader.op in (OWN + "gemm", OWN + "attention")
                        for reader in self.graph.readers(last)):
                continue
            view = self._backwards(self.new(end, self.graph.shape(end) or ()), chain[:count])
            if view is not None:
                yield view, None

    def _backwards(self, view: View, chain: list[Node]) -> View | None:
        """The value before a chain of views; the last view gives this value."""
        result: View | None = view
        for node in reversed(chain):
            if result is None:
                return None
            if node.op == "Transpose":
                perm = self.order(node)
                result = result.permute(tuple(perm.index(i) for i in range(len(perm))))
            else:
                result = result.reshape(self.graph.shape(node.input(0)) or (1,))
        return result

    def order(self, node: Node) -> list[int]:
        """A Transpose's axes."""
        rank = len(self.graph.shape(node.input(0)) or ())
        return list(node.get("perm", [*range(rank - 1, -1, -1)]))

    def _wholes(self, node: Node, chain: list[Node]) -> Iterator[View]:
        """The result of a Concat: as it is, or as it was before the chain's transposition."""
        if node in self._joined:
            yield self._joined[node]
            return
        shape = self.graph.shape(node.outputs[0])
        if shape is None or not 1 <= len(shape) <= MOST_AXES:
            return
        # What no step writes keeps its values, as a cache does.
        name = node.outputs[0]
        yield self.new(name, shape, "state")
        for before in reversed(chain):
            order = self.order(before) if before.op == "Transpose" else []
            if len(order) == len(shape):
                held = tuple(shape[order.index(i)] for i in range(len(order)))
                yield self.new(name, held, "state").permute(tuple(order))
                return

    def _part(self, whole: View, node: Node, name: str) -> View | None:
        """The slice of a Concat's result that one input becomes."""
        axis = node.get("axis", 0) % len(whole.shape)
        begin = 0
        for other in node.inputs:
            shape = self.graph.shape(other)
            if shape is None or len(shape) != len(whole.shape):
                return None
            if other == name:
                return whole.slice(axis, begin, begin + shape[axis])
            begin += shape[axis]
        return None

    def joined(self, node: Node) -> View | None:
        """The result of a Concat that steps wrote at least in part."""
        return self._joined.get(node)


def numbered(text: str, taken: set[str]) -> str:
    """The text, with a number behind it where it is taken already; taken from then on."""
    name, count = text, 1
    while name in taken:
        count += 1
        name = f"{text}_{count}"
    taken.add(name)
    return name


def rounds(views: Sequence[View], keep: int) -> int | None:
    """How many leading axes to loop over, so that those behind them, but for the last `keep`, can
    be walked as one in each of the views; nothing when that takes too many calls."""
    lead = len(views[0].shape) - keep
    for count in range(max(lead, 0) + 1):
        if math.prod(views[0].shape[:count]) > MOST_ROUNDS:
            return None
        if all(one_stride(v.shape[count:lead], v.strides[count:lead]) for v in views):
            return count
    return None
