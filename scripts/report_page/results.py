"""What the report knows of result files: rows, groups and classes as `rooflane roofline --json` has
them, ceilings and context from the JSON of a run, samples. Standard library only, no drawing, no
statistics.
"""
from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflane_json import Figure, Refused, figure_of, summary_of

TIMED = ("PASSED", "INACCURATE")  # statuses of rows with a speed that counts

Row = dict[str, Any]  # a row's cells, numbers as such; "" where a cell is empty; threads are text


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
class Line:
    """A variant in a group."""

    row: Row
    verdict: str  # winner, tie or none
    over_scalar: Figure | None
    over_best_peer: Figure | None


@dataclass
class Group:
    """One problem at one thread count: its rows that may win, fastest first."""

    threads: str
    size: str
    fastest: Row | None
    best_peer: Row | None
    lines: list[Line]


@dataclass
class SizeClass:
    """The problems of one kernel and size at one place, and what to use for them."""

    told: dict[str, Any]  # as the program prints it
    over_next: Figure | None
    over_best_peer: Figure | None
    roof: Figure | None

    @property
    def setting(self) -> str:
        """The kernel, with cache mode and math where those are not the usual ones."""
        return " ".join([self.told["kernel"], *unusual(self.told)])

    @property
    def size(self) -> str:
        return self.told["size"] or "all"

    @property
    def threads(self) -> str:
        return str(self.told["threads"] or "")

    @property
    def where(self) -> str:
        return where({"threads": self.threads, "device": "device"})

    @property
    def wins(self) -> str:
        """In how many problems the variant to use is fastest."""
        tied = f", {self.told['ties']} tied" if self.told["ties"] else ""
        still = f", {self.told['undecided']} open" if self.told["undecided"] else ""
        return f"{self.told['wins']} of {self.told['problems']}{tied}{still}"


@dataclass
class Machine:
    """All runs of one machine: files of one folder with the same CPU."""

    label: str
    rows: list[Row] = field(default_factory=list)  # without the rungs of ladders
    groups: list[Group] = field(default_factory=list)
    classes: list[SizeClass] = field(default_factory=list)
    kernels: list[SizeClass] = field(default_factory=list)  # over all sizes
    principle: str = ""  # what sizes are
    families: dict[str, dict[str, str]] = field(default_factory=dict)  # kernel -> shape -> family
    devices: list[dict[str, Any]] = field(default_factory=list)  # beside the CPU; cpu_row is a Row
    ceilings: list[Ceiling] = field(default_factory=list)
    samples: list[tuple[Row, dict[str, Any]]] = field(default_factory=list)
    contexts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def columns(self) -> list[str]:
        """The columns in which some row has something."""
        known = dict.fromkeys(column for row in self.rows for column in row)
        return [column for column in known if any(row[column] != "" for row in self.rows)]


def number(row: Row, column: str) -> float | None:
    """The finite number in a cell, or nothing."""
    value = row.get(column)
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def unusual(of: dict[str, Any]) -> list[str]:
    """Cache mode and math, where those are not warm and fp32."""
    return [value for value, usual in ((of.get("cache"), "warm"), (of.get("math"), "fp32"))
            if value and value != usual]


def problem_name(row: Row) -> str:
    """Kernel and shape, with what is unusual."""
    return " ".join([f"{row['kernel']}:{row['shape']}", *unusual(row)])


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


