"""The model file as text (docs/models.md), and what is not in it."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .building import Step, numbered
from .contrib import MS
from .costs import Cost
from .mapping import Mapped
from .rolling import SYMBOL, Group, find_rolls, name_groups, step_name
from .views import Tensor

LONGEST_LINE = 100
LONGEST_NAME = 120  # of a tensor; the program allows 200
KINDS = ("input", "state", "weight", "buffer", "output")
SYMBOLS = ("i", "j", "k")  # of loops within one another


@dataclass
class Coverage:
    """How much of the graph the steps are, and what the rest is."""
    mapped: Cost
    total: Cost
    rest: list[tuple[str, str, int, Cost]]  # operator, reason, how many, what they cost together

    def lines(self) -> list[str]:
        """A table: the steps, then what is left, the most work first."""
        rows = [("steps", "", "", self.mapped)]
        rows += [(op, str(count), reason, cost) for op, reason, count, cost in self.rest]
        lines = [f"{'':24}{'nodes':>6} {'% of FLOPs':>11} {'% of bytes':>11}"]
        for op, count, reason, cost in rows:
            flops = percent(cost.flops, self.total.flops) if cost.is_known else "?"
            moved = percent(cost.bytes, self.total.bytes)
            lines.append(f"{op[:23]:24}{count:>6} {flops:>11} {moved:>11}  {reason}".rstrip())
        return lines

    def headline(self) -> str:
        return (f"{percent(self.mapped.flops, self.total.flops)} % of "
                f"{amount(self.total.flops)}FLOP and "
                f"{percent(self.mapped.bytes, self.total.bytes)} % of "
                f"{amount(self.total.bytes)}B are steps")


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"


def amount(value: float) -> str:
    """Three digits and a prefix: "22.4 G"."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "


def coverage(mapped: Mapped) -> Coverage:
    groups: dict[tuple[str, str], list[Cost]] = {}
    for left in mapped.builder.left:
        name = left.op.removeprefix(MS)
        groups.setdefault((name, left.reason), []).append(left.cost)
    rest = [(op, reason, len(costs), sum(costs, Cost())) for (op, reason), costs in groups.items()]
    rest.sort(key=lambda row: (row[3].is_known, -row[3].flops, -row[3].bytes))
    total = sum((row[3] for row in rest), mapped.mapped)
    return Coverage(mapped.mapped, total, rest)


