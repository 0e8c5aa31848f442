"""Strategies that learn nothing from what they observe: default, all, random."""
from __future__ import annotations

from rooflane.strategies.base import ENUMERABLE, Search
from rooflane.tuning import Configuration, Exhausted, History, Proposal, text_of


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
    combinations the model's candidates and what is one step from one of them."""

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
        steps = [step for each in known for step in self.grid.neighbours(each)]
        found = [*known, *self.grid.mended(steps)]
        return list({text_of(configuration): configuration for configuration in found}.values())
