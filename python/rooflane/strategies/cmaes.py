"""cmaes: CMA-ES with margin (the package cmaes; Hamano et al., GECCO 2022) over the places of
values in the grid, scaled to [0, 1]; without the margin integers would freeze.

What it minimises is the logarithm of the ratio; what failed counts as the slowest so far, and as
twice the default's time at least. An illegal suggestion is evaluated as the nearest legal
configuration (repair, in the evolutionary literature), and one that is known already is drawn
again. It starts at the best seed (warm start, Nomura et al., AAAI 2021) instead of in the middle of
the grid.
"""
from __future__ import annotations

import math

import numpy as np
from cmaes import CMAwM

from rooflane.strategies.base import Search, changes
from rooflane.tuning import Configuration, Exhausted, History, Proposal, Space, Trial, text_of

TRIES = 16  # suggestions that are known already; then a neighbour of the last one is taken
FAILED = math.log(2)
SIGMA = 0.1  # of the first generation: the warm start's where one source is best


class CmaEs(Search):
    """The package's optimiser as a strategy."""

    def __init__(self, name: str, space: Space, seed: int):
        super().__init__(name, space, seed)
        self._steps = {one.name: 1 / (len(self.grid.values[one.name]) - 1)
                       for one in self.grid.free}
        self._optimiser: CMAwM | None = None  # from the first proposal on
        self._start, self._least = space.default, math.inf  # the best seed
        self._asked: dict[str, np.ndarray] = {}  # by configuration: not observed yet
        self._generation: list[tuple[np.ndarray, float]] = []
        self._slowest = FAILED

    def next(self, history: History) -> Proposal:
        if not self._steps:
            raise Exhausted("there is but one configuration")
        if self._optimiser is None:
            self._optimiser = CMAwM(
                mean=np.array([self.grid.index(name, self._start[name]) * step
                               if name in self._start else 0.0
                               for name, step in self._steps.items()]),
                sigma=SIGMA, bounds=np.array([[0.0, 1.0]] * len(self._steps)),
                steps=np.array(list(self._steps.values())), seed=self.seed)
        for _ in range(TRIES):
            drawn, told = self._optimiser.ask()
            wanted = self._configuration(drawn)
            found = self.space.constraints.nearest([wanted])[0].configuration
            if self.is_new(found):
                self._asked[text_of(found)] = told
                changed = changes(wanted, found)
                return Proposal(found, note=f"corrected: {changed}" if changed else "")
        return self._near(wanted)

    def observe(self, trial: Trial) -> None:
        super().observe(trial)
        value = math.log(trial.ratio.value) if trial.correct else self._slowest
        self._slowest = max(self._slowest, value)
        if self._optimiser is None and trial.correct and value < self._least:
            self._start, self._least = trial.configuration, value
        asked = self._asked.pop(text_of(trial.configuration), None)
        if asked is None:
            return
        self._generation.append((asked, value))
        if len(self._generation) == self._optimiser.population_size:
            self._optimiser.tell(self._generation)
            self._generation = []

    def _configuration(self, drawn: np.ndarray) -> Configuration:
        places = {name: round(place / step)
                  for place, (name, step) in zip(drawn, self._steps.items())}
        return {name: values[places.get(name, 0)] for name, values in self.grid.values.items()}

    def _near(self, wanted: Configuration) -> Proposal:
        """For an optimiser that has settled on what is known."""
        near = [found for found in self.grid.corrected(self.grid.neighbours(wanted))
                if self.is_new(found)]
        found = self.chance.choice(near) if near else self.grid.random(self.chance, self.seen)
        if found is None:
            raise Exhausted("no further configuration was found")
        return Proposal(found, note=f"{self.name} suggests known ones only: "
                                    f"{'a neighbour' if near else 'a random one'}")
