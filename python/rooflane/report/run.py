"""What a report is of, and the figures that text and page share."""
from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rooflane.tuning import Configuration, Exchange, History, Ratio, Space, Trial, Verdict


@dataclass
class Run:
    """A run of the tuner, ended or interrupted."""
    space: Space
    trials: Sequence[Trial]
    verdict: Verdict | None = None  # none: the run ended before the last comparison
    exchanges: Sequence[Exchange] = ()
    strategy: str = ""
    seed: int | None = None
    machine: str = ""
    program: str = ""  # version and build

    @property
    def best(self) -> Trial | None:
        """The trial that measured fastest; not always what was chosen."""
        return History(self.space, list(self.trials)).best

    @property
    def chosen(self) -> Configuration:
        """What the run recommends."""
        if self.verdict:
            return self.verdict.chosen
        return self.best.configuration if self.best else self.space.default

    @property
    def ratio(self) -> Ratio | None:
        """The ratio of the chosen configuration, by the last comparison where there was one."""
        if self.verdict:
            return self.verdict.ratio
        return self.best.ratio if self.best else None

    @property
    def default_ns(self) -> float | None:
        """The default's time: the median over the rounds of all trials."""
        samples = [sample for trial in self.trials for sample in trial.default_ns]
        return statistics.median(samples) if samples else None

    def bests(self) -> list[tuple[Trial, float]]:
        """Each trial that became the best so far, and the seconds at its end."""
        found: list[tuple[Trial, float]] = []
        elapsed = 0.0
        for trial in self.trials:
            elapsed += trial.cost.total
            if trial.correct and (not found or trial.ratio.value < found[-1][0].ratio.value):
                found.append((trial, elapsed))
        return found


def times(ratio: Ratio | None) -> str:
    """A speed-up with its interval: "1.20× [1.18, 1.22]"."""
    if ratio is None:
        return ""
    return f"{1 / ratio.value:.3f}× [{1 / ratio.high:.3f}, {1 / ratio.low:.3f}]"


def nanoseconds(ns: float | None) -> str:
    """A time in the unit that suits it."""
    if ns is None:
        return ""
    return next(f"{ns / scale:.4g} {unit}" for unit, scale in
                (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1)) if ns >= scale or scale == 1)


def per_cent(share: float) -> str:
    """A share with its sign's place kept."""
    return f"{100 * share:.1f} %"
