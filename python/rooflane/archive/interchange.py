"""What the formats of other tuners have in common: one space, one result for each configuration,
times in milliseconds.

Those formats rank by time, we by the ratio to the default of the same rounds. `time` is therefore
the ratio times the median of all the default's samples: it ranks as the archive does, whatever the
machine did between rounds. The samples themselves go out as they were taken.
"""
from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median, variance
from typing import Any

from ..tuning import Configuration, Cost, Outcome, Ratio, Space, Trial, Tunable, text_of
from .records import BUILD, MACHINE, RunRecord, identity_of, now, standing, whole

NS_PER_MS = 1e6
Z95 = 1.96  # half a 95 % interval in standard deviations


class FormatError(Exception):
    """What is read is not of the format; the text says why."""


@dataclass
class Result:
    """A configuration's result as such a format has it; times in milliseconds, costs in seconds."""
    configuration: dict[str, Any]
    outcome: Outcome
    time: float | None = None  # what ranks it
    times: list[float] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    at: datetime | None = None


def exported(runs: Sequence[RunRecord]) -> tuple[RunRecord, list[Result]]:
    """The last of the runs, and the results of all; the default's come first. Raises FormatError
    where they are of several spaces."""
    spaces = {identity_of(run.space, run.machine): run for run in runs}
    if len(spaces) != 1:
        titles = "; ".join(f"{run.space.title} on {run.machine['key'] or run.machine['cpu']}"
                           for run in spaces.values())
        raise FormatError(f"this format holds one space, not {len(spaces)}"
                          + (f" ({titles}): --run or --space names one" if titles else ""))
    groups: dict[str, list[Trial]] = {text_of(runs[-1].space.default): []}
    samples = [NS_PER_MS]
    for run in runs:
        for trial in run.trials:
            groups.setdefault(text_of(trial.configuration), []).append(trial)
            samples += trial.default_ns
    reference = median(samples[1:] or samples)
    stand = [standing(group, lambda one: one) for group in groups.values() if group]
    return runs[-1], [
        Result(trial.configuration, trial.outcome,
               trial.ratio.value * reference / NS_PER_MS if trial.correct else None,
               [ns / NS_PER_MS for ns in trial.ns], trial.cost, trial.time) for trial in stand]


def imported(text: str, found: Sequence[Result], source: str, names: dict[str, Any]) -> RunRecord:
    """A run with the results that were read; of each configuration the first. The first correct one
    is the default."""
    first: dict[str, Result] = {}
    for one in found:
        one.configuration = _whole_numbers(one.configuration)
        first.setdefault(text_of(one.configuration), one)
    if not first:
        raise FormatError("it holds no result")
    results = list(first.values())
    base = next((one for one in results if one.outcome is Outcome.CORRECT and one.time), results[0])
    results.sort(key=lambda one: one is not base)
    values: dict[str, set[int]] = {}
    for one in results:
        for name, value in one.configuration.items():
            values.setdefault(name, set()).add(value)
    space = Space(**names, math="fp32", isa="", default=base.configuration, candidates=(),
                  constraints=None, tunables=tuple(
                      Tunable(name, "", min(seen), max(seen), tuple(sorted(seen)))
                      for name, seen in values.items()))
    machine = whole({"key": space.device, "device": space.device}, MACHINE, "machine")
    trials = [replace(_trial(one, base), number=number, time=one.at or now())
              for number, one in enumerate(results)]
    times = [trial.time for trial in trials]
    return RunRecord(
        hashlib.sha256(text.encode()).hexdigest(), space, machine, whole({}, BUILD, "build"),
        "import", {"source": source}, min(times), max(times), "finished", trials=trials)


def _whole_numbers(found: dict[str, Any]) -> Configuration:
    configuration = {}
    for name, value in found.items():
        if isinstance(value, str) or not float(value).is_integer():
            raise FormatError(f"tunable '{name}' is {value!r}; only whole numbers can be kept")
        configuration[name] = int(value)
    return configuration


def _trial(one: Result, base: Result) -> Trial:
    """A result of another tuner. Its ratio is not of the same rounds: the interval is that of two
    independent means; without samples it has no width."""
    trial = Trial(0, one.configuration, one.outcome, "import", cost=one.cost,
                  ns=[round(float(ms) * NS_PER_MS, 6) for ms in one.times])  # to a femtosecond
    if one.outcome is not Outcome.CORRECT or not one.time or not base.time:
        return trial
    value, factor = one.time / base.time, 1.0
    if one is not base and min(len(one.times), len(base.times)) > 1 and min(
            *one.times, *base.times) > 0:
        spread = sum(variance(samples) / len(samples) / (sum(samples) / len(samples)) ** 2
                     for samples in (one.times, base.times))
        factor = math.exp(Z95 * math.sqrt(spread))
    return replace(trial, ratio=Ratio(value, value / factor, value * factor))
