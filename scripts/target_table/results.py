"""Rows and samples of `rooflane bench --csv`, put together by problem.

A problem is a shape of a class at a number of threads: ours and the peers' rows of it. The class is
the row's preset, as measuring.py names it. What figures mean is judged in judging.py.
"""
from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from target_table.estimates import Estimate, difference, from_interval, over_launches
from target_table.goals import FP32, InputError
from target_table.sides import CPU, Sides

# A launch keeps its undisturbed rounds when there are as many as this, else all of them, as in
# `rooflane compare`.
LEAST_UNDISTURBED = 3

Round = tuple[int, str, str, str]  # file, launch, round, probe: of other groups the probe differs


@dataclass
class Measured:
    """All rows of one variant of a problem, of one file or several."""
    variant: str
    rows: list[dict[str, str]] = field(default_factory=list)
    # Round -> nanoseconds, and whether something interfered.
    rounds: dict[Round, tuple[float, bool]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every row is correct and timed."""
        return all(row["status"] == "PASSED" and row["p50_ns"] for row in self.rows)

    @property
    def failure(self) -> str:
        """Status and reason of the first row that did not pass."""
        row = next((row for row in self.rows if row["status"] != "PASSED"), self.rows[0])
        return row["status"] + (f": {row['reason']}" if row["reason"] else "")

    @property
    def p50_ns(self) -> float:
        return statistics.median(float(row["p50_ns"]) for row in self.rows)

    def median(self, seed: str) -> Estimate:
        """The logarithm of the time in ns, from the rounds of this variant alone."""
        by_launch: dict[tuple[int, str], list[tuple[float, bool]]] = defaultdict(list)
        for key, (ns, disturbed) in self.rounds.items():
            by_launch[key[:2]].append((math.log(ns), disturbed))
        launches = _calm(by_launch)
        return over_launches(launches, seed) if launches else Estimate(math.log(self.p50_ns))

    def add_sample(self, file: int, sample: dict[str, str]) -> None:
        """A round that was repeated has a disturbed sample and the one that replaces it."""
        key = (file, sample["launch"], sample["round"], sample["probe_ns"])
        if key not in self.rounds or self.rounds[key][1]:
            self.rounds[key] = float(sample["ns"]), bool(sample.get("disturbance"))


def _calm(by_launch: dict[tuple[int, str], list[tuple[float, bool]]]) -> list[list[float]]:
    """The undisturbed values of each launch, or all of it where those are few."""
    launches = []
    for rounds in by_launch.values():
        calm = [value for value, disturbed in rounds if not disturbed]
        launches.append(calm if len(calm) >= LEAST_UNDISTURBED else [v for v, _ in rounds])
    return launches


@dataclass
class Problem:
    """One shape of a class at one number of threads (0: a device that takes none)."""
    name: str  # of the class
    kernel: str
    shape: str
    threads: int
    own: str  # name of our variant
    math: str = FP32  # of ours; peers are strict float32
    machine: str = ""  # the CPU, or the device where ours ran on one
    variants: dict[str, Measured] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.kernel}:{self.shape}"

    @property
    def ours(self) -> Measured:
        return self.variants[self.own]

    def peers(self) -> list[Measured]:
        """Other people's libraries that passed, the fastest first. Variants of other builds of
        ours (hwy@old) and ours without a library (scalar) are none."""
        found = [measured for measured in self.variants.values()
                 if measured.passed and measured.rows[0]["library"] and "@" not in measured.variant]
        return sorted(found, key=lambda measured: measured.p50_ns)

    def ratio(self, peer: Measured) -> Estimate:
        """The logarithm of how many times as fast as the peer ours is, from the rounds in which
        both have a sample; from those of each by itself where there is none."""
        by_launch: dict[tuple[int, str], list[tuple[float, bool]]] = defaultdict(list)
        for key, (ns, disturbed) in self.ours.rounds.items():
            if key in peer.rounds:
                of_peer, also_disturbed = peer.rounds[key]
                by_launch[key[:2]].append((math.log(of_peer / ns), disturbed or also_disturbed))
        seed = f"{self.text} {self.threads} {peer.variant}"
        launches = _calm(by_launch)
        if launches:
            return over_launches(launches, seed)
        return difference(peer.median(seed), self.ours.median(f"{seed} {self.own}"))

    def roof(self) -> Estimate | None:
        """The logarithm of the per cent of the roof that ours reached."""
        figures = [[float(row[column]) if row[column] else None
                    for column in ("roof_pct", "roof_pct_lo", "roof_pct_hi")]
                   for row in self.ours.rows if row["roof_pct"]]
        if not figures:
            return None
        figures.sort(key=lambda row: row[0])
        return from_interval(*figures[len(figures) // 2])


def _table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read(paths: Iterable[str | Path], sides: Sides = CPU,
         maths: dict[str, str] | None = None) -> list[Problem]:
    """The problems of CSV files, in the order of their rows, with ours in the math of their class
    (fp32 where `maths` names none). Files of one machine only; launches of several files count as
    launches. Raises InputError."""
    problems: dict[tuple[str, str, str, str], Problem] = {}
    machines: set[str] = set()
    for file, path in enumerate(map(Path, paths)):
        rows = _table(path)
        owners: list[Measured | None] = []
        for row in rows:
            if not {"preset", "shape", "variant", "status", "p50_ns", "roof_pct"} <= row.keys():
                raise InputError(f"{path}: not a file of `rooflane bench --csv`")
            owners.append(None)
            machine = row.get("device", "") if sides.on_device else row["cpu"]
            machines |= {machine} - {""}
            if (not row["preset"] or row["tuning"].startswith("step=")
                    or not (row["threads"] or sides.on_device)):
                continue
            math_of_ours = (maths or {}).get(row["preset"], FP32)
            is_ours = row["variant"] == sides.ours
            key = (row["preset"], row["kernel"], row["shape"], row["threads"])
            problem = problems.setdefault(
                key, Problem(*key[:3], int(key[3] or 0), sides.ours, math_of_ours))
            if row.get("math", FP32) != (math_of_ours if is_ours else FP32):
                continue
            problem.machine = problem.machine or machine
            measured = problem.variants.setdefault(row["variant"], Measured(row["variant"]))
            measured.rows.append(row)
            owners[-1] = measured
        samples = Path(f"{path}.samples.csv")
        for sample in _table(samples) if samples.exists() else []:
            # Samples of a group that never ended have no row.
            owner = owners[int(sample["row"])] if int(sample["row"]) < len(owners) else None
            if owner is not None and float(sample["ns"]) > 0:
                owner.add_sample(file, sample)
    if len(machines) > 1:
        raise InputError("rows of several machines: " + "; ".join(sorted(machines)))
    # `bench` measures a shape once: its peers stand in the class that named it first.
    for problem in problems.values():
        for other in problems.values():
            if (problem.math != FP32 and (other.text, other.threads)
                    == (problem.text, problem.threads)):
                for name, measured in other.variants.items():
                    if name != sides.ours:
                        problem.variants.setdefault(name, measured)
    return [problem for problem in problems.values() if sides.ours in problem.variants]
