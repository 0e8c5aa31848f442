"""Strategies that learn nothing from what they observe: default, all, random."""
from __future__ import annotations

from rooflane.strategies.base import ENUMERABLE, Search
from rooflane.tuning import Configuration, Exhausted, History, Proposal, text_of

ENOUGH = 300  # configurations of a space that cannot be measured whole


class Default(Search):
    """The model alone: nothing beyond the seeds."""

    def next(self, history: History) -> Proposal:
        raise Exhausted("the seeds are all that it tries")


class Random(Search):
    """Uniform over what is legal."""

    def next(self, history: History) -> Proposal:
        found = self.grid.random(self.chance, self.seen)
        if found is None:
            raise Exhausted("no further configuration was found")
        return Proposal(found)


class All(Search):
    """Every legal configuration, for measuring a space completely; of a space of too many
    combinations the neighbourhood of the model's candidates: what is one step from one of them, and
    what is one step further, until there are ENOUGH."""

    _order: list[Configuration] | None = None

    def next(self, history: History) -> Proposal:
        if self._order is None:
            self._order = self._all()
            self.chance.shuffle(self._order)
        while self._order:
            configuration = self._order.pop()
            if self.is_new(configuration):
                return Proposal(configuration)
        raise Exhausted("everything was tried")

    def _all(self) -> list[Configuration]:
        if self.grid.size <= ENUMERABLE:
            return list(self.grid.everything())
        known = [self.space.default, *(each.configuration for each in self.space.candidates)]
        found = {text_of(configuration): configuration for configuration in known}
        ring = list(found.values())
        while ring and len(found) < ENOUGH:
            steps = [step for each in ring for step in self.grid.neighbours(each)]
            # The last ring is rarely needed as a whole: a seeded share of it.
            self.chance.shuffle(steps)
            ring = []
            for configuration in self.grid.corrected(steps):
                text = text_of(configuration)
                if text not in found and (known or len(found) < ENOUGH):
                    found[text] = configuration
                    ring.append(configuration)
            known = []
        return list(found.values())
