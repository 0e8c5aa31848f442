"""Completely measured spaces: how one is recorded, and how many are kept in one small file.

A record is JSON that a person can read: the fields of a Space, the machine, and one entry per
configuration with outcome, reason, samples and costs. The shipped file, spaces.json.xz of
bench/spaces, holds records in columns of integers: samples in steps of 1/4096 of the natural
logarithm (wrong by 0.012 % at most, a ratio by 0.024 %), costs in steps of 1/64 (0.8 %). Packing
what was unpacked changes nothing. replay.py searches in them.
"""
from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import median_low
from typing import Any

from rooflane.archive import records
from rooflane.tuning import Configuration, Constraints, Outcome, Space, Trial, text_of

Record = dict[str, Any]

FORMAT = 1
SHIPPED = Path(__file__).resolve().parents[3] / "bench" / "spaces" / "spaces.json.xz"
LIMIT_BYTES = 2_000_000
SAMPLE_STEPS = 4096  # a step is 0.024 %: a tenth of the error of a quiet round's ratio
COST_STEPS = 64
OUTCOMES = [outcome.value for outcome in Outcome]  # stored by position: append only
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
            "cost": {part: getattr(trial.cost, part) for part in ("build", "verify", "time")}})
        if entry["outcome"] != Outcome.CORRECT.value:  # whoever fails once has failed
            continue
        if trial.outcome is Outcome.CORRECT:
            entry["ns"] += trial.ns
            entry["default_ns"] += trial.default_ns
        else:
            entry.update(outcome=trial.outcome.value, reason=trial.reason, ns=[], default_ns=[])
    made = {"format": FORMAT, **records.space_record(replace(space, tunables=tuple(tunables))),
            "machine": machine, "default": whole(space.default),
            "configurations": list(entries.values())}
    for candidate in made["candidates"]:
        candidate["configuration"] = whole(candidate["configuration"])
    check(made)
    return made


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
    return replace(records.space_of(made), constraints=constraints, legal=tuple(
        dict(entry["configuration"]) for entry in made["configurations"]
        if entry["outcome"] != Outcome.REFUSED.value))


def machine_of(made: Record) -> str:
    """A line that names the machine."""
    machine = made["machine"]
    if isinstance(machine, dict):
        for name in ("label", "key", "cpu", "name", "host"):
            if machine.get(name):
                return str(machine[name])
        return json.dumps(machine, sort_keys=True)
    return str(machine)


def title_of(made: Record) -> str:
    """A line that names the space, without its machine."""
    return records.space_of(made).title


def key_of(made: Record) -> str:
    """What no two spaces of a file share."""
    return f"{title_of(made)} on {machine_of(made)}"


def packed(made: Record) -> Record:
    """The record as columns of integers."""
    entries = made["configurations"]
    names = [tunable["name"] for tunable in made["tunables"]]
    reasons = sorted({entry["reason"] for entry in entries})
    correct = [entry for entry in entries if entry["ns"]]
    base = median_low(_steps(sample) for entry in correct for sample in entry["default_ns"])
    levels = [median_low(map(_steps, entry["ns"])) for entry in correct]
    return {
        "format": FORMAT, **{name: made[name] for name in HEAD},
        "default": list(made["default"].values()),
        "candidates": [[*candidate["configuration"].values(), candidate["predicted_ns"]]
                       for candidate in made["candidates"]],
        "values": [[entry["configuration"][name] for entry in entries] for name in names],
        "outcome": [OUTCOMES.index(entry["outcome"]) for entry in entries],
        "reasons": reasons, "reason": [reasons.index(entry["reason"]) for entry in entries],
        "cost": {part: [_cost_steps(entry["cost"][part]) for entry in entries]
                 for part in ("build", "verify", "time")},
        "rounds": [len(entry["ns"]) for entry in entries],
        "base": base, "level": [level - base for level in levels],
        "ns": [_steps(sample) - level for entry, level in zip(correct, levels)
               for sample in entry["ns"]],
        "default_ns": [_steps(sample) - base for entry in correct
                       for sample in entry["default_ns"]]}


