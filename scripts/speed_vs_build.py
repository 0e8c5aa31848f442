#!/usr/bin/env python3
"""Compares GEMM with that of an older build, on random problems of every number format.
Usage: speed_vs_build.py OLD [--count N] [--seed S] [--threads N,...] [--classes C,...]
                         [--seconds S] [--limit RATIO] [--out FOLDER]

OLD is the program of the older build. The format of b names a class; bf16-products and
int8-products are those of the maths bf16 and int8-dynamic. Each has N problems, which the thread
counts share. `rooflane bench --against` measures both builds in the same rounds, without stored
tunings, for S seconds a problem. The faster of the older build's `hwy` and `avx512` counts, since
older builds had special ways for some formats. Printed as Markdown: the geometric mean of the older
build's time over this one's, the problems below --limit, and results that failed. FOLDER keeps the
rows. Exit status: 1 if a result failed.
"""
from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rooflane_json import PROGRAM  # noqa: E402

# Class -> the math that its rows ask for.
MATHS = {"f32": "fp32", "f16": "fp32", "bf16": "fp32", "q8_0": "fp32", "q4_0": "fp32",
         "q4_1": "fp32", "s8c": "fp32", "s8": "int8", "bf16-products": "bf16",
         "int8-products": "int8-dynamic"}
# AVX-512's units take no float16.
UNITS = {"bf16-products": {"bf16"}, "int8-products": {"q8_0", "q4_0", "q4_1", "s8c"}}
VARIANTS = ("hwy", "avx512")


def value_of(problem: str, name: str) -> str:
    """A parameter of a problem's text; f32 where it is not named."""
    found = re.search(rf"[:,]{name}=(\w+)", problem)
    return found[1] if found else "f32"


def classes_of(problem: str) -> Iterator[str]:
    b = value_of(problem, "b_type")
    yield b
    for name, formats in UNITS.items():
        if b in formats and "f16" not in (value_of(problem, "a_type"), value_of(problem, "c_type")):
            yield name


def problems(count: int, seed: int, classes: list[str]) -> dict[str, list[str]]:
    """So many problems of each class. Formats are drawn until they are there."""
    found: dict[str, list[str]] = {name: [] for name in classes}
    for preset in (f"random:{count}:{seed}", *(f"formats:{20 * count}:{seed + i}"
                                               for i in range(10))):
        words = [PROGRAM, "bench", "--dry-run", "-k", "gemm", "-v", "hwy", "--threads", "1",
                 "--preset", preset]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            problem = line.split(" variant=")[0]
            for name in classes_of(problem):
                if len(found.get(name, range(count))) < count:
                    found[name].append(problem)
        if all(len(list_) == count for list_ in found.values()):
            break
    return found


def measure(given: argparse.Namespace, name: str, listed: list[str], threads: str,
            out: Path) -> list[dict[str, str]]:
    """Rows of a class. Rows that a variant refuses have no time."""
    shapes, rows = out / f"{name}-{threads}.txt", out / f"{name}-{threads}.csv"
    shapes.write_text("\n".join(listed) + "\n", encoding="utf-8")
    variants = VARIANTS if MATHS[name] != "fp32" else VARIANTS[:1]
    words = [PROGRAM, "bench", "-k", "gemm", "--preset", shapes, "-v", ",".join(variants),
             "--against", f"old={given.old}", "--math", MATHS[name], "--threads", threads,
             "--tuned", "none", "--launches", "1", "--min-time", "0.0005", "--max-time",
             str(given.seconds), "--ceilings-time", "0.05", "--csv", rows]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not rows.exists():
        sys.exit(f"speed_vs_build: {name}: {done.stderr.strip()}")
    with rows.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ratios(rows: list[dict[str, str]]) -> dict[str, float]:
    """Problem -> the older build's least time over this one's hwy."""
    new: dict[str, float] = {}
    old: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row["p50_ns"]:
            continue
        if row["variant"].endswith("@old"):
            old[row["shape"]].append(float(row["p50_ns"]))
        elif row["variant"] == "hwy":
            new[row["shape"]] = float(row["p50_ns"])
    return {shape: min(old[shape]) / time for shape, time in new.items() if shape in old}


def failures(rows: list[dict[str, str]]) -> list[str]:
    """This build's results that are wrong, or not there."""
    return [f"{row['variant']} {row['shape']}: {row['status']} {row['reason']}" for row in rows
            if "@" not in row["variant"] and row["status"] not in ("PASSED", "SUSPECT",
                                                                   "UNSUPPORTED", "SKIPPED")]


def main() -> int:
    description, details = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(
        description=description.split("\nUsage")[0], epilog=details, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", type=Path)
    parser.add_argument("--count", metavar="N", type=int, default=150)
    parser.add_argument("--seed", metavar="S", type=int, default=1)
    parser.add_argument("--threads", metavar="N,...", default=f"1,{os.cpu_count()}")
    parser.add_argument("--classes", metavar="C,...", default=",".join(MATHS))
    parser.add_argument("--seconds", metavar="S", type=float, default=0.6)
    parser.add_argument("--limit", metavar="RATIO", type=float, default=0.85)
    parser.add_argument("--out", metavar="FOLDER", type=Path)
    given = parser.parse_args()
    given.old = given.old.absolute()
    classes, threads = given.classes.split(","), given.threads.split(",")
    if unknown := [name for name in classes if name not in MATHS]:
        parser.error(f"unknown class {unknown[0]}; there are {', '.join(MATHS)}")
    if not given.old.is_file():
        parser.error(f"{given.old}: no such program")
    failed: list[str] = []
    slow: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        print("| class | threads | problems | old/new, geometric mean | least | below "
              f"{given.limit:g} |\n|---|---:|---:|---:|---:|---:|")
        for name, listed in problems(given.count, given.seed, classes).items():
            for place, count in enumerate(threads):
                rows = measure(given, name, listed[place::len(threads)], count, out)
                failed += failures(rows)
                of = ratios(rows)
                below = {shape: ratio for shape, ratio in of.items() if ratio < given.limit}
                slow += [f"{ratio:.2f} {name}, {count} threads: gemm:{shape}"
                         for shape, ratio in sorted(below.items(), key=lambda item: item[1])]
                print(f"| {name} | {count} | {len(of)} | "
                      f"{statistics.geometric_mean(of.values()):.3f} | {min(of.values()):.2f} | "
                      f"{len(below)} |" if of else f"| {name} | {count} | 0 | | | |", flush=True)
    for title, lines in ((f"Below {given.limit:g}:", slow), ("Failed:", failed)):
        if lines:
            print(f"\n{title}\n", *(f"- {line}" for line in lines), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