class ModelText:
    """Statements, from steps."""

    def __init__(self, name: str, mapped: Mapped):
        self.name = name
        self.steps = mapped.builder.steps
        self.tensors = list(dict.fromkeys(view.tensor for step in self.steps
                                          for view in step.operands().values()))
        self._set_kinds(mapped)
        for tensor in self.tensors:
            tensor.name = legal_name(tensor.name)
        self.rolls = find_rolls(self.steps)
        groups = dict.fromkeys(group for roll in self.rolls for group, _ in roll.groups.values())
        self.groups = list(groups)
        self.single = [tensor for tensor in self.tensors
                       if not any(tensor in group.members.values() for group in self.groups)]
        taken: set[str] = set()
        for tensor in self.single:
            tensor.name = numbered(tensor.name, taken)
        names = {tensor: tensor.name for tensor in self.tensors}
        name_groups(self.groups, taken)
        for tensor, name in names.items():
            if tensor.kind in ("input", "output") and tensor.name != name:
                tensor.comment = f"  # {name}"

    def _set_kinds(self, mapped: Mapped) -> None:
        """What nobody reads, or the graph hands out, is an output."""
        read = {view.tensor for step in self.steps for view in step.reads.values()}
        views = mapped.builder.views
        wanted = {views[name].tensor for name in mapped.graph.outputs if name in views}
        for tensor in self.tensors:
            if tensor.kind == "buffer" and (tensor in wanted or tensor not in read):
                tensor.kind = "output"

    def text(self, comments: Iterable[str]) -> str:
        lines = [f"# {line}".rstrip() for line in comments]
        lines += [f"model {self.name}", ""]
        loops: dict[tuple[int, int], list[str]] = {}
        declared = {kind: [] for kind in KINDS}
        for tensor in self.single:
            declared[tensor.kind].append(_declared(tensor, tensor.name))
        for group in self.groups:
            for first, count in _ranges(group):
                tensor = group.members[first]
                if count == 1:
                    declared[tensor.kind].append(_declared(tensor, tensor.name))
                else:
                    loops.setdefault((count, KINDS.index(tensor.kind)), []).append(
                        _declared(tensor, group.template(first)))
        lines += [line for kind in KINDS for line in declared[kind]]
        for (count, _), statements in sorted(loops.items()):
            lines += _loop(SYMBOL, count, statements)
        return "\n".join([*lines, "", *self._stated()]) + "\n"

    def _stated(self) -> list[str]:
        lines: list[str] = []
        at = 0
        rolled = {at for roll in self.rolls for at in range(roll.first, roll.end)}
        taken = {step.name for at, step in enumerate(self.steps) if at not in rolled}
        for roll in [*self.rolls, None]:
            end = roll.first if roll is not None else len(self.steps)
            for step in self.steps[at:end]:
                lines += _stated(step, step.name, {})
            if roll is None:
                break
            names = {tensor: group.template(number)
                     for tensor, (group, number) in roll.groups.items()}
            body: list[str] = []
            for place in range(roll.period):
                name = step_name(self.steps, roll, place, taken)
                body += _stated(self.steps[roll.first + place], name, names)
            lines += _loop(SYMBOL, roll.count, body)
            at = roll.end
        return lines


def _ranges(group: Group) -> list[tuple[int, int]]:
    """(first, count) of members that are declared alike."""
    ranges: list[tuple[int, int]] = []
    before: Tensor | None = None
    for number in sorted(group.members):
        tensor = group.members[number]
        if before is not None and ranges[-1][0] + ranges[-1][1] == number and \
                (before.kind, before.shape, before.options, before.comment) == \
                (tensor.kind, tensor.shape, tensor.options, tensor.comment):
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((number, 1))
        before = tensor
    return ranges


def legal_name(name: str) -> str:
    """What the file may call a tensor."""
    text = re.sub(r"[^A-Za-z0-9_./]", "_", name.replace("::", "."))
    text = re.sub(r"\.{2,}", ".", text).strip("./")[-LONGEST_NAME:].strip("./")
    return text or "tensor"


def _declared(tensor: Tensor, name: str) -> str:
    axes = ", ".join(map(str, tensor.shape))
    options = "".join(f" {key}={value}" for key, value in tensor.options.items())
    return f"{tensor.kind} {name} [{axes}]{options}{tensor.comment}"


def _loop(symbol: str, count: int, statements: Iterable[str]) -> list[str]:
    return [f"repeat {symbol} = {count}", *(f"  {line}" for line in statements), "end"]


def _stated(step: Step, name: str, names: Mapping[Tensor, str]) -> list[str]:
    """The statement, broken where it is long, within its loops; `names`: of tensors that are called
    otherwise here."""
    symbols = SYMBOLS[:len(step.loops)]
    words = ["step", name, step.kernel]
    words += [f"{key}={value}" for key, value in step.parameters.items()]
    for operand, view in step.operands().items():
        for symbol in symbols:
            view = view.index(0, symbol)
        words.append(f"{operand}={view.text(names.get(view.tensor, view.tensor.name))}")
    lines: list[str] = []
    line = words[0]
    for word in words[1:]:
        if len(line) + len(word) + 3 > LONGEST_LINE - 4 and line.strip() != words[0]:
            lines.append(line + " \\")
            line = "    "
        line += " " + word
    lines.append(line)
    for symbol, count in reversed(list(zip(symbols, step.loops))):
        lines = _loop(symbol, count, lines)
    return lines
