"""Repeated layers as loops of the model file: steps that do the same to other tensors. A tensor of
each round is a member of a group, `blk.{layer}.q`. Tensors that one round passes to the next form
a group, too, with one member more than there are rounds."""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .building import Step, numbered
from .views import Tensor

SYMBOL = "layer"
MOST_PERIOD = 1000  # steps of a round: more than any layer has
MOST_TRIES = 64  # places where a loop may begin within its first round


@dataclass(eq=False)
class Group:
    """Tensors by their number. Their names: prefix, number + shift, suffix."""
    members: dict[int, Tensor] = field(default_factory=dict)
    prefix: str = ""
    suffix: str = ""
    shift: int = 0

    def name(self, number: int) -> str:
        return f"{self.prefix}{number + self.shift}{self.suffix}"

    def template(self, ahead: int) -> str:
        """The name as a loop has it."""
        number = ahead + self.shift
        return f"{self.prefix}{{{SYMBOL}{f'{number:+d}' if number else ''}}}{self.suffix}"


@dataclass
class Roll:
    """Steps `first` to before `first` + `period`, `count` times."""
    first: int
    period: int
    count: int
    groups: dict[Tensor, tuple[Group, int]]  # of the first round's tensors, with their numbers

    @property
    def end(self) -> int:
        return self.first + self.period * self.count


def find_rolls(steps: Sequence[Step]) -> list[Roll]:
    """The loops that leave the fewest statements, from the first step on."""
    seen: dict[tuple, int] = {}
    kinds = np.array([seen.setdefault(_signature(step), len(seen)) for step in steps], np.int64)
    taken: set[Tensor] = set()
    return sorted(_find(steps, kinds, 0, len(steps), taken), key=lambda roll: roll.first)


def _signature(step: Step) -> tuple:
    """What steps of one statement have in common."""
    return (step.kernel, tuple(step.parameters.items()), step.loops,
            tuple((name, view.tensor.shape, view.tensor.kind == "weight", view.text(""))
                  for name, view in step.operands().items()))


def _find(steps: Sequence[Step], kinds: np.ndarray, begin: int, end: int,
          taken: set[Tensor]) -> Iterator[Roll]:
    """Within steps `begin` to before `end`: the best, then what lies on both sides of it."""
    best: Roll | None = None
    most = -1
    for first, period, count in _candidates(kinds[begin:end]):
        if best is not None and (period, count) != (best.period, best.count):
            break
        groups = _groups(steps, begin + first, period, count, taken)
        if groups is None:
            continue
        # Among equally good ones, the one where the graph's own names count the rounds.
        named = sum(_name(group) for group in dict.fromkeys(group for group, _ in groups.values()))
        if named > most:
            best, most = Roll(begin + first, period, count, groups), named
    if best is None:
        return
    for group, _ in best.groups.values():
        taken.update(group.members.values())
    yield best
    yield from _find(steps, kinds, begin, best.first, taken)
    yield from _find(steps, kinds, best.end, end, taken)


def _candidates(kinds: np.ndarray) -> list[tuple[int, int, int]]:
    """(first, period, count), those that leave the fewest statements in front."""
    found = []
    for period in range(2, min(len(kinds) // 2, MOST_PERIOD) + 1):
        same = np.concatenate(([False], kinds[:-period] == kinds[period:], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist()):
            most = (stop - start) // period + 1
            # One round less, too: the first may read what an earlier loop wrote.
            for count in range(most, max(most - 2, 1), -1):
                spare = stop - start - (count - 1) * period
                # Queries, keys and values are no layers.
                found += [(start + shift, period, count)
                          for shift in range(min(spare + 1, MOST_TRIES))
                          if len(set(kinds[start + shift:start + shift + period].tolist())) > 1]
    return sorted(found, key=lambda one: (-one[1] * (one[2] - 1), one[1], one[0]))


def _groups(steps: Sequence[Step], first: int, period: int, count: int,
            taken: set[Tensor]) -> dict[Tensor, tuple[Group, int]] | None:
    """The groups of all tensors that differ from round to round; nothing where they fit none."""
    numbers: dict[Tensor, tuple[Group, int]] = {}
    own: dict[Tensor, None] = {}  # a set that keeps its order
    constant: set[Tensor] = set()
    for place in range(period):
        rounds = [list(steps[first + place + i * period].operands().values())
                  for i in range(count)]
        for views in zip(*rounds):
            tensors = [view.tensor for view in views]
            own[tensors[0]] = None
            if len(set(tensors)) == 1:
                constant.add(tensors[0])
            elif not _join(tensors, numbers, taken):
                return None
    # The same in all rounds here, another in each there: no name says both.
    if not constant.isdisjoint(numbers):
        return None
    return {tensor: numbers[tensor] for tensor in own if tensor in numbers}


def _join(tensors: list[Tensor], numbers: dict[Tensor, tuple[Group, int]],
          taken: set[Tensor]) -> bool:
    """Makes the tensors that one place of the rounds uses members of one group."""
    known = [(i, *numbers[tensor]) for i, tensor in enumerate(tensors) if tensor in numbers]
    group, ahead = (known[0][1], known[0][2] - known[0][0]) if known else (Group(), 0)
    for i, tensor in enumerate(tensors):
        if tensor in taken or group.members.get(i + ahead, tensor) is not tensor or \
                numbers.get(tensor, (group, i + ahead)) != (group, i + ahead):
            return False
        group.members[i + ahead] = tensor
        numbers[tensor] = (group, i + ahead)
    return True


def name_groups(groups: Sequence[Group], taken: set[str]) -> None:
    """Names by what the members are called in the graph: a number that counts in all of them, or
    one behind the first's name."""
    for group in groups:
        _name(group)
        prefix = group.prefix
        count = 1
        while any(group.name(number) in taken for number in group.members):
            count += 1
            group.prefix = f"{prefix}{count}."
        for number, tensor in group.members.items():
            tensor.name = group.name(number)
            taken.add(tensor.name)


def _name(group: Group) -> bool:
    """Finds the number that counts the rounds; false where there is none and the first's name
    serves all, or where the first is called otherwise: what is handed on, before the first round.
    """
    numbers = sorted(group.members)
    names = [group.members[number].name for number in numbers]
    for match in re.finditer(r"\d+", names[-1]):
        shift = int(match.group()) - numbers[-1]
        prefix, suffix = names[-1][:match.start()], names[-1][match.end():]
        fits = [name == f"{prefix}{number + shift}{suffix}"
                for number, name in zip(numbers, names)]
        if shift >= 0 and len(fits) > 1 and all(fits[1:]) and (fits[0] or len(fits) > 2):
            group.prefix, group.suffix, group.shift = prefix, suffix, shift
            return fits[0]
    group.prefix, group.suffix, group.shift = names[0] + ".", "", 0
    return False


def step_name(steps: Sequence[Step], roll: Roll, place: int, taken: set[str]) -> str:
    """A step's name in the first round, without the number of the round."""
    first, second = (steps[roll.first + place + i * roll.period].name for i in (0, 1))
    for match in re.finditer(r"\d+", first):
        following = f"{first[:match.start()]}{int(match.group()) + 1}{first[match.end():]}"
        if following == second:
            first = re.sub("_+", "_", first[:match.start()] + first[match.end():]).strip("_")
            break
    return numbered(first or "step", taken)
