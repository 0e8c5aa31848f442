"""What a report is of, and the figures that text and page share."""
from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rooflane.tuning import (
    Configuration,
    Exchange,
    Neighbour,
    Outcome,
    Ratio,
    Space,
    Trial,
    Verdict,
    text_of,
)


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
    # Libraries and peers on the same problem: time over the default's.
    libraries: Mapping[str, Ratio] = field(default_factory=dict)
    sizes: Sequence[Neighbour] = ()  # further ones that the chosen configuration was tried at
    notes: Sequence[str] = ()

    @property
    def best(self) -> Trial | None:
        """The trial that measured fastest; not always what was chosen."""
        correct = [trial for trial in self.trials if trial.correct]
        return min(correct, key=lambda trial: trial.ratio.value) if correct else None

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

    @property
    def chosen_trial(self) -> Trial | None:
        """The search's trial of the chosen configuration."""
        text = text_of(self.chosen)
        return next((trial for trial in self.trials
                     if trial.correct and text_of(trial.configuration) == text), None)

    def bests(self) -> list[tuple[Trial, float]]:
        """Each trial that became the best so far, and the seconds at its end."""
        found: list[tuple[Trial, float]] = []
        elapsed = 0.0
        for trial in self.trials:
            elapsed += trial.cost.total
            if trial.correct and (not found or trial.ratio.value < found[-1][0].ratio.value):
                found.append((trial, elapsed))
        return found

    def all_sizes(self) -> list[Neighbour]:
        """The chosen configuration at its own size, at the neighbours and at further sizes."""
        if not self.verdict:
            return list(self.sizes)
        own = Neighbour(self.space.shape, Outcome.CORRECT, ratio=self.verdict.ratio)
        return [own, *self.verdict.neighbours, *self.sizes]


def times(ratio: Ratio | None) -> str:
    """A speed-up with its interval: "1.20× [1.18, 1.22]"."""
    if ratio is None:
        return ""
    return f"{1 / ratio.value:.3f}× [{1 / ratio.high:.3f}, {1 / ratio.low:.3f}]"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def nanoseconds(ns: float | None) -> str:
    """A time in the unit that suits it."""
    if ns is None:
        return ""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"


def per_cent(share: float) -> str:
    """A share with its sign's place kept."""
    return f"{100 * share:.1f} %"
