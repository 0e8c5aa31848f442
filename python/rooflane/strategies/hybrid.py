"""The strategy `hybrid`: an optimiser suggests, and an adviser, who sees the optimiser's state, may
replace a share of the suggestions (Hutter et al.: an optimiser with a prior).
"""
from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Protocol

from rooflane.strategies.base import Search
from rooflane.tuning import Configuration, History, Proposal, Trial, text_of


class Adviser(Protocol):
    """Who may replace a suggestion."""

    def advise(self, history: History, suggestion: Configuration, state: str) -> Proposal | None:
        """What to try instead, legal and not tried before; None agrees with the suggestion."""

    def observe(self, trial: Trial) -> None:
        """Every trial's outcome."""

    def close(self) -> None:
        """Ends what it started."""


class Hybrid:
    """`inner` proposes; of a seeded choice of the trials, `share` of them, the adviser is asked."""

    def __init__(self, inner: Search, adviser: Adviser, share: float, seed: int):
        if not 0 <= share <= 1:
            raise ValueError(f"--share {share:g}: from 0 to 1")
        self.name = "hybrid"
        self.inner, self.adviser = inner, adviser
        self._share, self._seed = share, seed

    def propose(self, history: History) -> Proposal:
        """The optimiser's suggestion, or what the adviser puts in its place. Raises Exhausted."""
        suggestion = self.inner.propose(history)
        # By the trial's number: a run that goes on asks for the same ones.
        chance = random.Random(f"{self._seed} hybrid {len(history.trials)}")
        if chance.random() >= self._share:
            return Proposal(suggestion.configuration, self.inner.name, suggestion.note)
        advice = self.adviser.advise(history, suggestion.configuration,
                                     state_of(history, suggestion.configuration))
        if advice is None or history.tried(advice.configuration):
            return Proposal(suggestion.configuration, self.inner.name, suggestion.note)
        self.inner.withdraw(suggestion.configuration)
        return advice

    def observe(self, trial: Trial) -> None:
        """Both learn of it."""
        self.inner.observe(trial)
        self.adviser.observe(trial)

    def close(self) -> None:
        """Ends both."""
        self.inner.close()
        self.adviser.close()


def state_of(history: History, suggestion: Configuration) -> str:
    """What an optimiser knows, as text: its suggestion, the best so far, and per tunable the
    geometric mean speed-up of each value that was tried."""
    lines = [f"next suggestion: {text_of(suggestion)}"]
    if best := history.best:
        lines.append(f"best so far: {best.speed_up:.3f}x {text_of(best.configuration)}")
    for tunable in history.space.tunables:
        logs: dict[int, list[float]] = defaultdict(list)
        for trial in history.trials:
            if trial.correct and tunable.name in trial.configuration:
                logs[trial.configuration[tunable.name]].append(math.log(trial.speed_up))
        if len(logs) > 1:
            means = ", ".join(f"{value}: {math.exp(sum(of) / len(of)):.3f}x ({len(of)})"
                              for value, of in sorted(logs.items()))
            lines.append(f"{tunable.name}: {means}")
    return "\n".join(lines)
