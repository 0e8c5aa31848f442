"""Which rows belong together: ratios as in `rooflane roofline`, families of shapes, crossovers.

Standard library only, no drawing. The rules are those of src/io/summary.cpp and crossover.cpp.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from report_page.results import Machine, Row, is_peer, number

LEAST_ROUNDS = 3  # fewer rounds in common say less than the medians
RoundKey = tuple[float, float, float]


def problem_key(row: Row) -> tuple[str, ...]:
    """What must be equal for two rows to be compared, threads aside."""
    return tuple(row.get(c, "") for c in ("kernel", "shape", "dtype", "math", "cache"))


def problem_name(row: Row) -> str:
    """Kernel and shape, with the cache mode where it is not warm and the math where not fp32."""
    extra = [v for v, usual in ((row.get("cache"), "warm"), (row.get("math"), "fp32"))
             if v and v != usual]
    return " ".join([f"{row['kernel']}:{row['shape']}", *extra])


def may_win(row: Row) -> bool:
    """Right, and with a time."""
    return row["status"] == "PASSED" and (number(row, "p50_ns") or 0) > 0


def one_thread_variants(rows: Iterable[Row]) -> set[str]:
    """Variants that only ever ran on one thread, while others ran on more."""
    counts: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.get("threads"):
            counts[row["variant"]].add(row["threads"])
    if all(seen == {"1"} for seen in counts.values()):
        return set()
    return {variant for variant, seen in counts.items() if seen == {"1"}}


@dataclass
class Group:
    """One problem at one thread count: rows that may win, one per variant, library and device."""

    threads: str
    rows: list[Row]


def _representatives(rows: list[Row]) -> list[Row]:
    """Of several rows with one identity the one with the median time."""
    same: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        library = (row.get("library") or "").split(" ")[0]
        same[row["variant"], library, row.get("isa", ""), row.get("device", "")].append(row)
    return [sorted(those, key=lambda r: float(r["p50_ns"]))[(len(those) - 1) // 2]
            for those in same.values()]


def groups(machine: Machine) -> list[Group]:
    """Every problem at every thread count. Variants of one thread, and rows of devices without
    threads, belong to every count."""
    singles = one_thread_variants(machine.rows)
    problems: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in machine.rows:
        if may_win(row):
            problems[problem_key(row)].append(row)
    found = []
    for rows in problems.values():
        def everywhere(row: Row) -> bool:
            return not row.get("threads") or row["variant"] in singles
        counts = {r["threads"] for r in rows if not everywhere(r)} or {rows[0].get("threads", "")}
        for threads in sorted(counts, key=lambda t: (len(t), t)):
            members = [r for r in rows if everywhere(r) or r["threads"] == threads]
            found.append(Group(threads, _representatives(members)))
    return found


class Ratios:
    """Ratios of times: medians over the rounds that two rows share, else of their medians."""

    def __init__(self, machine: Machine):
        self._rounds: dict[int, dict[RoundKey, float]] = defaultdict(dict)
        for row, sample in machine.samples:
            key = sample["launch"], sample["round"], sample["probe_ns"]
            self._rounds[id(row)][key] = sample["ns"]

    def of(self, x: Row, y: Row) -> float:
        """Time of x over time of y."""
        mine, other = self._rounds[id(x)], self._rounds[id(y)]
        shared = [ns / other[key] for key, ns in mine.items() if other.get(key)]
        if len(shared) >= LEAST_ROUNDS:
            return median(shared)
        return float(x["p50_ns"]) / float(y["p50_ns"])


def _fastest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda r: float(r["p50_ns"]), default=None)


def scalar_of(group: Group) -> Row | None:
    """The scalar row of a group."""
    return _fastest(r for r in group.rows if r["variant"] == "scalar")


def best_peer_of(group: Group) -> Row | None:
    """The fastest row of somebody else's library."""
    return _fastest(r for r in group.rows if is_peer(r))


def _line(x: str, y: str) -> tuple[str, tuple[int, ...]] | None:
    """The line two shapes lie on, growing sizes as multiples of *, and their proportion."""
    ours = [p.partition("=") for p in x.split(",")]
    theirs = [p.partition("=") for p in y.split(",")]
    if [p[0] for p in ours] != [p[0] for p in theirs]:
        return None
    growing = [(int(a), int(b)) for (_, _, a), (_, _, b) in zip(ours, theirs)
               if a != b and a.isdecimal() and b.isdecimal() and int(a) > 0 and int(b) > 0]
    if not growing or len(growing) != sum(a != b for a, b in zip(ours, theirs)):
        return None  # flags and scales do not grow
    if any(a * growing[0][1] != b * growing[0][0] for a, b in growing):
        return None
    common = math.gcd(*(a for a, _ in growing))
    proportion = tuple(a // common for a, _ in growing)
    factors = iter("*" if f == 1 else f"{f}*" for f in proportion)
    return ",".join(f"{name}={a if a == b else next(factors)}"
                    for (name, _, a), (_, _, b) in zip(ours, theirs)), proportion


def families(shapes: Iterable[str]) -> dict[str, str]:
    """Shape -> family, where it lies on a line with others; of several the one with most shapes."""
    known = sorted(set(shapes))
    lines: dict[tuple[str, tuple[int, ...]], set[str]] = defaultdict(set)
    for i, x in enumerate(known):
        for y in known[i + 1:]:
            if line := _line(x, y):
                lines[line] |= {x, y}
    found: dict[str, str] = {}
    while lines:
        line = max(sorted(lines), key=lambda one: len(lines[one]))
        members = lines.pop(line)
        if len(members) < 2:
            break
        found.update(dict.fromkeys(members, line[0]))
        for others in lines.values():
            others -= members
    return found


@dataclass
class Sizes:
    """One problem on the CPU at its fastest and on a device without threads."""

    name: str
    shape: str
    flops: float
    cpu: Row
    device: Row
    kernel_ns: float
    e2e_ns: float | None


def cpu_and_device(machine: Machine) -> dict[tuple[str, str], list[Sizes]]:
    """(setting, device) -> problems measured on both, by growing size. A setting is the kernel with
    cache mode and math."""
    problems: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in machine.rows:
        if may_win(row) and "@" not in row["variant"]:
            problems[problem_key(row)].append(row)
    found: dict[tuple[str, str], list[Sizes]] = defaultdict(list)
    for rows in problems.values():
        cpu = _fastest(r for r in rows if r.get("threads"))
        by_device: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if not row.get("threads") and row.get("device"):
                by_device[row["device"]].append(row)
        for device, those in by_device.items():
            if cpu is None:
                continue
            least = min(those, key=lambda r: number(r, "kernel_ns") or float(r["p50_ns"]))
            ends = [e for r in those if (e := number(r, "e2e_ns")) and e > 0]
            setting = problem_name(cpu).replace(f":{cpu['shape']}", "")
            found[setting, device].append(Sizes(
                problem_name(cpu), cpu["shape"], number(cpu, "flops") or 0.0, cpu, least,
                number(least, "kernel_ns") or float(least["p50_ns"]), min(ends, default=None)))
    for sizes in found.values():
        sizes.sort(key=lambda s: s.flops)
    return found


def wins_from(sizes: list[Sizes], column: str) -> str:
    """From which size on the device is faster at every larger one, in words."""
    start = len(sizes)
    while start > 0:
        ns = getattr(sizes[start - 1], column)
        if ns is None or ns >= float(sizes[start - 1].cpu["p50_ns"]):
            break
        start -= 1
    if start == len(sizes):
        return "never in this range"
    return "at every size" if start == 0 else f"from {sizes[start].shape} on"
