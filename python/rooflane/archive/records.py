"""The tuner's data as plain dictionaries and back, and what a run is outside a database.

`RunRecord` is what goes from one archive or format to another; store.py keeps it in tables.
"""
from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from ..tuning import (
    Candidate,
    Configuration,
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

MACHINE = {"key": "", "cpu": "", "cores": 0, "isa": "", "caches": [], "device": "", "driver": "",
           "traits": {}}
BUILD = {"commit": "", "dirty": False, "compiler": ""}
STATES = ("running", "finished", "undecided", "interrupted", "failed")


def fingerprint_of(value: Any) -> str:
    """The same for equal JSON values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def whole(given: dict[str, Any], parts: dict[str, Any], what: str) -> dict[str, Any]:
    """A machine or a build with every part there. Raises ValueError on what is none."""
    if unknown := set(given) - set(parts):
        raise ValueError(f"{what}: unknown '{min(unknown)}'; valid: {', '.join(parts)}")
    return {name: given[name] if given.get(name) is not None else missing
            for name, missing in parts.items()}


def machine_fingerprint(machine: dict[str, Any]) -> str:
    """The fingerprint of the facts that decide speed: traits are measured and differ from time to
    time."""
    return fingerprint_of({name: value for name, value in whole(machine, MACHINE, "machine").items()
                           if name != "traits"})


def identity_of(space: Space) -> str:
    """Which space it is on its machine: trials of equal ones may be compared."""
    return fingerprint_of([space.kernel, space.variant, space.shape, space.math, space.threads,
                           space.isa, space.device, [tunable.name for tunable in space.tunables],
                           text_of(space.default), *["cold"] * (space.cache == "cold")])


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


def now() -> datetime:
    """In UTC."""
    return datetime.now(timezone.utc)


def instant_of(text: str) -> datetime:
    """The time that isoformat() or Kernel Tuner wrote; without a zone it is UTC. Raises
    ValueError."""
    read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)


def number_of(value: float | None) -> float | None:
    """An error as both databases and JSON hold it: no number is beyond every bound, as infinity
    is, and infinity is the largest number."""
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
    tunables = tuple(Tunable(one["name"], one["meaning"], one["least"], one["most"],
                             tuple(one["values"]), one.get("selects", False))
                     for one in record["tunables"])
    candidates = tuple(Candidate(dict(one["configuration"]), one.get("predicted_ns"))
                       for one in record.get("candidates", []))
    return Space(record["kernel"], record["variant"], record["shape"], record["math"],
                 record["threads"], record["isa"], record["device"], tunables,
                 dict(record["default"]), candidates, None, dict(record.get("problem", {})),
                 record.get("roof_ns"))


def ratio_of(record: dict[str, float] | None) -> Ratio | None:
    """A ratio out of JSON."""
    return Ratio(record["value"], record["low"], record["high"]) if record else None


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON; `kind` is told besides."""
    record = asdict(verdict)
    for neighbour in record["neighbours"]:
        neighbour["outcome"] = Outcome(neighbour["outcome"]).value
    return {"kind": verdict.kind, **record}


def verdict_of(record: dict[str, Any]) -> Verdict:
    """The inverse."""
    ties = [Finalist(dict(one["configuration"]), Ratio(**one["ratio"]), one["workspace_bytes"],
                     one.get("verdict", "equal")) for one in record["tie_set"]]
    neighbours = [Neighbour(one["shape"], Outcome(one["outcome"]), one["reason"],
                            ratio_of(one["ratio"]), one.get("cache", ""))
                  for one in record["neighbours"]]
    return Verdict(dict(record["chosen"]), Ratio(**record["ratio"]), ties, neighbours,
                   record["exact"], record.get("seconds_more", 0))


def trial_record(trial: Trial, time: datetime | None = None) -> dict[str, Any]:
    """A trial as JSON."""
    record = {**asdict(trial), "outcome": trial.outcome.value, "error": number_of(trial.error)}
    return {**record, "time": time.isoformat()} if time else record


def trial_of(record: dict[str, Any]) -> Trial:
    """The inverse."""
    return Trial(**{**{name: value for name, value in record.items() if name != "time"},
                    "configuration": dict(record["configuration"]),
                    "outcome": Outcome(record["outcome"]), "ratio": ratio_of(record["ratio"]),
                    "cost": Cost(**record["cost"])})


def standing(evaluations: Sequence[Any]) -> Any:
    """Which of several evaluations of one configuration, the oldest first, stands for it: a wrong
    result outweighs all that were right; else the correct one with most samples, the latest of
    equals; else the latest. Each has outcome, ratio and samples."""
    wrong = [one for one in evaluations if one.outcome is Outcome.INCORRECT]
    if wrong:
        return wrong[-1]
    correct = [one for one in evaluations if one.outcome is Outcome.CORRECT and one.ratio]
    if correct:
        return max(reversed(correct), key=lambda one: one.samples)
    return evaluations[-1]


def merged(trials: Iterable[Trial]) -> list[Trial]:
    """One trial for each configuration, in the order in which they were first tried."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(text_of(trial.configuration), []).append(trial)
    return [standing(group) for group in groups.values()]


def tunables_of(configurations: Iterable[Configuration]) -> tuple[Tunable, ...]:
    """What is known of a space's tunables when only configurations are: the values that occur."""
    values: dict[str, set[int]] = {}
    for configuration in configurations:
        for name, value in configuration.items():
            values.setdefault(name, set()).add(value)
    return tuple(Tunable(name, "", min(seen), max(seen), tuple(sorted(seen)))
                 for name, seen in values.items())
