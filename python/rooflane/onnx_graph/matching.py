"""Patterns of nodes: what a value must have been computed by, as nested `Op`s."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .graph import Graph, Node

COMMUTATIVE = ("Add", "Mul")


@dataclass(frozen=True)
class Any:
    """Any value; the same one wherever the same name is used."""
    name: str


@dataclass(frozen=True)
class Number:
    """A known number; `value`: this one, to the digits that float16 keeps."""
    value: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Op:
    """The result of a node; `check`: what else must hold of the node."""
    op: str
    args: tuple[Pattern, ...]
    check: Callable[[Graph, Node], bool] | None = None


@dataclass(frozen=True)
class OneOf:
    """Any of several."""
    patterns: tuple[Pattern, ...]


Pattern = Any | Number | Op | OneOf


@dataclass
class Match:
    """What a pattern found."""
    values: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def copy(self) -> Match:
        return Match(dict(self.values), dict(self.numbers), list(self.nodes))


def find(graph: Graph, root: Node, pattern: Op) -> Match | None:
    """The first match with this node as its root and with inner values that nobody else needs."""
    for match in _values(graph, root.outputs[0], pattern, Match()):
        if all(_is_inner(graph, node, root, match) for node in match.nodes):
            return match
    return None


def _is_inner(graph: Graph, node: Node, root: Node, match: Match) -> bool:
    if node is root:
        return True
    return all(name not in graph.outputs and
               all(reader in match.nodes for reader in graph.readers(name))
               for name in node.outputs)


def _values(graph: Graph, name: str, pattern: Pattern, so_far: Match) -> Iterator[Match]:
    if isinstance(pattern, Any):
        if so_far.values.get(pattern.name, name) == name:
            match = so_far.copy()
            match.values[pattern.name] = name
            yield match
    elif isinstance(pattern, Number):
        number = graph.scalar(name)
        if number is None or (pattern.value is not None and
                              abs(number - pattern.value) > 1e-3 * abs(pattern.value)):
            return
        match = so_far.copy()
        if pattern.name:
            match.numbers[pattern.name] = number
        yield match
    elif isinstance(pattern, OneOf):
        for one in pattern.patterns:
            yield from _values(graph, name, one, so_far)
    else:
        node = graph.producer(name)
        if node is None or node.op != pattern.op or len(node.inputs) < len(pattern.args) or \
                name != node.outputs[0] or (pattern.check and not pattern.check(graph, node)):
            return
        match = so_far.copy()
        match.nodes.append(node)
        orders = [node.inputs]
        if node.op in COMMUTATIVE:
            orders.append(node.inputs[::-1])
        for inputs in orders:
            yield from _arguments(graph, list(zip(inputs, pattern.args)), match)


def _arguments(graph: Graph, pairs: list[tuple[str, Pattern]], so_far: Match) -> Iterator[Match]:
    if not pairs:
        yield so_far
        return
    name, pattern = pairs[0]
    for match in _values(graph, name, pattern, so_far):
        yield from _arguments(graph, pairs[1:], match)


def product(*factors: Pattern) -> OneOf:
    """Factors multiplied in any order and any nesting; three at most."""
    if len(factors) == 2:
        return OneOf((Op("Mul", factors),))
    first, second, third = factors
    return OneOf(tuple(Op("Mul", (Op("Mul", (x, y)), z)) for x, y, z in (
        (first, second, third), (first, third, second), (second, third, first))))
