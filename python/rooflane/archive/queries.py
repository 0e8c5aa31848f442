"""The answers of `rooflane archive`: the best of each space, runs, statistics, what prune removes.
Functions of runs that the archive holds."""
from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..tuning import Outcome, Trial, text_of
from .records import RunRecord, now, standing

Selection = dict[str, Any]  # values of a line's fields; what is not given selects nothing out
DIED = timedelta(days=1)  # a running run without news for longer has died


@dataclass
class Stored:
    """A run with its number and that of its space."""
    id: int
    space: int
    run: RunRecord

    def line(self) -> dict[str, Any]:
        """What tables and JSON say of it and its space."""
        space, machine = self.run.space, self.run.machine
        return {"space": self.space, "machine": machine["key"] or machine["cpu"],
                **{name: getattr(space, name) for name in
                   ("kernel", "variant", "shape", "math", "threads", "isa", "device")},
                "run": self.id, "strategy": self.run.strategy}

    def is_in(self, selection: Selection) -> bool:
        """Whether it is selected."""
        line = self.line()
        return all(line[name] == value for name, value in selection.items() if value is not None)


@dataclass(frozen=True)
class Attempt:
    """A trial of a run, when there are those of several."""
    run: int
    trial: Trial


def by_space(found: Iterable[Stored]) -> dict[int, list[Attempt]]:
    """All attempts by their spaces, in the order of their runs."""
    spaces: dict[int, list[Attempt]] = defaultdict(list)
    for one in sorted(found, key=lambda each: each.id):
        spaces[one.space] += [Attempt(one.id, trial) for trial in one.run.trials]
    return dict(spaces)


def ranked(of_space: Iterable[Attempt]) -> list[Attempt]:
    """The attempts that stand for a space's correct configurations, the fastest first."""
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for one in of_space:
        groups[text_of(one.trial.configuration)].append(one)
    stand = [standing(group, lambda one: one.trial) for group in groups.values()]
    return sorted((one for one in stand if one.trial.correct),
                  key=lambda one: one.trial.ratio.value)


def best(found: list[Stored], top: int) -> list[dict[str, Any]]:
    """The `top` fastest configurations of each space, and what its latest run with a verdict chose,
    which was measured again in fresh processes."""
    lines = []
    for space, attempts in sorted(by_space(found).items()):
        of_space = [one for one in found if one.space == space]
        verdicts = [one.run.verdict for one in of_space if one.run.verdict]
        default = of_space[0].run.space.default
        for rank, one in enumerate(ranked(attempts)[:top], 1):
            configuration = one.trial.configuration
            lines.append({
                **of_space[0].line(), "run": one.run, "rank": rank, "default": default,
                "configuration": configuration, "is_default": configuration == default,
                "ratio": one.trial.ratio, "samples": one.trial.samples, "time": one.trial.time,
                "evaluations": len(attempts), "verdict": verdicts[-1] if verdicts else None})
    return lines


def runs(found: Iterable[Stored]) -> list[dict[str, Any]]:
    """A line for each run."""
    lines = []
    for one in found:
        run, settings = one.run, one.run.settings
        ratios = [trial.ratio for trial in run.trials if trial.correct]
        lines.append({
            **one.line(), "started": run.started, "finished": run.finished, "state": run.state,
            "seed": settings.get("seed"), "budget": settings.get("budget"),
            "evaluations": len(run.trials), "correct": len(ratios),
            "best": min(ratios, key=lambda ratio: ratio.value, default=None),
            "seconds": sum(trial.cost.total for trial in run.trials), "verdict": run.verdict})
    return lines


def _summary(trials: list[Trial]) -> dict[str, Any]:
    """Figures of some trials. A mean of speed-ups is geometric."""
    speed_ups = [trial.speed_up for trial in trials if trial.correct]
    return {"attempts": len(trials), "correct": len(speed_ups),
            "success_rate": len(speed_ups) / len(trials) if trials else None,
            "mean_speed_up": geometric_mean(speed_ups),
            "best_speed_up": max(speed_ups, default=None),
            "seconds": sum(trial.cost.total for trial in trials)}


def geometric_mean(values: list[float]) -> float | None:
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def statistics(found: list[Stored]) -> dict[str, Any]:
    """Attempts, success rate, outcomes and strategies of runs."""
    trials = [trial for one in found for trial in one.run.trials]
    spaces = {space: attempts for space, attempts in by_space(found).items() if attempts}
    winners = [one.trial.speed_up for attempts in spaces.values() for one in ranked(attempts)[:1]]
    strategies: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        strategies[trial.strategy].append(trial)
    asked = [exchange for one in found for exchange in one.run.exchanges]
    return {
        **_summary(trials), "runs": sum(bool(one.run.trials) for one in found),
        "spaces": len(spaces), "configurations": len({
            (space, text_of(one.trial.configuration))
            for space, attempts in spaces.items() for one in attempts}),
        "mean_speed_up_of_best": geometric_mean(winners),
        "outcomes": {outcome.value: count for outcome, count in
                     Counter(trial.outcome for trial in trials).most_common()},
        "strategies": {name: _summary(of_one) for name, of_one in sorted(strategies.items())},
        "exchanges": {"requests": len(asked), **{
            name: sum(getattr(exchange, name) for exchange in asked)
            for name in ("seconds", "tokens_in", "tokens_out")}}}


def leaving(found: list[Stored], older_than: float | None, keep: int | None, failed_only: bool
            ) -> dict[int, list[int]]:
    """The numbers of the trials that prune removes, by run. A wrong result stays as long as a right
    one of the same configuration does: without it that one would win."""
    before = None if older_than is None else now() - timedelta(days=older_than)
    alive = {one.id for one in found if one.run.state == "running"
             and max([one.run.started, *(trial.time for trial in one.run.trials)]) > now() - DIED}
    gone: dict[int, list[int]] = {one.id: [] for one in found}
    for attempts in by_space(found).values():
        kept = ranked(attempts)[:keep] if keep else []
        out = [one for one in attempts if one.run not in alive and one not in kept
               and (before is None or one.trial.time < before)
               and not (failed_only and one.trial.correct)]
        right = {text_of(one.trial.configuration) for one in attempts
                 if one.trial.correct and one not in out}
        for one in out:
            if (one.trial.outcome is not Outcome.INCORRECT
                    or text_of(one.trial.configuration) not in right):
                gone[one.run].append(one.trial.number)
    return gone
