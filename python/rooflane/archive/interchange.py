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
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median, variance
from typing import Any

from ..tuning import Configuration, Outcome, Ratio, Space, Trial
from .records import (
    BUILD,
    MACHINE,
    RunRecord,
    identity_of,
    merged,
    now,
    space_of,
    space_record,
    tunables_of,
    whole,
)

NS_PER_MS = 1e6
Z95 = 1.96  # half a 95 % interval in standard deviations


class FormatError(Exception):
    """What is read is not of the format; the text says why."""


@dataclass
class OneSpace:
    """A space and what was found of each configuration, by all the runs given."""
    space: Space
    machine: dict[str, Any]
    build: dict[str, Any]
    trials: list[Trial]
    times: list[datetime]
    reference_ns: float  # the default's time

    def time_ns(self, trial: Trial) -> float | None:
        """The time that ranks a correct trial."""
        return trial.ratio.value * self.reference_ns if trial.correct and trial.ratio else None


def one_space(runs: Sequence[RunRecord]) -> OneSpace:
    """The runs' space with its merged trials. Raises FormatError where they are of several."""
    spaces = {identity_of(run.space, run.machine): run for run in runs}
    if len(spaces) != 1:
        titles = "; ".join(f"{run.space.title} on {run.machine['key'] or run.machine['cpu']}"
                           for run in spaces.values())
        raise FormatError(f"this format holds one space, not {len(spaces)}"
                          + (f" ({titles}): --run or --space names one" if titles else ""))
    timed = [(trial, at) for run in runs for trial, at in zip(run.trials, run.times)]
    stand, latest = merged(timed), runs[-1]
    samples = [ns for trial, _ in timed for ns in trial.default_ns]
    return OneSpace(latest.space, latest.machine, latest.build, [trial for trial, _ in stand],
                    [at for _, at in stand], median(samples) if samples else NS_PER_MS)


def about(one: OneSpace) -> dict[str, Any]:
    """What only we read: space, machine, build."""
    return {"space": space_record(one.space), "machine": one.machine, "build": one.build}


def to_ms(ns: float) -> float:
    """Nanoseconds as milliseconds."""
    return ns / NS_PER_MS


def from_ms(ms: float) -> float:
    """The inverse, to a femtosecond."""
    return round(float(ms) * NS_PER_MS, 6)


def seconds(ms: float | None) -> float:
    """A cost in milliseconds as seconds."""
    return round(float(ms or 0) / 1000, 12)


def whole_numbers(found: dict[str, Any]) -> Configuration:
    """A configuration of another tuner. Raises FormatError on values that ours cannot have."""
    configuration = {}
    for name, value in found.items():
        if isinstance(value, str) or not float(value).is_integer():
            raise FormatError(f"tunable '{name}' is {value!r}; only whole numbers can be kept")
        configuration[name] = int(value)
    return configuration


def ratio_between(ns: Sequence[float], default_ns: Sequence[float], value: float) -> Ratio:
    """A ratio of times that were not taken in the same rounds: the interval is that of two
    independent means; without samples it has no width."""
    if min(len(ns), len(default_ns)) < 2 or min(*ns, *default_ns) <= 0:
        return Ratio(value, value, value)
    spread = sum(variance(samples) / len(samples) / (sum(samples) / len(samples)) ** 2
                 for samples in (ns, default_ns))
    factor = math.exp(Z95 * math.sqrt(spread))
    return Ratio(value, value / factor, value * factor)


@dataclass
class Found:
    """A result as it was read. time_ns: what ranks it; a trial of ours has its ratio already."""
    trial: Trial
    at: datetime | None
    time_ns: float | None


def imported(text: str, found: Sequence[Found], ours: dict[str, Any], source: str,
             names: dict[str, Any]) -> RunRecord:
    """A run with the trials that were read. Without a default (`ours` marks it in files that we
    wrote) the first correct result takes its place, and ratios are over that one."""
    if not found:
        raise FormatError("it holds no result")
    trials = [one.trial for one in found]
    if ours:
        space = space_of(ours["space"])
    else:
        _rate(found)
        trials = [one.trial for one in found]
        default = next((trial.configuration for trial in trials if trial.correct),
                       trials[0].configuration)
        space = Space(**names, math="fp32", isa="", default=default, candidates=(),
                      tunables=tunables_of(trial.configuration for trial in trials),
                      constraints=None)
    first = [place for place, trial in enumerate(trials) if trial.configuration == space.default]
    order = first[:1] + [place for place in range(len(trials)) if place not in first[:1]]
    times = [found[place].at or now() for place in order]
    machine = ours.get("machine") or {"key": space.device, "device": space.device}
    return RunRecord(
        hashlib.sha256(text.encode()).hexdigest(), space, whole(machine, MACHINE, "machine"),
        whole(ours.get("build") or {}, BUILD, "build"),
        "import", {"source": source}, min(times), max(times), "finished",
        trials=[replace(trials[place], number=number) for number, place in enumerate(order)],
        times=times)


def _rate(found: Sequence[Found]) -> None:
    """Ratios over the first correct result."""
    timed = [one for one in found if one.trial.outcome is Outcome.CORRECT and one.time_ns]
    if not timed:
        return
    default = timed[0]
    for one in timed:
        value = one.time_ns / default.time_ns
        ratio = (Ratio(1, 1, 1) if one is default
                 else ratio_between(one.trial.ns, default.trial.ns, value))
        one.trial = replace(one.trial, ratio=ratio)
