"""What the formats of other tuners have in common: one space, one result for each configuration,
times in milliseconds.

Those formats rank by time, we by the ratio to the default of the same rounds. `time` is therefore
the ratio times the median of all the default's samples: it ranks as the archive does, whatever the
machine did between rounds. The samples themselves go out as they were taken; so does, where others
do not look, the whole run, from which an import takes what the format has no word for.
"""
from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median, variance
from typing import Any

from ..tuning import Configuration, Cost, Outcome, Ratio, Space, Trial, text_of
from .records import (
    BUILD,
    MACHINE,
    RunRecord,
    identity_of,
    merged,
    now,
    run_of,
    run_record,
    tunables_of,
    whole,
)

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


def to_ms(ns: float) -> float:
    """Nanoseconds as milliseconds."""
    return ns / NS_PER_MS


def from_ms(ms: float) -> float:
    """The inverse, to a femtosecond."""
    return round(float(ms) * NS_PER_MS, 6)


def exported(runs: Sequence[RunRecord]) -> tuple[RunRecord, list[Result], dict[str, Any]]:
    """The runs as one, its results, and the whole for an import. Raises FormatError where they are
    of several spaces."""
    spaces = {identity_of(run.space, run.machine): run for run in runs}
    if len(spaces) != 1:
        titles = "; ".join(f"{run.space.title} on {run.machine['key'] or run.machine['cpu']}"
                           for run in spaces.values())
        raise FormatError(f"this format holds one space, not {len(spaces)}"
                          + (f" ({titles}): --run or --space names one" if titles else ""))
    timed = [(trial, at) for run in runs for trial, at in zip(run.trials, run.times)]
    stand = merged(timed)
    one = replace(runs[-1], trials=[replace(trial, number=number) for number, (trial, _)
                                    in enumerate(stand)],
                  times=[at for _, at in stand], exchanges=[], verdict=None)
    samples = [ns for trial, _ in timed for ns in trial.default_ns]
    reference = median(samples) if samples else NS_PER_MS
    return one, [Result(trial.configuration, trial.outcome,
                        to_ms(trial.ratio.value * reference) if trial.correct else None,
                        list(map(to_ms, trial.ns)), trial.cost, at) for trial, at in stand], \
        run_record(one)


def imported(text: str, found: Sequence[Result], ours: dict[str, Any], source: str,
             names: dict[str, Any]) -> RunRecord:
    """A run with the results that were read; of each configuration the first. In a file that we
    wrote (`ours`) those that we know are ours. Otherwise the first correct result is the
    default."""
    first: dict[str, Result] = {}
    for one in found:
        one.configuration = _whole_numbers(one.configuration)
        first.setdefault(text_of(one.configuration), one)
    if not first:
        raise FormatError("it holds no result")
    results = list(first.values())
    known, times = {}, {}
    if ours:
        run = run_of(ours)
        for trial, at in zip(run.trials, run.times):
            known[_as_written(trial.configuration, results[0])] = trial
            times[trial.number] = at
        default = _as_written(run.space.default, results[0])
        base = first.get(default)
    else:
        base = next((one for one in results if one.outcome is Outcome.CORRECT and one.time), None)
        default = text_of((base or results[0]).configuration)
        space = Space(**names, math="fp32", isa="", default=first[default].configuration,
                      candidates=(), constraints=None,
                      tunables=tunables_of(one.configuration for one in results))
        machine = {"key": space.device, "device": space.device}
        run = RunRecord("", space, whole(machine, MACHINE, "machine"), whole({}, BUILD, "build"),
                        "import", {}, now(), now(), "finished")
    trials = []
    for name, one in sorted(first.items(), key=lambda item: item[0] != default):
        trial = known.get(name) or _trial(one, base)
        trials.append((replace(trial, number=len(trials)),
                       one.at or times.get(trial.number) or now()))
    return replace(run, uid=hashlib.sha256(text.encode()).hexdigest(), strategy="import",
                   settings={"source": source}, started=min(at for _, at in trials),
                   finished=max(at for _, at in trials), state="finished",
                   trials=[trial for trial, _ in trials], times=[at for _, at in trials])


def _as_written(configuration: Configuration, like: Result) -> str:
    """With a zero for each tunable that it does not read, where the format requires all of them."""
    return text_of({name: configuration.get(name, 0) for name in like.configuration})


def _whole_numbers(found: dict[str, Any]) -> Configuration:
    configuration = {}
    for name, value in found.items():
        if isinstance(value, str) or not float(value).is_integer():
            raise FormatError(f"tunable '{name}' is {value!r}; only whole numbers can be kept")
        configuration[name] = int(value)
    return configuration


def _trial(one: Result, base: Result | None) -> Trial:
    """A result of another tuner. Its ratio is not of the same rounds: the interval is that of two
    independent means; without samples it has no width."""
    trial = Trial(0, one.configuration, one.outcome, "import", cost=one.cost,
                  ns=list(map(from_ms, one.times)))
    if one.outcome is not Outcome.CORRECT or not one.time or base is None:
        return trial
    value, factor = one.time / base.time, 1.0
    if one is not base and min(len(one.times), len(base.times)) > 1 and min(
            *one.times, *base.times) > 0:
        spread = sum(variance(samples) / len(samples) / (sum(samples) / len(samples)) ** 2
                     for samples in (one.times, base.times))
        factor = math.exp(Z95 * math.sqrt(spread))
    return replace(trial, ratio=Ratio(value, value / factor, value * factor))
