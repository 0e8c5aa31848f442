"""One search: seeds, then the strategy's proposals, each evaluated beside the default.

Every trial is in the archive before the next begins, so that what ends the program costs one
evaluation at most.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rooflane.archive.store import Archive
from rooflane.evaluator import Evaluator, Step
from rooflane.tuning import (
    Configuration,
    Exhausted,
    History,
    Proposal,
    Space,
    Strategy,
    Trial,
)

# Few rounds for what is certainly slow, more only for contenders; in multiples of the best ratio.
HALVING = (Step(3, 1.10), Step(6, 1.03), Step(12, 1.01))
COMPLETE = (Step(9, 2.0), Step(12, 1.05))  # where every configuration's samples are kept


@dataclass
class Limits:
    """When a search ends; None: not by this."""
    trials: int | None = 100  # seeds are among them
    seconds: float | None = None
    speed_up: float | None = None  # reached
    patience: int | None = None  # trials without a new best


@dataclass
class Search:
    """A search on one space, which goes on with the trials that there are."""
    space: Space
    evaluator: Evaluator
    strategy: Strategy
    seeds: list[Configuration]
    limits: Limits
    archive: Archive
    run: int  # the archive's number
    steps: tuple[Step, ...] = HALVING
    trials: list[Trial] = field(default_factory=list)  # of before
    on_trial: Callable[[History], None] = lambda history: None

    def __post_init__(self) -> None:
        self.history = History(self.space)
        self._begin = time.monotonic()
        self.is_exhausted = False  # the strategy knows nothing further
        for trial in self.trials:
            self._observe(trial)

    def execute(self, batch: int | None = None) -> History:
        """Searches until a limit is reached or the strategy knows nothing further; with
        `batch`, for so many trials at most."""
        end = None if batch is None else len(self.history.trials) + batch

        def ended() -> bool:
            return self._ended() or (end is not None and len(self.history.trials) >= end)

        for seed in self.seeds:
            if self.history.tried(seed):
                continue  # before
            if self.history.trials and ended():
                return self.history
            self._try(Proposal(seed), "seed", 0)
        while not ended():
            begin = time.monotonic()
            try:
                proposal = self.strategy.propose(self.history)
            except Exhausted:
                self.is_exhausted = True
                break
            self._try(proposal, self.strategy.name, time.monotonic() - begin)
        return self.history

    def again(self, found: Trial) -> None:
        """Keeps a further measurement of a configuration, in a fresh process."""
        self._record(found, Proposal(found.configuration, note="measured again"),
                     self.strategy.name, 0)

    def _ended(self) -> bool:
        limits, history = self.limits, self.history
        left = limits.trials - len(history.trials) if limits.trials is not None else None
        seconds = (limits.seconds - (time.monotonic() - self._begin)
                   if limits.seconds is not None else None)
        history.trials_left, history.seconds_left = left, seconds
        best = history.best
        return ((left is not None and left <= 0) or (seconds is not None and seconds <= 0)
                or (limits.speed_up is not None and best is not None
                    and best.speed_up >= limits.speed_up)
                or (limits.patience is not None and best is not None
                    and self._next_number() - 1 - best.number >= limits.patience))

    def _best(self) -> float:
        """The ratio of the best so far."""
        best = self.history.best
        return best.ratio.value if best and best.ratio else 1

    def _try(self, proposal: Proposal, strategy: str, seconds: float) -> None:
        found, = self.evaluator.evaluate([proposal.configuration], self.steps, self._best())
        self._record(found, proposal, strategy, seconds)

    def _record(self, trial: Trial, proposal: Proposal, strategy: str, seconds: float) -> None:
        trial.number, trial.strategy = self._next_number(), strategy
        trial.source, trial.note, trial.cost.propose = proposal.source, proposal.note, seconds
        self.archive.record(self.run, trial)
        self._observe(trial)
        self._ended()  # what is left
        self.on_trial(self.history)

    def _next_number(self) -> int:
        """Not how many trials there are: some of a resumed run may have been pruned."""
        trials = self.history.trials
        return trials[-1].number + 1 if trials else 0

    def _observe(self, trial: Trial) -> None:
        self.history.trials.append(trial)
        self.strategy.observe(trial)
