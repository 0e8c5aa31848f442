"""Whether a class meets its goals: from problems and targets to verdicts.

A ratio is a peer's time over ours, above 1 where ours is faster. `best` is, problem by problem, the
fastest peer that passed at the same shape (prepack included) and number of threads.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from target_table import estimates
from target_table.estimates import Estimate
from target_table.goals import Condition, Target, target_for
from target_table.results import Measured, Problem


@dataclass(frozen=True)
class Figures:
    """What one problem came to. Logarithms; nothing where nothing is known."""
    problem: Problem
    best: Measured | None
    ratio: Estimate | None
    roof: Estimate | None

    def of(self, what: str) -> Estimate | None:
        """The figure that a condition speaks of."""
        if what == "roof":
            return self.roof
        if what == "best":
            return self.ratio
        peer = next((p for p in self.problem.peers() if p.variant == what), None)
        return self.problem.ratio(peer) if peer and self.problem.ours.passed else None


@dataclass(frozen=True)
class Judged:
    """A condition with the figure it was judged by: of the whole class, or of its worst problem."""
    condition: Condition
    figure: Estimate | None

    @property
    def holds(self) -> bool | None:
        """Nothing when there is no figure."""
        return None if self.figure is None else math.exp(self.figure.value) >= self.condition.least

    @property
    def unsure(self) -> bool:
        """Whether the figure's 95 % interval holds the bound."""
        interval = self.figure.interval() if self.figure else None
        return bool(interval) and interval[0] < self.condition.least <= interval[1]


@dataclass(frozen=True)
class Verdict:
    """A class at one number of threads."""
    name: str
    threads: int
    figures: list[Figures]
    must: list[Judged]
    aim: list[Judged]
    failures: list[str]  # problems that ours did not pass

    @property
    def ratio(self) -> Estimate | None:
        """Geometric mean over the problems that have a peer."""
        return over(self.figures, lambda figures: figures.ratio)

    @property
    def roof(self) -> Estimate | None:
        return over(self.figures, lambda figures: figures.roof)

    def worst(self, what: str) -> Figures | None:
        """The problem with the least figure."""
        known = [figures for figures in self.figures if figures.of(what)]
        return min(known, key=lambda figures: figures.of(what).value, default=None)

    @property
    def met(self) -> str:
        """aim, must or no; `?` behind it: the interval of what decided holds the bound. `-`: the
        class has no goal; otherwise the reason why nothing can be said."""
        if self.failures:
            return f"no: {self.failures[0]}"
        if not self.must:
            return "-"
        unknown = [judged.condition.what for judged in self.must if judged.holds is None]
        if unknown:
            return f"unknown: no figure for {', '.join(unknown)}"
        failed = [judged for judged in self.must if not judged.holds]
        if failed:
            return "no" + ("?" if all(judged.unsure for judged in failed) else "")
        if self.aim and all(judged.holds for judged in self.aim):
            return "aim" + ("?" if any(j.unsure for j in [*self.aim, *self.must]) else "")
        return "must" + ("?" if any(judged.unsure for judged in self.must) else "")


def over(all_figures: Sequence[Figures],
         figure: Callable[[Figures], Estimate | None]) -> Estimate | None:
    """The mean of the figures that are known."""
    known = [value for value in map(figure, all_figures) if value is not None]
    return estimates.mean(known) if known else None


def _judged(conditions: Sequence[Condition], all_figures: Sequence[Figures]) -> list[Judged]:
    judged = []
    for condition in conditions:
        known = [figure for figure in (figures.of(condition.what) for figures in all_figures)
                 if figure is not None]
        figure = None
        if known:
            figure = (min(known, key=lambda estimate: estimate.value) if condition.each
                      else estimates.mean(known))
        judged.append(Judged(condition, figure))
    return judged


def _figures(problem: Problem) -> Figures:
    peers = problem.peers()
    best = peers[0] if peers else None
    if not problem.ours.passed:
        return Figures(problem, best, None, None)
    return Figures(problem, best, problem.ratio(best) if best else None, problem.roof())


def _verdict(name: str, threads: int, problems: Sequence[Problem],
             targets: dict[str, list[Target]], machine: str) -> Verdict:
    figures = [_figures(problem) for problem in problems]
    target = target_for(targets, name, threads, machine)
    failures = [f"{f.problem.text} {f.problem.ours.failure}" for f in figures
                if not f.problem.ours.passed]
    return Verdict(name, threads, figures, _judged(target.must if target else (), figures),
                   _judged(target.aim if target else (), figures), failures)


def judge(problems: Sequence[Problem], targets: dict[str, list[Target]], machine: str,
          order: Sequence[str]) -> list[Verdict]:
    """A verdict for each class of `order` and number of threads that has problems."""
    verdicts = []
    for name in order:
        of_class = [problem for problem in problems if problem.name == name]
        for threads in sorted({problem.threads for problem in of_class}):
            verdicts.append(_verdict(name, threads, [p for p in of_class if p.threads == threads],
                                     targets, machine))
    return verdicts


def judge_each(problems: Sequence[Problem], targets: dict[str, list[Target]], machine: str,
               order: Sequence[str]) -> list[Verdict]:
    """A verdict for each problem, held against the goal of its class, in the order of classes."""
    return [_verdict(name, problem.threads, [problem], targets, machine)
            for name in order for problem in problems if problem.name == name]
