"""Rows of one machine as a page of Markdown: results/<machine>/README.md.

Reads nothing, draws nothing, computes no statistic: rows, ceilings, classes and ratios come from
results.py.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from report_page.results import (
    Figure,
    InputError,
    Machine,
    Row,
    SizeClass,
    is_peer,
    number,
    place,
    problem_name,
    where,
)

MOST_LINES = 60  # a page on a screen or a sheet of paper
MOST_CLASSES = 20
MOST_PROBLEMS = 10
MOST_PLACES = 3  # machines in the list of ceilings
NONE = "–"


@dataclass
class Compared:
    """One problem at one place: the fastest of all, the fastest of this project's variants over the
    best peer, and that peer."""

    threads: str  # of the group; none where all of it is a device's
    fastest: Row
    peer: Row | None
    ratio: Figure | None  # the best peer's time over ours

    @property
    def kernel(self) -> str:
        """With cache mode and math where those are not the usual ones."""
        return problem_name(self.fastest).replace(f":{self.fastest['shape']}", "", 1)

    @property
    def where(self) -> str:
        """The threads, or the device where nothing else took part."""
        return where(self.fastest | {"threads": self.threads})


def compare(machine: Machine) -> list[Compared]:
    """Every problem at every place that has a PASSED row."""
    found = []
    for group in machine.groups:
        if group.fastest is None:
            continue
        ours = next((line for line in group.lines if not is_peer(line.row)
                     and line.row["variant"] != "scalar" and "@" not in line.row["variant"]), None)
        found.append(Compared(group.threads, group.fastest, group.best_peer,
                              ours.over_best_peer if ours else None))
    return found


def _only_most_threads(compared: Sequence[Compared]) -> list[Compared]:
    """Those at the most threads; devices without threads stay."""
    most = _most_threads(one.threads for one in compared)
    return [one for one in compared if one.threads in ("", most)]


def _most_threads(counts: Iterable[str]) -> str:
    return max(counts, key=lambda count: (len(count), count), default="")


# ---------------------------------------------------------------------------------------- cells

def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell).replace("|", "\\|") for cell in cells) + " |"


def _plain(text: str) -> str:
    """On one line, and without what Markdown or HTML would take for markup."""
    return " ".join(text.split()).replace("<", "&lt;")


def _figure(value: float | None, unit: float = 1) -> str:
    """Three digits; large ones whole."""
    if value is None:
        return NONE
    value /= unit
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _time(ns: float) -> str:
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.4g} {name}"
    return f"{ns:.4g} ns"


def _distinct(rows: Iterable[Row], column: str) -> list[str]:
    return sorted({str(row[column]) for row in rows if row[column] != ""})


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


# --------------------------------------------------------------------------------------- tables

def _ratio(figure: Figure | None) -> str:
    if figure is None:
        return NONE
    interval = "" if figure.low is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{interval}"


def _class_table(machine: Machine) -> list[str]:
    """A line per kernel, class of sizes and place, as fine as fits."""
    def at_most_threads(classes: Sequence[SizeClass]) -> list[SizeClass]:
        most = _most_threads(one.threads for one in classes)
        return [one for one in classes if one.threads in ("", most)]

    classes = machine.classes
    for coarser in (at_most_threads(machine.classes), at_most_threads(machine.kernels)):
        if len(classes) > MOST_CLASSES:
            classes = coarser
    text = [_line(["kernel", "sizes", "at", "use", "fastest in", "x next [95 %]",
                   "x best peer [95 %]", "% of the roof (least)"]),
            _line(["---", "---", "---", "---", "---", "---:", "---:", "---:"])]
    for one in classes[:MOST_CLASSES]:
        roof = (f"{one.roof.value:.0f} ({one.told['least_roof_pct']:.0f})" if one.roof else NONE)
        text.append(_line([one.setting, one.size, one.where, one.told["use"] or "undecided",
                           one.wins, _ratio(one.over_next), _ratio(one.over_best_peer), roof]))
    if len(classes) > MOST_CLASSES:
        text.append(_line([f"{len(classes) - MOST_CLASSES} more", *[""] * 7]))
    return text


def _spread(compared: Sequence[Compared], most: int) -> list[Compared]:
    """At most `most` problems at the most threads: of each kernel as many, evenly by size."""
    kernels: dict[str, list[Compared]] = {}
    for one in _only_most_threads(compared):
        kernels.setdefault(one.kernel, []).append(one)
    shares = dict.fromkeys(kernels, 0)
    left = min(most, sum(map(len, kernels.values())))
    while left > 0:
        for kernel, those in kernels.items():
            if left > 0 and shares[kernel] < len(those):
                shares[kernel] += 1
                left -= 1
    found = []
    for kernel, those in kernels.items():
        those = sorted(those, key=lambda one: (number(one.fastest, "flops") or 0.0,
                                               one.fastest["shape"]))
        count = shares[kernel]
        found += [those[(2 * i + 1) * len(those) // (2 * count)] for i in range(count)]
    return found


def _problem_table(compared: Sequence[Compared], most: int) -> list[str]:
    text = [_line(["problem", "at", "fastest", "time", "GFLOP/s", "GB/s", "% of the roof [95 %]",
                   "bound by", "best peer", "x best peer"]),
            _line(["---", "---", "---", "---:", "---:", "---:", "---:", "---", "---", "---:"])]
    for one in _spread(compared, most):
        row = one.fastest
        share = number(row, "roof_pct")
        low, high = number(row, "roof_pct_lo"), number(row, "roof_pct_hi")
        interval = f" [{low:.0f}, {high:.0f}]" if low is not None and high is not None else ""
        bound = row.get("bound") or NONE
        if bound == "memory" and row.get("roof_level") not in (None, "", "memory"):
            bound = f"memory ({row['roof_level']})"
        text.append(_line([
            f"`{problem_name(row)}`", one.where, row["variant"], _time(row["p50_ns"]),
            _figure(number(row, "gflops")), _figure(number(row, "gb_s")),
            NONE if share is None else f"{share:.0f}{interval}", bound,
            one.peer["variant"] if one.peer else NONE,
            NONE if one.ratio is None else f"{one.ratio.value:.2f}"]))
    return text


# ---------------------------------------------------------------------------------------- facts

def _build(rows: Sequence[Row]) -> str:
    commits = []
    for commit in _distinct(rows, "build_commit"):
        dirty = {row.get("git_dirty") for row in rows if row.get("build_commit") == commit}
        state = {frozenset("0"): "", frozenset("1"): ", with uncommitted changes"}.get(
            frozenset(dirty), ", unknown whether unchanged")
        commits.append(f"commit `{commit}`{state}")
    return "; ".join([*commits, *_distinct(rows, "compiler")]) or "unknown"


def _processor(machine: Machine) -> str:
    rows = machine.rows
    told = [context.get("machine") or {} for _, context in machine.contexts]
    facts = [next((row["cpu"] for row in rows if row.get("cpu")), "unknown CPU")]
    if told and told[0].get("physical_cores"):
        one = told[0]
        facts.append(f"{_counted(one['physical_cores'], 'physical core')}, "
                     f"{_counted(one.get('logical_cpus', 0), 'logical CPU')}")
        caches = [f"{name} {one[key] / 2 ** 10:.0f} KiB" for name, key in
                  (("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes")) if one.get(key)]
        if caches:
            facts.append("reported caches " + ", ".join(caches))
    elif used := max((len(row.get("affinity", "").split()) for row in rows), default=0):
        facts.append(f"{_counted(used, 'core')} used")
    if isas := [isa for isa in _distinct(rows, "isa") if isa != "baseline"]:
        facts.append(f"`hwy` at {', '.join(isas)}")
    return "; ".join(facts)


def _ceilings(machine: Machine) -> list[str]:
    """A line per place: the CPU at the most threads, then devices."""
    threads = _most_threads(row.get("threads", "") for row in machine.rows)
    places = [where({"threads": threads})] if threads else []
    for row in machine.rows:
        if row.get("device") and row.get("threads", "") in ("", threads):
            places.append(place(row.get("threads", ""), row["device"]))
    lines = []
    for at in list(dict.fromkeys(places))[:MOST_PLACES]:
        here = [ceiling for ceiling in machine.ceilings if ceiling.place == at]
        here.sort(key=lambda c: (c.kind != "fma", -c.value, c.name))
        told = [f"{c.name} {c.value:,.0f} {'GFLOP/s' if c.kind == 'fma' else 'GB/s'}" for c in here]
        if told:
            lines.append(f"- Ceilings, {at}: {', '.join(told)}")
    return lines


def _facts(machine: Machine) -> list[str]:
    rows = machine.rows
    devices = sorted({(row["device"], row.get("driver", "")) for row in rows if row.get("device")})
    dates = [time[:10] for time in _distinct(rows, "test_time")]
    launches = _distinct(rows, "launch")
    facts = [f"- CPU: {_processor(machine)}"]
    if devices:
        facts.append("- OpenCL: " + "; ".join(
            f"{name}, driver {driver}" if driver else name for name, driver in devices))
    facts.append(f"- Build: {_build(rows)}")
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "unknown date"
    facts.append(f"- Measured: {when}, "
                 + (f"launches: {', '.join(launches)}, " if launches else "")
                 + _counted(len(rows), "row") + f", run {', '.join(_distinct(rows, 'run_id'))}")
    facts += _ceilings(machine)
    if not machine.contexts:
        facts.append("- The context file (JSON) of this run was not kept; the ceilings are those "
                     "in the rows.")
    return facts


def _peers(machine: Machine, compared: Sequence[Compared]) -> str:
    """Who took part, with versions, and how often each was the best peer."""
    libraries: dict[str, set[str]] = {}
    for row in machine.rows:
        if is_peer(row):
            libraries.setdefault(row["variant"], set()).add(row["library"])
    best = Counter(one.peer["variant"] for one in compared if one.peer)
    order = sorted(libraries, key=lambda name: (-best[name], name))
    return ("Peers, and how often each was the best: " + "; ".join(
        f"`{name}` {best[name]} ({_plain(', '.join(sorted(libraries[name])))})" for name in order)
        + "." if order else "No peer took part.")


def _without_speed(rows: Sequence[Row]) -> str | None:
    """Which rows count for nothing; UNSUPPORTED and SKIPPED ones say so in the CSV."""
    silent = ("PASSED", "UNSUPPORTED", "SKIPPED")
    counts = Counter((row["variant"], row["status"]) for row in rows
                     if row["status"] not in silent)
    return ("Rows without a speed: " + ", ".join(
        f"`{variant}` {count} {status}" for (variant, status), count in sorted(counts.items()))
        + "." if counts else None)


# ------------------------------------------------------------------------------------- commands

def _told(words: Sequence[str]) -> str:
    """Arguments as told to `bench`, less the files it wrote; of other files without folders."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("--csv", "--json"):
            skip = True
        elif not word.startswith(("--csv=", "--json=")):
            word = re.sub(r"(^|[=,])[^=,]*/", r"\1.../", word)
            kept.append(word if re.fullmatch(r"[\w@%+=:,./*-]+", word)
                        else "'" + word.replace("'", "'\\''") + "'")
    return " ".join(kept)


