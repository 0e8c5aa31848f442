"""Reads result files for the report: rows, ceilings, samples. Standard library only, no drawing."""
from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, str]
NEEDED = ("kernel", "variant", "shape", "status")


class InputError(Exception):
    """A file that cannot be used; the text is one line and names it."""


@dataclass
class Ceiling:
    """A roof: `kind` is fma (GFLOP/s) or bandwidth (GB/s); `place` is what has it. `whole`: taken
    from the measured curves, not from the points of them that rows hold."""

    kind: str
    name: str
    place: str
    value: float
    whole: bool


@dataclass
class Machine:
    """All runs of one machine: files of one folder with the same CPU."""

    label: str
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    samples: list[tuple[Row, dict[str, Any]]] = field(default_factory=list)
    contexts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def number(row: Row, column: str) -> float | None:
    """The finite number in a cell, or nothing."""
    try:
        value = float(row.get(column) or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def where(row: Row) -> str:
    """Threads of a CPU row, the device of others."""
    threads = row.get("threads")
    if not threads:
        return row.get("device") or "no threads told"
    return f"{threads} thread" + ("" if threads == "1" else "s")


def place(threads: str, device: str) -> str:
    """What has a ceiling: the CPU at a number of threads, a device, or a device at threads."""
    at = where({"threads": threads, "device": device})
    return f"{device}, {at}" if device and threads else at


def is_peer(row: Row) -> bool:
    """Whether the row is somebody else's library, as that library is meant to be used."""
    return bool(row.get("library")) and "@" not in row["variant"]


def is_rung(row: Row) -> bool:
    """Whether the row is a rung of its variant's ladder, not the variant itself."""
    return re.fullmatch(r"step=-?\d+", row.get("tuning") or "") is not None


def _table(path: Path) -> tuple[list[str], list[Row]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restkey="(beyond the header)", restval="")
            rows = [{k: v if isinstance(v, str) else ", ".join(v) for k, v in row.items()}
                    for row in reader]
            return list(reader.fieldnames or []), rows
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: {reason}") from error


def plateau_bandwidths(curve: dict[str, Any]) -> list[tuple[str, float]]:
    """(label, GB/s) per plateau: best copy or read inside; of the last one, its largest point."""
    found, smallest = [], 0.0
    for index, plateau in enumerate(curve["plateaus"]):
        largest = plateau["largest_footprint_bytes"]
        inside = [p for p in curve["points"] if smallest < p["footprint_bytes"] <= largest]
        if index == len(curve["plateaus"]) - 1:
            inside = inside[-1:]
        if inside:
            best = max(max(p["copy_gb_s"], p["read_gb_s"]) for p in inside)
            found.append((plateau["label"], best))
        smallest = largest
    return found


def peak_name(isa: str | None, math_used: str | None) -> str:
    """Of a peak: its ISA target, and its math where that has one of its own (3xtf32: tensor
    cores)."""
    return " ".join(filter(None, (isa, math_used if math_used != "fp32" else ""))) or "FMA"


def _from_json(context: dict[str, Any]) -> list[Ceiling]:
    def at(entry: dict[str, Any]) -> str:
        return place(str(entry.get("threads") or ""), entry["device"])

    measured = context.get("ceilings") or {}
    found = [Ceiling("fma", peak_name(f["isa"], f.get("math")), at(f), f["gflops"], True)
             for f in measured.get("fma", [])]
    for curve in measured.get("bandwidth", []):
        found += [Ceiling("bandwidth", label, at(curve), value, True)
                  for label, value in plateau_bandwidths(curve)]
    return found


def _from_rows(rows: list[Row]) -> list[Ceiling]:
    best: dict[tuple[str, str, str], tuple[float, float]] = {}
    for row in rows:
        # Other rows than those of an ISA target are held against the machine's best.
        isa = row.get("isa") if row.get("isa") != "baseline" else ""
        for kind, column, name in (("fma", "peak_gflops", peak_name(isa, row.get("math"))),
                                   ("bandwidth", "peak_gb_s", row.get("roof_level") or "memory")):
            value = number(row, column)
            if value and value > 0:
                key = kind, name, place(row.get("threads", ""), row.get("device", ""))
                # As in plateau_bandwidths: just past the last cache memory still looks fast.
                footprint = (number(row, "bytes") or 0.0) if name == "memory" else 0.0
                best[key] = max(best.get(key, (0.0, 0.0)), (footprint, value))
    return [Ceiling(*key, value, False) for key, (_, value) in best.items()]


def _keep(ceilings: list[Ceiling], new: Ceiling) -> None:
    """Adds a ceiling; of several runs' the better one stays, but a whole one in any case."""
    for index, old in enumerate(ceilings):
        if (old.kind, old.name, old.place) == (new.kind, new.name, new.place):
            if (new.whole, new.value) > (old.whole, old.value):
                ceilings[index] = new
            return
    ceilings.append(new)


def _read(name: str, machines: dict[tuple[str, str], Machine]) -> None:
    path = Path(name)
    columns, rows = _table(path)
    if missing := [column for column in NEEDED if column not in columns]:
        raise InputError(f"{path}: no column {missing[0]}: not a CSV of `rooflane bench`")
    cpu = next((row["cpu"] for row in rows if row.get("cpu")), "unknown CPU")
    machine = machines.setdefault((str(path.resolve().parent), cpu), Machine(cpu))
    for column in [*columns, *(c for row in rows for c in row)]:
        if column not in machine.columns:
            machine.columns.append(column)
    machine.rows += [row for row in rows if not is_rung(row)]
    if rungs := sum(map(is_rung, rows)):
        machine.notes.append(f"{path.name}: {rungs} rows of ladders are left out; "
                             f"`rooflane roofline {path.name}` prints them")

    beside = path.with_suffix(".json")
    ceilings: list[Ceiling] = []
    if beside.exists():
        try:
            context = json.loads(beside.read_text(encoding="utf-8"))["context"]
            ceilings = _from_json(context)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{beside}: not a JSON of `rooflane bench` ({error!r})") from error
        machine.contexts.append((path.name, context))
    else:
        machine.notes.append(f"{path.name}: no {beside.name} beside it; its ceilings are known "
                             "at its rows only")
    for ceiling in ceilings or _from_rows(rows):
        _keep(machine.ceilings, ceiling)

    beside = Path(f"{path}.samples.csv")
    if not beside.exists():
        machine.notes.append(f"{path.name}: no {beside.name} beside it; no distributions")
        return
    for sample in _table(beside)[1]:
        index, ns = number(sample, "row"), number(sample, "ns")
        if index is None or ns is None or not 0 <= index < len(rows):
            continue
        if is_rung(rows[int(index)]):
            continue
        machine.samples.append((rows[int(index)], {
            "ns": ns, "round": number(sample, "round") or 0.0,
            "launch": number(sample, "launch") or 0.0,
            "probe_ns": number(sample, "probe_ns") or 0.0,
            "disturbance": sample.get("disturbance", "")}))


def read_all(names: list[str]) -> list[Machine]:
    """The machines of all files, in the order of the arguments. Raises InputError."""
    machines: dict[tuple[str, str], Machine] = {}
    for name in names:
        _read(name, machines)
    labels = [machine.label for machine in machines.values()]
    for (folder, _), machine in machines.items():
        if labels.count(machine.label) > 1:
            machine.label += f" ({Path(folder).name})"
    return list(machines.values())
