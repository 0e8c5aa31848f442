"""The answers of `rooflane archive`: the best of each space, runs, statistics. Reads no samples."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from ..tuning import Configuration, Outcome, Ratio, configuration_of
from .records import standing
from .schema import ConfigurationRow, EvaluationRow, ExchangeRow, MachineRow, RunRow, SpaceRow


@dataclass(frozen=True)
class Selection:
    """Which runs are meant; what is not given selects nothing out."""
    kernel: str | None = None
    variant: str | None = None
    shape: str | None = None
    machine: str | None = None  # its key
    strategy: str | None = None
    space: int | None = None
    run: int | None = None

    def of(self, statement: Select[Any]) -> Select[Any]:
        """Restricts a statement that joins runs, spaces and machines."""
        for value, column in ((self.kernel, SpaceRow.kernel), (self.variant, SpaceRow.variant),
                              (self.shape, SpaceRow.shape), (self.machine, MachineRow.key),
                              (self.strategy, RunRow.strategy), (self.space, SpaceRow.id),
                              (self.run, RunRow.id)):
            if value is not None:
                statement = statement.where(column == value)
        return statement


@dataclass(frozen=True)
class Evaluation:
    """A trial without its samples."""
    id: int
    run: int
    space: int
    text: str
    outcome: Outcome
    ratio: Ratio | None
    samples: int
    strategy: str
    time: datetime
    seconds: float

    @property
    def correct(self) -> bool:
        """Whether it may win."""
        return self.outcome is Outcome.CORRECT and self.ratio is not None


@dataclass(frozen=True)
class SpaceLine:
    """A space in a table."""
    space: int
    machine: str
    kernel: str
    variant: str
    shape: str
    math: str
    threads: int
    isa: str
    device: str


@dataclass(frozen=True)
class RunLine(SpaceLine):
    """A run in a table. best: its lowest ratio; seconds: what its evaluations cost."""
    run: int
    started: datetime
    finished: datetime | None
    state: str
    strategy: str
    seed: int | None
    budget: int | None
    evaluations: int
    correct: int
    best: Ratio | None
    seconds: float
    verdict: dict[str, Any] | None


@dataclass(frozen=True)
class Best(SpaceLine):
    """One of a space's fastest configurations: the evaluation that stands for it. verdict: what the
    space's latest run with one chose, which was measured again in fresh processes."""
    rank: int
    configuration: Configuration
    is_default: bool
    ratio: Ratio
    samples: int
    run: int
    time: datetime
    evaluations: int  # of the space, by all runs
    verdict: dict[str, Any] | None


def _space_line(space: SpaceRow, machine: MachineRow) -> dict[str, Any]:
    return {"space": space.id, "machine": machine.key or machine.cpu, "kernel": space.kernel,
            "variant": space.variant, "shape": space.shape, "math": space.math,
            "threads": space.threads, "isa": space.isa, "device": space.device}


def evaluations(session: Session, selection: Selection) -> list[Evaluation]:
    """The selected evaluations in the order of their runs."""
    costs = (EvaluationRow.propose_s + EvaluationRow.build_s + EvaluationRow.verify_s
             + EvaluationRow.time_s)
    statement = selection.of(
        select(EvaluationRow.id, EvaluationRow.run_id, RunRow.space_id, ConfigurationRow.text,
               EvaluationRow.outcome, EvaluationRow.ratio, EvaluationRow.ratio_low,
               EvaluationRow.ratio_high, EvaluationRow.samples, EvaluationRow.strategy,
               EvaluationRow.time, costs)
        .join(ConfigurationRow, EvaluationRow.configuration_id == ConfigurationRow.id)
        .join(RunRow, EvaluationRow.run_id == RunRow.id)
        .join(SpaceRow, RunRow.space_id == SpaceRow.id)
        .join(MachineRow, SpaceRow.machine_id == MachineRow.id)
    ).order_by(EvaluationRow.run_id, EvaluationRow.number)
    return [Evaluation(number, run, space, text, Outcome(outcome),
                       None if value is None else Ratio(value, low, high), samples, strategy, at,
                       seconds)
            for (number, run, space, text, outcome, value, low, high, samples, strategy, at,
                 seconds) in session.execute(statement)]


def ranked(of_space: Iterable[Evaluation]) -> list[Evaluation]:
    """The evaluations that stand for a space's correct configurations, the fastest first."""
    groups: dict[str, list[Evaluation]] = {}
    for one in of_space:
        groups.setdefault(one.text, []).append(one)
    stand = [standing(group) for group in groups.values()]
    return sorted((one for one in stand if one.correct), key=lambda one: one.ratio.value)


