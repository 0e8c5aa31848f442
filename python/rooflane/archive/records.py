"""The tuner's data as plain dictionaries and back, and what a run is outside a database:
`RunRecord` goes from one archive or format to another."""
from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ..tuning import Exchange, Outcome, Space, Trial, Verdict, text_of

One = TypeVar("One")
MACHINE = {"key": "", "cpu": "", "cores": 0, "isa": "", "caches": [], "device": "", "driver": "",
           "traits": {}}
BUILD = {"commit": "", "dirty": False, "compiler": ""}
UNKEPT = ("constraints", "legal", "prediction_error")  # of a space
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
    """One run with everything that belongs to it."""
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
    exchanges: list[Exchange] = field(default_factory=list)


def plain(one: Any) -> Any:
    """As JSON holds it, without what only a search knows of a space; a verdict has its kind
    besides."""
    if is_dataclass(one):
        kind = {"kind": one.kind} if isinstance(one, Verdict) else {}
        return kind | {part.name: plain(getattr(one, part.name)) for part in fields(one)
                       if part.name not in UNKEPT}
    if isinstance(one, dict):
        return {name: plain(value) for name, value in one.items()}
    if isinstance(one, list | tuple):
        return [plain(value) for value in one]
    return one.isoformat() if isinstance(one, datetime) else one


def made(kind: Any, told: Any) -> Any:
    """The inverse of plain(), by the types of fields; what is missing has its default."""
    if told is None:
        return None
    if is_dataclass(kind):
        types = _types(kind)
        empty = {"constraints": None, "candidates": []} if kind is Space else {}
        return kind(**{name: made(types[name], value) for name, value in (empty | told).items()
                       if name in types})
    inner = get_args(kind)
    if isinstance(kind, UnionType):
        return made(inner[0], told)
    if get_origin(kind) in (list, tuple):  # samples are many
        return get_origin(kind)(told if inner[0] in (float, int)
                                else (made(inner[0], one) for one in told))
    if kind is datetime:
        return instant_of(told)
    return kind(told) if isinstance(kind, type) and issubclass(kind, Enum) else told


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


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


def standing(evaluations: Sequence[One], trial: Callable[[One], Trial]) -> One:
    """Which of several evaluations of one configuration, the oldest first, stands for it: a wrong
    result outweighs all that were right; else the correct one with most samples, the latest of
    equals; else the latest."""
    wrong = [one for one in evaluations if trial(one).outcome is Outcome.INCORRECT]
    correct = [one for one in evaluations if trial(one).correct]
    if correct and not wrong:
        return max(reversed(correct), key=lambda one: trial(one).samples)
    return (wrong or evaluations)[-1]
