"""Shared by the strategies: their grid, and the memory of earlier proposals."""
from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence

from rooflane.tuning import Configuration, History, Proposal, Space, Trial, Tunable, text_of

# Up to so many combinations of values a space is walked through completely where need be: checking
# them takes a second or two.
ENUMERABLE = 20_000
# Draws that are checked at once, and how often, before a random configuration is corrected instead.
DRAWS, BATCHES = 64, 4


def changes(asked: Configuration, found: Configuration) -> str:
    """"mc 97 -> 96, kc 0 -> 64": what became of values."""
    return ", ".join(f"{name} {value} -> {found[name]}" for name, value in asked.items()
                     if name in found and found[name] != value)


class Grid:
    """The values of a space: of each tunable those worth trying, and those that the default and the
    model's candidates have besides."""

    def __init__(self, space: Space):
        self.space = space
        known = [space.default, *(candidate.configuration for candidate in space.candidates)]
        self.tunables = {tunable.name: tunable for tunable in space.tunables}
        self.values: dict[str, tuple[int, ...]] = {
            tunable.name: tuple(sorted({*tunable.values, *(each[tunable.name] for each in known
                                                           if tunable.name in each)}))
            for tunable in space.tunables}
        self.free: list[Tunable] = [tunable for tunable in space.tunables
                                    if len(self.values[tunable.name]) > 1]
        self.size = math.prod(len(values) for values in self.values.values())
        self._legal: list[Configuration] | None = list(space.legal) or None

    def index(self, name: str, value: int) -> int:
        """The place of a value among those of its tunable; of the nearest where it is none."""
        values = self.values[name]
        place = bisect.bisect_left(values, value)
        return min((at for at in (place - 1, place) if 0 <= at < len(values)),
                   key=lambda at: abs(values[at] - value))

    def steps(self, configuration: Configuration, tunable: Tunable, far: int = 1) -> Iterator[int]:
        """The values `far` steps up and down. The values of a selecting tunable have no order: all
        others are one step away."""
        if tunable.name not in configuration:
            return  # what this kind of configuration does not read
        values, value = self.values[tunable.name], configuration[tunable.name]
        if tunable.selects:
            yield from (other for other in values if other != value and far == 1)
            return
        above = bisect.bisect_right(values, value) + far - 1
        below = bisect.bisect_left(values, value) - far
        yield from (values[at] for at in (above, below) if 0 <= at < len(values))

    def neighbours(self, configuration: Configuration, far: int = 1) -> list[Configuration]:
        """What `far` steps, 1 or 2, make of a configuration, not made legal yet."""
        def moved(start: Configuration, tunable: Tunable, steps: int) -> Iterator[Configuration]:
            return ({**start, tunable.name: value}
                    for value in self.steps(start, tunable, steps))

        found = [other for tunable in self.free for other in moved(configuration, tunable, far)]
        if far == 2:
            found += [other for first, second in itertools.combinations(self.free, 2)
                      for half in moved(configuration, first, 1)
                      for other in moved(half, second, 1)]
        return found

    def corrected(self, proposals: Sequence[Configuration]) -> list[Configuration]:
        """The nearest legal configuration of each."""
        nearest = self.space.constraints.nearest(proposals) if proposals else []
        return [legal.configuration for legal in nearest if legal.configuration is not None]

    def everything(self) -> list[Configuration]:
        """All legal configurations, each once; for spaces of up to ENUMERABLE combinations and for
        those that were measured before."""
        if self._legal is None:
            names, found = list(self.values), {}
            combinations = itertools.product(*self.values.values())
            while chunk := [dict(zip(names, values))
                            for values in itertools.islice(combinations, 1024)]:
                found |= {text_of(legal.configuration): legal.configuration
                          for legal in self.space.constraints.check(chunk) if legal.configuration}
            self._legal = list(found.values())
        return self._legal

    def random(self, chance: random.Random, seen: set[str]) -> Configuration | None:
        """One that was not seen, uniform over the legal ones; corrected if hundreds of draws held
        none of those. Nothing when nothing is left, or nothing can be found."""
        def fresh(found: Iterable[Configuration | None]) -> Configuration | None:
            return next((each for each in found if each and text_of(each) not in seen), None)

        def draws() -> list[Configuration]:
            return [{name: chance.choice(values) for name, values in self.values.items()}
                    for _ in range(DRAWS)]

        # The legal ones of a measured space are known; they may be a small part of the grid.
        for _ in range(BATCHES if self.size > 1 and not self.space.legal else 0):
            if found := fresh(legal.configuration
                              for legal in self.space.constraints.check(draws())):
                return found
        if self.size <= ENUMERABLE or self.space.legal:
            left = [each for each in self.everything() if text_of(each) not in seen]
            return chance.choice(left) if left else None
        return fresh(self.corrected(draws()))


class Search:
    """A strategy that repeats nothing. Its kinds say in next() what they want tried."""

    def __init__(self, name: str, space: Space, seed: int):
        self.name, self.space, self.seed = name, space, seed
        self.grid = Grid(space)
        self.seen: set[str] = set()
        self.chance = random.Random(f"{seed} {name}")
        self._noted = 0

    def propose(self, history: History) -> Proposal:
        """What to try next: legal, complete, and not tried before. Raises Exhausted."""
        self.seen.update(text_of(trial.configuration) for trial in history.trials[self._noted:])
        self._noted = len(history.trials)
        proposal = self.next(history)
        self.seen.add(text_of(proposal.configuration))
        return proposal

    def next(self, history: History) -> Proposal:
        """What propose() returns."""
        raise NotImplementedError

    def observe(self, trial: Trial) -> None:
        """The outcome of a proposal, by this strategy or by another."""
        self.seen.add(text_of(trial.configuration))

    def close(self) -> None:
        """Ends what it started."""

    def is_new(self, configuration: Configuration) -> bool:
        """Whether nobody proposed it yet."""
        return text_of(configuration) not in self.seen