def by_space(found: Iterable[Evaluation]) -> dict[int, list[Evaluation]]:
    """Evaluations by their spaces."""
    spaces: dict[int, list[Evaluation]] = {}
    for one in found:
        spaces.setdefault(one.space, []).append(one)
    return spaces


def best(session: Session, selection: Selection, top: int) -> list[Best]:
    """The `top` fastest of each space that is selected."""
    lines = []
    for number, found in sorted(by_space(evaluations(session, selection)).items()):
        space = session.get_one(SpaceRow, number)
        line = _space_line(space, session.get_one(MachineRow, space.machine_id))
        verdict = session.scalar(select(RunRow.verdict).where(
            RunRow.space_id == number, RunRow.verdict.is_not(None)).order_by(RunRow.id.desc())
            .limit(1))
        for rank, one in enumerate(ranked(found)[:top], 1):
            configuration = configuration_of(one.text)
            lines.append(Best(**line, rank=rank, configuration=configuration,
                              is_default=configuration == space.default, ratio=one.ratio,
                              samples=one.samples, run=one.run, time=one.time,
                              evaluations=len(found), verdict=verdict))
    return lines


def runs(session: Session, selection: Selection) -> list[RunLine]:
    """The selected runs in the order they began, those without evaluations too."""
    of_run: dict[int, list[Evaluation]] = {}
    for one in evaluations(session, selection):
        of_run.setdefault(one.run, []).append(one)
    lines = []
    statement = selection.of(select(RunRow, SpaceRow, MachineRow)
                             .join(SpaceRow, RunRow.space_id == SpaceRow.id)
                             .join(MachineRow, SpaceRow.machine_id == MachineRow.id))
    for run, space, machine in session.execute(statement.order_by(RunRow.started, RunRow.id)):
        found = of_run.get(run.id, [])
        correct = [one for one in found if one.correct]
        fastest = min((one.ratio for one in correct), key=lambda ratio: ratio.value, default=None)
        lines.append(RunLine(
            **_space_line(space, machine), run=run.id, started=run.started, finished=run.finished,
            state=run.state, strategy=run.strategy, seed=run.seed, budget=run.budget,
            evaluations=len(found), correct=len(correct), best=fastest,
            seconds=sum(one.seconds for one in found), verdict=run.verdict))
    return lines


def _summary(found: list[Evaluation]) -> dict[str, Any]:
    """Figures of some evaluations. A mean of speed-ups is geometric."""
    speed_ups = [1 / one.ratio.value for one in found if one.correct]
    return {"attempts": len(found), "correct": len(speed_ups),
            "success_rate": len(speed_ups) / len(found) if found else None,
            "mean_speed_up": geometric_mean(speed_ups),
            "best_speed_up": max(speed_ups, default=None),
            "seconds": sum(one.seconds for one in found)}


def geometric_mean(values: list[float]) -> float | None:
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def statistics(session: Session, selection: Selection) -> dict[str, Any]:
    """Attempts, success rate, outcomes and strategies of the selected runs."""
    found = evaluations(session, selection)
    spaces = by_space(found)
    winners = [ranked(of_space)[:1] for of_space in spaces.values()]
    numbers = {one.run for one in found}
    asked = session.execute(
        selection.of(select(func.count(ExchangeRow.id), func.sum(ExchangeRow.seconds),
                            func.sum(ExchangeRow.tokens_in), func.sum(ExchangeRow.tokens_out))
                     .join(RunRow, ExchangeRow.run_id == RunRow.id)
                     .join(SpaceRow, RunRow.space_id == SpaceRow.id)
                     .join(MachineRow, SpaceRow.machine_id == MachineRow.id))).one()
    strategies: dict[str, list[Evaluation]] = {}
    for one in found:
        strategies.setdefault(one.strategy, []).append(one)
    return {
        **_summary(found), "runs": len(numbers), "spaces": len(spaces),
        "configurations": len({(one.space, one.text) for one in found}),
        "mean_speed_up_of_best": geometric_mean(
            [1 / one.ratio.value for first in winners for one in first]),
        "outcomes": {outcome.value: count for outcome, count in
                     Counter(one.outcome for one in found).most_common()},
        "strategies": {name: _summary(of_one) for name, of_one in sorted(strategies.items())},
        "exchanges": {name: value or 0 for name, value in
                      zip(("requests", "seconds", "tokens_in", "tokens_out"), asked)},
    }
