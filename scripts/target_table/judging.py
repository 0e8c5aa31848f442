"""Whether a class meets its goals: from figures and targets to verdicts.

A ratio is a peer's time over ours, above 1 where ours is faster. `best` is, problem by problem, the
fastest peer that passed at the same shape (prepack included) and number of threads.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rooflane_json import Figure
from target_table.goals import Condition, Target, target_for
from target_table.results import Measured, Problem, failure, passed


@dataclass(frozen=True)
class Judged:
    """A condition with the figure it was judged by: of the whole class, or of its worst problem."""
    condition: Condition
    figure: Figure | None

    @property
    def holds(self) -> bool | None:
        """Nothing when there is no figure."""
        return None if self.figure is None else self.figure.value >= self.condition.least

    @property
    def unsure(self) -> bool:
        """Whether the figure's 95 % interval holds the bound."""
        return (self.figure is not None and self.figure.low is not None
                and self.figure.low < self.condition.least <= self.figure.high)


@dataclass(frozen=True)
class Verdict:
    """A class, or one problem of it, at one number of threads."""
    name: str
    threads: int
    problems: list[Problem]
    means: dict[str, Figure]  # over the problems, geometric
    must: list[Judged]
    aim: list[Judged]
    failures: list[str]  # problems that ours did not pass

    def worst(self, what: str) -> Problem | None:
        """The problem with the least figure."""
        return worst(self.problems, what)

    @property
    def met(self) -> str:
        """aim, must or no; `?` behind it: the deciding interval contains the bound. `-`: the class
        has no goal; otherwise the reason why nothing can be said."""
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


def worst(problems: Sequence[Problem], what: str) -> Problem | None:
    """The problem with the least figure; nothing where none has one."""
    known = [problem for problem in problems if what in problem.figures]
    return min(known, key=lambda problem: problem.figures[what].value, default=None)


def _judged(conditions: Sequence[Condition], problems: Sequence[Problem],
            means: dict[str, Figure]) -> list[Judged]:
    judged = []
    for condition in conditions:
        least = worst(problems, condition.what) if condition.each else None
        judged.append(Judged(condition, least.figures[condition.what] if least
                             else means.get(condition.what)))
    return judged


def _verdict(name: str, threads: int, problems: list[Problem], means: dict[str, Figure],
             targets: dict[str, list[Target]], machine: str) -> Verdict:
    target = target_for(targets, name, threads, machine)
    failures = [f"{problem.text} {failure(problem.ours)}" for problem in problems
                if not passed(problem.ours)]
    return Verdict(name, threads, problems, means,
                   _judged(target.must if target else (), problems, means),
                   _judged(target.aim if target else (), problems, means), failures)


def judge(measured: Measured, targets: dict[str, list[Target]], machine: str,
          order: Sequence[str]) -> list[Verdict]:
    """A verdict for each class of `order` and number of threads that has problems."""
    verdicts = []
    for name in order:
        of_class = [problem for problem in measured.problems if problem.name == name]
        for threads in sorted({problem.threads for problem in of_class}):
            verdicts.append(_verdict(
                name, threads, [p for p in of_class if p.threads == threads],
                measured.means.get((name, threads), {}), targets, machine))
    return verdicts


def judge_each(measured: Measured, targets: dict[str, list[Target]], machine: str,
               order: Sequence[str]) -> list[Verdict]:
    """A verdict for each problem, held against the goal of its class, in the order of classes."""
    return [_verdict(name, problem.threads, [problem], problem.figures, targets, machine)
            for name in order for problem in measured.problems if problem.name == name]