def _samples(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error


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
    """The name of a peak: its ISA target, and its math where that has one of its own (3xtf32:
    tensor cores)."""
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
                key = kind, name, place(row["threads"], row["device"])
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


def _typed(told: dict[str, Any]) -> Row:
    row = {name: "" if value is None else value for name, value in told.items()}
    row["threads"] = str(row["threads"])
    return row


def _read_beside(path: Path, rows: list[Row], kept: set[int], machine: Machine) -> None:
    """Context, ceilings and samples of the one file with the rows `rows`."""
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
    samples = Path(f"{path}.samples.csv")
    if not samples.exists():
        machine.notes.append(f"{path.name}: no {samples.name} beside it; no distributions")
        return
    for sample in _samples(samples):
        if (index := int(sample["row"])) in kept:
            machine.samples.append((rows[index], {
                **{name: float(sample[name] or 0) for name in ("ns", "round", "launch")},
                "disturbance": sample.get("disturbance", "")}))


def _group(told: dict[str, Any], rows: list[Row]) -> Group:
    lines = [Line(rows[line["row"]], line["verdict"], figure_of(line["over_scalar"]),
                  figure_of(line["over_best_peer"]))
             for line in told["lines"]
             if rows[line["row"]]["status"] in TIMED and number(rows[line["row"]], "p50_ns")]

    def row_of(index: int | None) -> Row | None:
        return None if index is None else rows[index]

    return Group(str(told["threads"] or ""), told["size"], row_of(told["fastest"]),
                 row_of(next(iter(told["peers"]), None)), lines)


def _classes(told: list[dict[str, Any]]) -> list[SizeClass]:
    return [SizeClass(one, figure_of(one["over_next"]), figure_of(one["over_best_peer"]),
                      figure_of(one["roof_pct"])) for one in told]


def _read_folder(program: Path, paths: Sequence[Path], options: Sequence[str]) -> list[Machine]:
    """The machines of the files of one folder."""
    try:
        told = summary_of(program, paths, *options)
    except Refused as error:
        if error.status == 3:
            raise
        raise InputError(str(error)) from error
    rows = [_typed(row) for row in told["rows"]]
    rungs = set(told["rungs"])
    machines: dict[str, Machine] = {}
    first = 0
    for path, count in zip(paths, (file["rows"] for file in told["files"])):
        own = rows[first:first + count]
        kept = {i for i in range(count) if first + i not in rungs}
        first += count
        cpu = next((row["cpu"] for row in own if row["cpu"]), "")
        machine = machines.setdefault(cpu, Machine(cpu or "unknown CPU"))
        machine.rows += [own[i] for i in sorted(kept)]
        if left := count - len(kept):
            machine.notes.append(f"{path.name}: {left} rows of ladders are left out; "
                                 f"`rooflane roofline {path.name}` prints them")
        _read_beside(path, own, kept, machine)
    for cpu, machine in machines.items():
        def of_machine(entries: list[dict[str, Any]], cpu: str = cpu) -> list[dict[str, Any]]:
            return [entry for entry in entries if entry["cpu"] == cpu]

        machine.principle = told["principle"]
        machine.groups = [_group(group, rows) for group in of_machine(told["groups"])]
        machine.classes = _classes(of_machine(told["classes"]))
        machine.kernels = _classes(of_machine(told["kernels"]))
        for device in of_machine(told["devices"]):
            for point in device["points"]:
                point["cpu_row"] = rows[point["cpu_row"]]
            machine.devices.append(device)
        for family in told["families"]:
            known = machine.families.setdefault(family["kernel"], {})
            known.update(dict.fromkeys(family["shapes"], family["family"]))
    return list(machines.values())


def read_all(program: Path, names: Sequence[str | Path], *options: str) -> list[Machine]:
    """The machines of all files, in the order of the arguments; `options` are of `rooflane
    roofline`. Raises InputError; Refused where the program cannot be run."""
    # A pattern such as mine-*.csv also names samples, which are read beside their rows, and phases.
    paths = [Path(name) for name in names
             if not str(name).endswith((".samples.csv", ".phases.csv"))]
    folders: dict[Path, list[Path]] = {}
    for path in paths or map(Path, names):
        folders.setdefault(path.resolve().parent, []).append(path)
    machines = [(folder, machine) for folder, paths in folders.items()
                for machine in _read_folder(program, paths, options)]
    labels = [machine.label for _, machine in machines]
    for folder, machine in machines:
        if labels.count(machine.label) > 1:
            machine.label += f" ({folder.name})"
    return [machine for _, machine in machines]