def _commands(machine: Machine, names: Sequence[str], picture: bool) -> list[str]:
    contexts = [context for _, context in machine.contexts]
    classes = [row for row in machine.rows if row.get("preset", "").startswith(f"{row['kernel']}-")]
    if contexts:
        measure = list(dict.fromkeys(
            f"scripts/bench.sh {_told(context.get('arguments') or [])}".rstrip()
            for context in contexts))[:2]
    elif classes:
        on_device = not any(row.get("threads") for row in classes)
        measure = ["scripts/opencl_vs_peers.sh --out PREFIX" if on_device
                   else "scripts/speed_vs_peers.sh --out PREFIX"]
    else:
        measure = ["scripts/bench.sh --shape SHAPE... --peers all"]
    files = " ".join(names)
    return ["```sh", *(f"{line}   # measures again" for line in measure),
            f"build/rooflane roofline {files}   # every row, and which winners are ties",
            f"scripts/report.py {files} {'--svg roofline.svg ' if picture else ''}"
            "--readme README.md   # this page", "```"]


def document(machines: Sequence[Machine], files: Sequence[Path]) -> str:
    """The page. Raises InputError where rows are of several machines, or where there is none."""
    if len(machines) > 1:
        raise InputError("--readme: a page is of one machine; these files are of "
                         + "; ".join(machine.label for machine in machines))
    machine, first = machines[0], files[0].resolve()
    if not machine.rows:
        raise InputError(f"{files[0]}: no rows")
    compared = compare(machine)
    # A folder of results/ is named after CPU, ISA, cores and device; others are the user's affair.
    title = first.parent.name if first.parent.parent.name == "results" else machine.label
    picture = (first.parent / "roofline.svg").exists()
    names = [path.name for path in files]
    head = [f"# {_plain(title)}", "", *(_plain(fact) for fact in _facts(machine)), ""]
    if picture:
        head += ["![Ceilings and what each variant reached](roofline.svg)", ""]
    sizes = machine.principle[:1].upper() + machine.principle[1:]
    head += ["The first table shows what to use, how far it is ahead, and its share of the roof. "
             f"{sizes}. Ratios say how many times as fast; classes show geometric means of ratios "
             "and shares. The last column of the second table is the best peer's time divided by "
             "that of this project's fastest variant.", "", *_class_table(machine), ""]
    tail = ["", _peers(machine, compared), ""]
    if note := _without_speed(machine.rows):
        tail[-1:] = ["", _plain(note), ""]
    tail += _commands(machine, names, picture)
    left = MOST_LINES - len(head) - len(tail) - 2  # the table's own head
    return "\n".join([*head, *_problem_table(compared, min(MOST_PROBLEMS, max(left, 1))),
                      *tail]) + "\n"
