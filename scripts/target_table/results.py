"""What `rooflane roofline --json` says of the classes' problems.

A problem is a shape of a class at a number of threads, with ours and the peers. The class is the
preset of our row, as measuring.py names it. What figures mean is judged in judging.py.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflane_json import Figure, Refused, figure_of, summary_of
from target_table.goals import FP32, InputError
from target_table.sides import Sides

Counts = Callable[[dict[str, Any], str | None], bool]
Row = dict[str, Any]  # a row of the CSV, typed; null where a cell is empty


@dataclass(frozen=True)
class Problem:
    """One shape of a class at one number of threads (0: a device that takes none)."""
    name: str  # of the class
    kernel: str
    shape: str
    threads: int
    math: str  # of ours; of peers too, unless they have a part in fp32 alone
    machine: str  # the CPU, or the device where ours ran on one
    ours: Row
    variants: list[Row]  # all that was measured of it, ours among them
    peers: list[Row]  # third-party libraries that passed, the fastest first
    figures: dict[str, Figure]  # roof in per cent; times as fast as best, or as a peer by its name

    @property
    def text(self) -> str:
        return f"{self.kernel}:{self.shape}"


@dataclass(frozen=True)
class Measured:
    """The problems of all classes, and the geometric means over each."""
    problems: list[Problem]
    means: dict[tuple[str, int], dict[str, Figure]]  # class, threads -> what -> mean


def passed(row: Row) -> bool:
    """Whether the row is correct and timed."""
    return row["status"] == "PASSED" and bool(row["p50_ns"])


def failure(row: Row) -> str:
    """Status and reason of a row that did not pass."""
    return row["status"] + (f": {row['reason']}" if row["reason"] else "")


def _figures(told: dict[str, Any]) -> dict[str, Figure]:
    found = {"best": told["over_best_peer"], "roof": told["roof_pct"], **told["over"]}
    return {what: figure for what, one in found.items() if (figure := figure_of(one))}


def read(program: Path, files: Sequence[str | Path], sides: Sides,
         maths: dict[str, str] | None = None) -> Measured:
    """The problems of CSV files, in the order of their rows, with ours in the math of their class
    (fp32 where `maths` names none). Files of one machine only. Raises InputError."""
    try:
        told = summary_of(program, files)
    except Refused as error:
        raise InputError(str(error)) from error
    rows = told["rows"]
    machine_of = "device" if sides.on_device else "cpu"
    machines = sorted({row[machine_of] for row in rows if row[machine_of]})
    if len(machines) > 1:
        raise InputError("rows of several machines: " + "; ".join(machines))

    def counts(entry: dict[str, Any], preset: str | None) -> bool:
        return (bool(preset) and entry["math"] == (maths or {}).get(preset, FP32)
                and (entry["threads"] is not None or sides.on_device))

    best = _best_of_ours(told, sides, counts)
    problems = []
    for group in told["groups"]:
        mine = [one for one in group["lines"] if one["variant"] in (sides.ours, *sides.others)]
        preset = rows[mine[0]["row"]]["preset"] if mine else None
        chosen = best.get((preset, group["threads"] or 0), sides.ours)
        line = next((one for one in mine if one["variant"] == chosen), None)
        ours = rows[line["row"]] if line else None
        if ours is None or not counts(group, preset):
            continue
        peers = [rows[index] for index in group["peers"]]
        variants = [rows[one["row"]] for one in group["lines"]]
        variants += [peer for peer in peers if peer not in variants]
        problems.append(Problem(
            preset, group["kernel"], group["shape"], group["threads"] or 0, group["math"],
            machines[0] if machines else "", ours, variants, peers,
            _figures(line) if passed(ours) else {}))
    means = {}
    for one in told["presets"]:
        key = one["preset"], one["threads"] or 0
        if one["variant"] == best.get(key, sides.ours) and counts(one, one["preset"]):
            means[key] = _figures(one)
    return Measured(problems, means)


def _best_of_ours(told: dict[str, Any], sides: Sides, counts: Counts) -> dict[tuple[str, int], str]:
    """For each class and number of threads the variant of ours that passed most problems, and among
    those the fastest beside the peers, or beside the roof where there are none."""
    ranks: dict[tuple[str, int], dict[str, tuple[int, float]]] = {}
    for one in told["presets"]:
        if one["variant"] not in (sides.ours, *sides.others) or not counts(one, one["preset"]):
            continue
        key = one["preset"], one["threads"] or 0
        timed = sum(1 for group in told["groups"] for line in group["lines"]
                    if line["variant"] == one["variant"] and (group["threads"] or 0) == key[1]
                    and told["rows"][line["row"]]["preset"] == key[0]
                    and passed(told["rows"][line["row"]]))
        figures = _figures(one)
        figure = figures.get("best") or figures.get("roof")
        ranks.setdefault(key, {})[one["variant"]] = timed, figure.value if figure else 0
    return {key: max(of_class, key=of_class.__getitem__) for key, of_class in ranks.items()}
