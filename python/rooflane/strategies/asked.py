"""A strategy that asks somebody who may fail: a language model, or the program of --proposer.
Another strategy takes the trials that it has nothing usable for, so that a run always ends."""
from __future__ import annotations

from collections import deque
from typing import Protocol

from rooflane.tuning import History, Proposal, Strategy, Trial


class Asker(Protocol):
    """Who is asked."""
    own: str  # the source of its proposals

    def ask(self, history: History, count: int = 1) -> list[Proposal]:
        """Legal proposals that were not tried; none where it failed."""

    def observe(self, trial: Trial) -> None:
        """What came of a trial."""

    def close(self) -> None:
        """Ends what it started."""


class Asked:
    """Asks for one proposal when there is none left, or `generations` times for `per_generation`
    each. `stand_in` takes the other trials."""

    def __init__(self, name: str, asker: Asker, stand_in: Strategy,
                 generations: int | None = None, per_generation: int = 3):
        if (generations or 1) < 1 or per_generation < 1:
            raise ValueError("generations and per_generation are at least 1")
        self.name, self.asker, self.stand_in = name, asker, stand_in
        self._left = generations or None
        self._count = per_generation if generations else 1
        self._queue: deque[Proposal] = deque()

    def propose(self, history: History) -> Proposal:
        """Its next one, or the stand-in's. Raises Exhausted."""
        while self._queue or self._ask(history):
            proposal = self._queue.popleft()
            if not history.tried(proposal.configuration):
                return proposal
        proposal = self.stand_in.propose(history)
        return Proposal(proposal.configuration, proposal.source or self.stand_in.name,
                        proposal.note)

    def observe(self, trial: Trial) -> None:
        """The stand-in observes every trial too."""
        self.asker.observe(trial)
        self.stand_in.observe(trial)

    def close(self) -> None:
        """Ends both."""
        self.asker.close()
        self.stand_in.close()

    def _ask(self, history: History) -> bool:
        """Whether the queue holds something new."""
        if self._left == 0:
            return False
        found = self.asker.ask(history, self._count)
        if self._left is not None:
            self._left -= bool(found)
        self._queue.extend(Proposal(each.configuration, self.asker.own, each.note)
                           for each in found)
        return bool(found)
