#!/usr/bin/env python3
"""Writes tables of pages from the repository's rows and from the program: page_tables.py [--check].

Between the lines `<!-- table: NAME ARGUMENT... -->` and `<!-- end -->` README.md and the pages of
docs/ have the output of the function NAME below, made from results/ (README's: page_results.py) or
from the program itself (page_reference.py). --check only prints the differences. `rooflane roofline
--markdown` computes the gain of each step of a ladder.

Exit status: 0 good, 1 a page differs (--check), 2 wrong arguments or rows, 3 no program.
"""
from __future__ import annotations

import argparse
import csv
import difflib
import functools
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import page_reference
import page_results

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/rooflane"
BLOCK = re.compile(r"(?ms)^(<!-- table: (.*?) -->\n).*?^(<!-- end -->)$")
LADDERS = ROOT / "results/amd-epyc-zen-4-avx3-2c/ladders"
# For each machine its rows of third-party libraries, and the name of its CPU in text.
MACHINES = {"amd-epyc-avx3-2c": "AMD Zen 5",
            "intel-xeon-processor-avx3-2c": "Intel Sapphire Rapids"}


class Wrong(Exception):
    """A page asks for what the rows do not hold; the text says what."""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(headings: list[str], lines: list[list[str]], rest: str = "---:") -> str:
    """Markdown; all columns but the first hold figures, unless `rest` aligns them otherwise."""
    rule = ["---", *[rest] * (len(headings) - 1)]
    return "".join("| " + " | ".join(line) + " |\n" for line in [headings, rule, *lines])