def unpacked(columns: Record) -> Record:
    """The inverse of packed, but for the rounding. Raises SpaceError."""
    try:
        return _unpacked(columns)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise SpaceError(f"not a packed space of format {FORMAT}: {error!r}") from error


def _unpacked(columns: Record) -> Record:
    if columns["format"] != FORMAT:
        raise ValueError(f"format {columns['format']}")
    names = [tunable["name"] for tunable in columns["tunables"]]
    levels = iter(columns["level"])
    base, entries = columns["base"], []
    rounds = columns["rounds"]
    for row, (end, count) in enumerate(zip(accumulate(rounds), rounds)):
        part = slice(end - count, end)
        level = base + next(levels) if count else 0
        entries.append({
            "configuration": {name: column[row] for name, column in zip(names, columns["values"])},
            "outcome": OUTCOMES[columns["outcome"][row]],
            "reason": columns["reasons"][columns["reason"][row]],
            "ns": [_sample(level + steps) for steps in columns["ns"][part]],
            "default_ns": [_sample(base + steps) for steps in columns["default_ns"][part]],
            "cost": {name: _cost(column[row]) for name, column in columns["cost"].items()}})
    made = {"format": FORMAT, **{name: columns[name] for name in HEAD},
            "default": dict(zip(names, columns["default"])),
            "candidates": [{"configuration": dict(zip(names, values)), "predicted_ns": values[-1]}
                           for values in columns["candidates"]],
            "configurations": entries}
    check(made)
    return made


def _steps(ns: float) -> int:
    return round(SAMPLE_STEPS * math.log(ns))


def _sample(steps: int) -> float:
    return float(f"{math.exp(steps / SAMPLE_STEPS):.5g}")


def _cost_steps(seconds: float) -> int:
    return round(COST_STEPS * math.log1p(seconds * 1e6))


def _cost(steps: int) -> float:
    return float(f"{math.expm1(steps / COST_STEPS) * 1e-6:.3g}")


def read(path: Path) -> list[Record]:
    """The records of a packed file, whatever its name, or the one of a JSON file. Raises
    SpaceError, OSError."""
    try:
        content = path.read_bytes()
        if content.startswith(lzma.compress(b"")[:6]):  # the magic of .xz
            return [unpacked(columns)
                    for columns in json.loads(lzma.decompress(content))["spaces"]]
        made = json.loads(content)
        check(made)
        return [made]
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, lzma.LZMAError, EOFError) as error:
        raise SpaceError(f"{path}: not a file of spaces: {error}") from error


def write(path: Path, records: Iterable[Record]) -> int:
    """Packs records into a file, sorted by their keys; its size in bytes. Raises SpaceError when
    that would be too much for a repository, or two records have one key."""
    ordered = sorted(records, key=key_of)
    for one, other in zip(ordered, ordered[1:]):
        if key_of(one) == key_of(other):
            raise SpaceError(f"twice: {key_of(one)}")
    text = json.dumps({"format": FORMAT, "spaces": [packed(made) for made in ordered]},
                      separators=(",", ":"), allow_nan=False)
    content = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    if len(content) > LIMIT_BYTES:
        raise SpaceError(f"{path}: would be {len(content)} bytes; at most {LIMIT_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
    return len(content)


def add(path: Path, made: Iterable[Record]) -> int:
    """Puts records into a packed file, in the place of those with the same keys; its new size."""
    records = {key_of(one): one for one in (read(path) if path.exists() else [])}
    records.update((key_of(one), one) for one in made)
    return write(path, records.values())


def unpack(path: Path, folder: Path) -> list[Path]:
    """Writes each record of a packed file as readable JSON; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, made in enumerate(read(path), 1):
        name = re.sub(r"[^a-z0-9]+", "-", title_of(made).lower()).strip("-")
        files.append(folder / f"{number:03}-{name[:100]}.json")
        files[-1].write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return files
