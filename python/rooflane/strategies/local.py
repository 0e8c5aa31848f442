"""local: climbs from the best configuration, one tunable one step at a time.

The neighbourhood of the best is tried in a seeded order; what is not legal is corrected, so that a
step of one tunable takes along those that depend on it. The first that is faster becomes the best.
Where one step finds nothing faster two steps are tried, as many as there are single ones, then a
random configuration and what is around it: by single steps only, until it beats the best of all.
All pairs of steps are hundreds in a large space, and a climb that ended badly would take the whole
budget: on twelve made-up spaces 40 evaluations came to within 8.7 % of the optimum in the mean with
all pairs, to within 3.9 % with this limit.

Also the replacement for a language model or a program that failed.
"""
from __future__ import annotations

import random

from rooflane.strategies.base import Search, changes
from rooflane.tuning import Configuration, Exhausted, History, Proposal, Space, Trial, text_of


class Local(Search):
    """Local search with restarts."""

    def __init__(self, name: str, space: Space, seed: int):
        super().__init__(name, space, seed)
        self._best: Trial | None = None
        self._top: Trial | None = None  # of this climb: since the last restart
        self._restarts = 0
        self._around: dict[tuple[str, int], list[Configuration]] = {}

    def observe(self, trial: Trial) -> None:
        super().observe(trial)
        if trial.correct:
            self._best = _faster(self._best, trial)
            self._top = _faster(self._top, trial)

    def next(self, history: History) -> Proposal:
        if centre := self._centre():
            for far in (1, 2) if self._top is self._best else (1,):
                if found := self._untried(centre, far):
                    return Proposal(found, note=changes(centre, found))
        start = self.grid.random(self.chance, self.seen)
        if start is None:
            raise Exhausted("no further configuration was found")
        self._restarts += 1
        self._top = None
        return Proposal(start, note="random restart")

    def _centre(self) -> Configuration | None:
        if self._top is not None:
            return self._top.configuration
        return None if self._restarts else self.space.default

    def _untried(self, centre: Configuration, far: int) -> Configuration | None:
        """The next one around `centre`, in an order that depends on the seed alone."""
        place = text_of(centre), far
        if place not in self._around:
            steps = self.grid.neighbours(centre, far)
            random.Random(f"{self.seed} {place}").shuffle(steps)
            if far > 1:
                steps = steps[:len(self.grid.neighbours(centre))]
            self._around[place] = self.grid.corrected(steps)[::-1]
        around = self._around[place]
        while around:
            configuration = around.pop()
            if self.is_new(configuration):
                return configuration
        return None


def _faster(best: Trial | None, trial: Trial) -> Trial:
    return trial if best is None or trial.ratio.value < best.ratio.value else best