@functools.cache
def printed(program: Path, kernel: str, *options: str) -> str:
    """What the program prints of the rows of a kernel's ladder."""
    done = subprocess.run([program, "roofline", *options, LADDERS / f"{kernel}.csv"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"roofline {kernel}.csv: {done.stderr.strip()}")
    return done.stdout


def ladders(program: Path, kernel: str) -> dict[str, list[dict[str, str]]]:
    """For each problem, as it is printed, the lines of the program's table of the ladder."""
    found: dict[str, list[dict[str, str]]] = {}
    for title, text in re.findall(r"(?ms)^\*\*(\S+)  ladder of hwy .*?\*\*\n\n(.*?)(?:\n\n|\Z)",
                                  printed(program, kernel, "--markdown")):
        lines = [[cell.strip() for cell in line.strip("|").split("|")]
                 for line in text.splitlines() if line.startswith("|")]
        found[title] = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    return found


def ladder(program: Path, kernel: str, problem: str) -> str:
    """The table of one problem's ladder, as the program prints it, without the ideas."""
    lines = ladders(program, kernel).get(problem)
    if lines is None:
        raise Wrong(f"no ladder of {problem} in {kernel}.csv")
    shown = [name for name in lines[0] if name not in ("idea", "step")]
    cells = [[("" if line["step"] == "-" else line["step"] + " ") + line["name"],
              *(line[name] for name in shown[1:])] for line in lines]
    return table(["step", *shown[1:]], cells)


def terminal(program: Path, kernel: str, problem: str) -> str:
    """One problem's ladder as the terminal shows it."""
    for text in re.findall(r"(?ms)^\S+  ladder of .*?(?=\n\n|\Z)", printed(program, kernel)):
        if text.startswith(f"{problem} "):
            return f"```\n{text.strip()}\n```\n"
    raise Wrong(f"no ladder of {problem} in {kernel}.csv")


def gained(program: Path, kernel: str, step: str) -> str:
    """What a step gained over the one before, problem by problem. `hwy` is the variant itself."""
    cells = []
    for problem, lines in ladders(program, kernel).items():
        for line in lines:
            if line["step"] == ("-" if step == "hwy" else step) and line["x before [95 %]"]:
                share = line["% of roof"]
                cells.append([f"`{problem}`", line["threads"], line["x before [95 %]"],
                              f"{float(share):.0f} %"])
    if not cells:
        raise Wrong(f"no step {step} of {kernel}")
    return table(["problem", "threads", "times as fast [95 %]", "of the roof"], cells)


def slowdown(_: Path, variant: str, kernel: str, threads: str) -> str:
    """How long a variant takes beside the fastest one, machine by machine."""
    cells = []
    for machine, name in MACHINES.items():
        times: dict[str, dict[str, float]] = defaultdict(dict)
        for path in page_results.kept_rows(machine):
            for row in rows_of(path):
                if (row["kernel"], row["threads"]) == (kernel, threads) and row["p50_ns"]:
                    times[row["shape"]][row["variant"]] = float(row["p50_ns"])
        ratios = [those[variant] / min(those.values()) for those in times.values()
                  if variant in those]
        if ratios:
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
            cells.append([f"[{name}](../results/{machine}/)", str(len(ratios)), f"{mean:.2f}",
                          f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                          str(sum(ratio == 1 for ratio in ratios))])
    return table(["CPU", "problems", "mean", "least", "most", "fastest in"], cells)


def spread(_: Path) -> str:
    """Per kernel, how far apart the launches of a row lie: rows, median and most."""
    cells = []
    for path in sorted(LADDERS.glob("*.csv.samples.csv")):
        launches: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in rows_of(path):
            launches[sample["row"]][sample["launch"]].append(float(sample["ns"]))
        ratios = []
        for of in launches.values():
            medians = [statistics.median(samples) for samples in of.values()]
            ratios.append(max(medians) / min(medians))
        cells.append([path.name.split(".")[0], str(len(ratios)), f"{statistics.median(ratios):.2f}",
                      f"{max(ratios):.2f}"])
    return table(["ladder of", "rows", "median", "most"], cells)


def reference(program: Path, what: str, *name: str) -> str:
    """What the program says of itself, for docs/reference*.md; of one kernel, verb or document."""
    headings = {"verbs": ["verb", "does"], "columns": ["column", "type", "meaning"],
                "options": ["option", "meaning", "repeatable"],
                "environment": ["variable", "meaning"], "fields": ["field", "type", "meaning"],
                "parameters": ["parameter", "takes", "default"],
                "tensors": ["tensor", "role", "shape", "type", "present"]}
    made = getattr(page_reference, what) if what in headings else None
    if made is None:
        raise Wrong(f"reference {what}; there are {', '.join(headings)}")
    lines = [[cell.replace("|", "\\|") for cell in line] for line in made(program, *name)]
    return table(headings[what], lines, rest="---")


def league(_: Path) -> str:
    """Search strategies on recorded spaces, as `tune.py league run --json` found them."""
    told = json.loads((ROOT / "bench/spaces/league.json").read_text(encoding="utf-8"))

    def shown(value: float) -> str:
        return f"{value:.2f}".replace("-", "−")

    lines = [[f"`{one['strategy']}`", "{} [{}, {}]".format(*(
        shown(one["score"][part]) for part in ("value", "low", "high")))
        + " (tied)" * (one["behind"] is not None and one["tied"]),
        *(shown(one["at"][share]["value"]) for share in ("0.25", "1")),
        shown(one["within"]["1"]["value"]), f"{one['evaluations']:.0f}"]
        for one in told["standings"]]
    lines.append(["random search without seed points", "0", "0", "0",
                  shown(told["baseline_within"]["1"]), ""])
    return table(["search", "P, mean over the budget", "P at 25 % of the budget", "P at its end",
                  "chose one within 1 % of the optimum", "evaluations"], lines)


def fresh_tunings(_: Path, machine: str) -> str:
    """How often tune chose the fastest of its problems, as scripts/fresh_tunings.py found it."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows_of(ROOT / "results" / machine / "tune" / "fresh-tunings.csv"):
        found[row["shape"]].append(row)
    lines = []
    for shape, rows in found.items():
        default, = (float(row["ratio"]) for row in rows if row["is_default"] == "1")
        chosen = [row for row in rows if row["chosen"] != "0"]

        def count(of: Callable[[dict[str, str]], bool], rows: list[dict[str, str]] = chosen) -> str:
            return str(sum(int(row["chosen"]) for row in rows if of(row)))

        lines.append([f"`{shape}`", count(lambda _: True),
                      count(lambda row: row["verdict"] in ("fastest", "equal")),
                      count(lambda row: float(row["ratio"]) <= 1.01),
                      f"{max(float(row['ratio']) for row in chosen) - 1:.1%}",
                      count(lambda row, least=default: row["is_default"] == "0"
                            and float(row["ratio"]) >= least),
                      f"{default:.3f}", rows[0]["evaluations"], rows[0]["seconds"]])
    return table(["problem", "tunings", "chose a member of the true tie set",
                  "chose one within 1 per cent of the fastest", "largest true loss",
                  "chose one that is not faster than the default", "default over the fastest",
                  "evaluations", "seconds"], lines)


def agreement(_: Path, machine: str) -> str:
    """What a judged kernel takes beside itself in bench, as scripts/judge_agreement.py found it."""
    rows = rows_of(ROOT / "results" / machine / "judge" / "agreement.csv")
    if not rows:
        raise Wrong(f"no rows of judge_agreement.py of {machine}")
    cells = [[f"`{row['shape']}`", row["threads"],
              "{:.3f} [{:.3f}, {:.3f}]".format(*(float(row[name]) for name in (
                  "ratio", "ratio_lo", "ratio_hi"))),
              f"{float(row['bench_us']):.4g}",
              f"{float(row['call_us']):.2f} ± {float(row['call_spread_us']):.2f}"] for row in rows]
    headings = ["problem", "threads", "judged time / time in `bench` [95 %]", "time, µs",
                "a call, µs"]
    last = rows[-1]
    return (table(headings, cells) + f"\nMeasured on {last['test_time'][:10]} at commit "
            f"{last['build_commit'][:12]}.\n")


TABLES: dict[str, Callable[..., str]] = {"ladder": ladder, "terminal": terminal, "gained": gained,
                                         "slowdown": slowdown, "spread": spread,
                                         "reference": reference, "league": league,
                                         "agreement": agreement, "fresh_tunings": fresh_tunings,
                                         "ladder_measured": page_results.ladder_measured,
                                         "answers": page_results.answers,
                                         "classes": page_results.classes,
                                         "models": page_results.models,
                                         "presets": page_results.presets,
                                         "language": page_results.language}


def filled(program: Path, text: str) -> str:
    """The page with all tables as the rows have them."""
    def made(block: re.Match[str]) -> str:
        name, *arguments = shlex.split(block[2])
        if name not in TABLES:
            raise Wrong(f"table '{name}'; there are {', '.join(TABLES)}")
        return f"{block[1]}\n{TABLES[name](program, *arguments)}\n{block[3]}"
    return BLOCK.sub(made, text)


def main() -> int:
    """Writes or checks all pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only print the differences")
    parser.add_argument("--rooflane", metavar="PROGRAM", type=Path, default=PROGRAM,
                        help="the program that reads the rows; default: build/rooflane")
    arguments = parser.parse_args()
    program = arguments.rooflane.absolute()
    if not program.is_file():
        print(f"page_tables.py: {program}: no such program; build it first", file=sys.stderr)
        return 3
    differs = False
    for page in sorted([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")]):
        text = page.read_text(encoding="utf-8")
        try:
            now = filled(program, text)
        except (Wrong, page_results.Missing, OSError, subprocess.CalledProcessError) as error:
            print(f"page_tables.py: {page.name}: {error}", file=sys.stderr)
            return 2
        if now == text:
            continue
        differs = True
        if arguments.check:
            sys.stdout.writelines(difflib.unified_diff(
                text.splitlines(True), now.splitlines(True), str(page), "from the rows"))
        else:
            page.write_text(now, encoding="utf-8")
            print(f"wrote {page}")
    return 1 if differs and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
