"""The tuner's data as plain dictionaries and back, and what a run is outside a database:
`RunRecord` goes from one archive or format to another."""
from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

from ..tuning import (
    Candidate,
    Cost,
    Exchange,
    Finalist,
    Neighbour,
    Outcome,
    Ratio,
    Space,
    Trial,
    Tunable,
    Verdict,
    text_of,
)

One = TypeVar("One")
MACHINE = {"key": "", "cpu": "", "cores": 0, "isa": "", "caches": [], "device": "", "driver": "",
           "traits": {}}
BUILD = {"commit": "", "dirty": False, "compiler": ""}
STATES = ("running", "finished", "undecided", "interrupted", "failed")


def whole(given: dict[str, Any], parts: dict[str, Any], what: str) -> dict[str, Any]:
    """A machine or a build with every part there. Raises ValueError on what is none."""
    if unknown := set(given) - set(parts):
        raise ValueError(f"{what}: unknown '{min(unknown)}'; valid: {', '.join(parts)}")
    return {name: given[name] if given.get(name) is not None else missing
            for name, missing in parts.items()}


def identity_of(space: Space, machine: dict[str, Any]) -> str:
    """Which space it is on which machine: trials of equal ones may be compared. Another default or
    another set of tunables is another space. Measured traits, which differ from time to time, are
    no part of a machine."""
    facts = {name: value for name, value in whole(machine, MACHINE, "machine").items()
             if name != "traits"}
    parts = [facts, space.kernel, space.variant, space.shape, space.math, space.threads, space.isa,
             space.device, [tunable.name for tunable in space.tunables], text_of(space.default),
             space.cache]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass
class RunRecord:
    """One run with everything that belongs to it; `times`: when each trial ended."""
    uid: str
    space: Space
    machine: dict[str, Any]
    build: dict[str, Any]
    strategy: str
    settings: dict[str, Any]
    started: datetime
    finished: datetime | None
    state: str
    verdict: Verdict | None = None
    trials: list[Trial] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


def run_record(run: RunRecord) -> dict[str, Any]:
    """A run as JSON."""
    return {"uid": run.uid, "strategy": run.strategy, "settings": run.settings,
            "started": run.started.isoformat(),
            "finished": run.finished.isoformat() if run.finished else None, "state": run.state,
            "machine": run.machine, "build": run.build, "space": space_record(run.space),
            "verdict": verdict_record(run.verdict) if run.verdict else None,
            "evaluations": [trial_record(trial, at) for trial, at in zip(run.trials, run.times)],
            "exchanges": [asdict(exchange) for exchange in run.exchanges]}


def run_of(record: dict[str, Any]) -> RunRecord:
    """The inverse."""
    return RunRecord(
        record["uid"], space_of(record["space"]), record["machine"], record["build"],
        record["strategy"], record["settings"], instant_of(record["started"]),
        instant_of(record["finished"]) if record["finished"] else None, record["state"],
        verdict_of(record["verdict"]) if record["verdict"] else None,
        [trial_of(one) for one in record["evaluations"]],
        [instant_of(one["time"]) for one in record["evaluations"]],
        [Exchange(**one) for one in record["exchanges"]])


def now() -> datetime:
    """In UTC."""
    return datetime.now(timezone.utc)


def instant_of(text: str) -> datetime:
    """The time that isoformat() or Kernel Tuner wrote; without a zone it is UTC. Raises
    ValueError."""
    read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)


def number_of(value: float | None) -> float | None:
    """An error as JSON holds it: no number is beyond every bound, as infinity is, and infinity is
    the largest number."""
    if value is None or math.isfinite(value):
        return value
    return -1.7976931348623157e308 if value < 0 else 1.7976931348623157e308


def space_record(space: Space) -> dict[str, Any]:
    """A space as JSON, without its constraints."""
    record = {name: getattr(space, name) for name in
              ("kernel", "variant", "shape", "math", "threads", "isa", "device", "default",
               "problem", "roof_ns")}
    record["tunables"] = [{**asdict(tunable), "values": list(tunable.values)}
                          for tunable in space.tunables]
    record["candidates"] = [asdict(candidate) for candidate in space.candidates]
    return record


def space_of(record: dict[str, Any]) -> Space:
    """The inverse; such a space cannot be searched."""
    tunables = tuple(Tunable(**{**one, "values": tuple(one["values"])})
                     for one in record["tunables"])
    candidates = tuple(Candidate(**one) for one in record.get("candidates", []))
    return Space(record["kernel"], record["variant"], record["shape"], record["math"],
                 record["threads"], record["isa"], record["device"], tunables,
                 dict(record["default"]), candidates, None, dict(record.get("problem", {})),
                 record.get("roof_ns"))


def ratio_of(record: dict[str, float] | None) -> Ratio | None:
    """A ratio out of JSON."""
    return Ratio(**record) if record else None


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON; `kind` is told besides."""
    return {"kind": verdict.kind, **asdict(verdict)}


def verdict_of(record: dict[str, Any]) -> Verdict:
    """The inverse."""
    return Verdict(
        record["chosen"], Ratio(**record["ratio"]),
        [Finalist(**{**one, "ratio": ratio_of(one["ratio"])}) for one in record["tie_set"]],
        [Neighbour(**{**one, "outcome": Outcome(one["outcome"]), "ratio": ratio_of(one["ratio"])})
         for one in record["neighbours"]], record["exact"], record.get("seconds_more", 0))


def trial_record(trial: Trial, time: datetime) -> dict[str, Any]:
    """A trial as JSON."""
    return {**asdict(trial), "error": number_of(trial.error), "time": time.isoformat()}


def trial_of(record: dict[str, Any]) -> Trial:
    """The inverse."""
    return Trial(**{**{name: value for name, value in record.items() if name != "time"},
                    "outcome": Outcome(record["outcome"]), "ratio": ratio_of(record["ratio"]),
                    "cost": Cost(**record["cost"])})


def standing(evaluations: Sequence[One], trial: Callable[[One], Trial]) -> One:
    """Which of several evaluations of one configuration, the oldest first, stands for it: a wrong
    result outweighs all that were right; else the correct one with most samples, the latest of
    equals; else the latest."""
    wrong = [one for one in evaluations if trial(one).outcome is Outcome.INCORRECT]
    correct = [one for one in evaluations if trial(one).correct]
    if correct and not wrong:
        return max(reversed(correct), key=lambda one: trial(one).samples)
    return (wrong or evaluations)[-1]
