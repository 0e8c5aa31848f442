"""Completely measured spaces: how one is recorded, and how many are kept in one small file.

A record is JSON that a person can read: the fields of a Space, the machine, and one entry per
configuration with outcome, reason, samples (to five digits, wrong by 0.005 % at most) and costs (to
three). The shipped file, spaces.json.xz of bench/spaces, is a compressed list of them. replay.py
searches in them.
"""
from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflane.archive import records
from rooflane.tuning import Configuration, Constraints, Outcome, Space, Trial, text_of

Record = dict[str, Any]

FORMAT = 1
SHIPPED = Path(__file__).resolve().parents[3] / "bench" / "spaces" / "spaces.json.xz"
LIMIT_BYTES = 2_000_000
OUTCOMES = [outcome.value for outcome in Outcome]
HEAD = ("kernel", "variant", "shape", "math", "threads", "isa", "device", "machine", "tunables",
        "default", "candidates", "problem", "roof_ns")


class SpaceError(Exception):
    """A file or a record that is not what it should be; the text says where and why."""


def record(space: Space, machine: dict[str, Any], trials: Sequence[Trial]) -> Record:
    """What `rooflane tune --strategy all --export-space FILE` writes as JSON.

    A configuration with several trials (the default is a seed and one of all) has the samples of
    all correct ones; its costs are those of the first. A parameter that a configuration does not
    read, because of another value, has its least value: in a record all name the same tunables.
    Raises SpaceError.
    """
    read = {name for trial in trials for name in trial.configuration} | set(space.default)
    tunables = [tunable for tunable in space.tunables if tunable.name in read]

    def whole(configuration: Configuration) -> Configuration:
        return {one.name: configuration.get(one.name, one.least) for one in tunables}

    entries: dict[str, dict[str, Any]] = {}
    for trial in trials:
        entry = entries.setdefault(text_of(trial.configuration), {
            "configuration": whole(trial.configuration), "outcome": trial.outcome.value,
            "reason": trial.reason, "ns": [], "default_ns": [],
            "cost": {part: _rounded(getattr(trial.cost, part), 3)
                     for part in ("build", "verify", "time")}})
        if entry["outcome"] != Outcome.CORRECT.value:  # whoever fails once has failed
            continue
        if trial.outcome is Outcome.CORRECT:
            entry["ns"] += [_rounded(ns, 5) for ns in trial.ns]
            entry["default_ns"] += [_rounded(ns, 5) for ns in trial.default_ns]
        else:
            entry.update(outcome=trial.outcome.value, reason=trial.reason, ns=[], default_ns=[])
    made = {"format": FORMAT, **records.plain(replace(space, tunables=tuple(tunables))),
            "machine": machine, "default": whole(space.default),
            "configurations": list(entries.values())}
    for candidate in made["candidates"]:
        candidate["configuration"] = whole(candidate["configuration"])
    check(made)
    return made


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def check(made: Record) -> None:
    """Raises SpaceError where a record cannot be replayed."""
    if not isinstance(made, dict) or made.get("format") != FORMAT:
        raise SpaceError(f"not a recorded space of format {FORMAT}")
    if missing := [name for name in (*HEAD, "configurations") if name not in made]:
        raise SpaceError(f"no field {', '.join(missing)}")
    names = [tunable["name"] for tunable in made["tunables"]]
    has_default = False
    for entry in made["configurations"]:
        text = text_of(entry["configuration"])
        if list(entry["configuration"]) != names:
            raise SpaceError(f"{text}: its tunables are not {', '.join(names)}")
        if entry["outcome"] not in OUTCOMES:
            raise SpaceError(f"{text}: outcome '{entry['outcome']}'")
        samples = [*entry["ns"], *entry["default_ns"]]
        if len(entry["ns"]) != len(entry["default_ns"]):
            raise SpaceError(f"{text}: {len(entry['ns'])} samples beside "
                             f"{len(entry['default_ns'])} of the default")
        if entry["outcome"] == Outcome.CORRECT.value and not samples:
            raise SpaceError(f"{text}: correct, and no samples")
        if not all(math.isfinite(sample) and sample > 0 for sample in samples):
            raise SpaceError(f"{text}: a sample is not a positive number")
        has_default |= (entry["configuration"] == made["default"]
                        and entry["outcome"] == Outcome.CORRECT.value)
    if not has_default:
        raise SpaceError("the default is not among the correct configurations")


def space_of(made: Record, constraints: Constraints) -> Space:
    """The space of a record, with somebody who knows what is legal."""
    return replace(records.made(Space, made), constraints=constraints, legal=tuple(
        dict(entry["configuration"]) for entry in made["configurations"]
        if entry["outcome"] != Outcome.REFUSED.value))


def title_of(made: Record) -> str:
    """A line that names the space, without its machine."""
    return records.made(Space, made).title


def key_of(made: Record) -> str:
    """What no two spaces of a file share."""
    return f"{title_of(made)} on {made['machine']['key']}"


def read(path: Path) -> list[Record]:
    """The records of a compressed file, whatever its name, or the one of a JSON file. Raises
    SpaceError, OSError."""
    try:
        content = path.read_bytes()
        made = (json.loads(lzma.decompress(content))["spaces"]
                if content.startswith(lzma.compress(b"")[:6])  # the magic of .xz
                else [json.loads(content)])
        for one in made:
            check(one)
        return made
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, lzma.LZMAError, EOFError) as error:
        raise SpaceError(f"{path}: not a file of spaces: {error}") from error


def write(path: Path, records: Iterable[Record]) -> int:
    """Compresses records into a file, sorted by their keys; its size in bytes. Raises SpaceError
    when that would be too much for a repository, or two records have one key."""
    ordered = sorted(records, key=key_of)
    for one, other in zip(ordered, ordered[1:]):
        if key_of(one) == key_of(other):
            raise SpaceError(f"twice: {key_of(one)}")
    text = json.dumps({"format": FORMAT, "spaces": ordered}, separators=(",", ":"),
                      allow_nan=False)
    content = lzma.compress(text.encode())
    if len(content) > LIMIT_BYTES:
        raise SpaceError(f"{path}: would be {len(content)} bytes; at most {LIMIT_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
    return len(content)


def add(path: Path, made: Iterable[Record]) -> int:
    """Puts records into a compressed file, in the place of those with the same keys; its new
    size."""
    records = {key_of(one): one for one in (read(path) if path.exists() else [])}
    records.update((key_of(one), one) for one in made)
    return write(path, records.values())
