#!/usr/bin/env python3
"""Rooflane's ceilings beside those of likwid-bench, STREAM and clpeak, where they are installed.

Prints a table of ours, theirs and the ratio ours/theirs; a ceiling that another program exceeds by
more than a tenth is marked LOW and makes the status 1. Needs Python's standard library only.
Debian: apt-get install likwid clpeak. STREAM is looked for as `stream` or `stream_c` on the PATH.
"""
from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOWEST_RATIO = 0.9
# A run of likwid-bench moves this much per thread: 0.1 s in the fastest L1, 1 s from memory.
LIKWID_BYTES = 3e10
Comparison = tuple[str, str, float, float]  # what, program, ours, theirs


def output_of(command: list[str]) -> str:
    """What a program prints; empty when it fails."""
    print("+", " ".join(command), file=sys.stderr)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if result.returncode != 0:
        last = (result.stderr.strip() or result.stdout.strip()).splitlines()[-1:]
        print(f"{command[0]}: status {result.returncode}: {' '.join(last)}", file=sys.stderr)
        return ""
    return result.stdout


def measure(program: Path, seconds: float) -> dict[str, Any]:
    """The ceilings that `rooflane ceilings` measures now."""
    command = [str(program.absolute()), "ceilings", "--seconds", str(seconds), "--json"]
    print("+", " ".join(command), file=sys.stderr)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["ceilings"]


def rate_at(curve: dict[str, Any], footprint: float, loop: str) -> float:
    """Bandwidth of a curve at a footprint: straight lines over the footprint's logarithm."""
    points = curve["points"]
    for left, right in zip(points, points[1:]):
        low, high = left["footprint_bytes"], right["footprint_bytes"]
        if low <= footprint <= high:
            share = math.log(footprint / low) / math.log(high / low)
            return left[loop] + share * (right[loop] - left[loop])
    return points[0 if footprint < points[0]["footprint_bytes"] else -1][loop]


def cpu_curves(ceilings: dict[str, Any]) -> list[dict[str, Any]]:
    """Bandwidth curves of the CPU itself, one a thread count."""
    return [curve for curve in ceilings["bandwidth"] if not curve["device"]]


def likwid_suffixes() -> tuple[str, str]:
    """Endings of likwid-bench's tests for this CPU: of loads and stores, of multiply-adds."""
    flags = Path("/proc/cpuinfo").read_text().split()
    if "avx512f" in flags:
        return "_avx512", "_avx512_fma"
    if "avx2" in flags:
        return "_avx", "_avx_fma"
    return "_sse", "_sse"


def likwid_run(test: str, kilobytes: int, threads: int, figure: str) -> float:
    """Best of two runs in MByte/s or MFlops/s, as 1e9 a second."""
    iterations = max(10, round(LIKWID_BYTES * threads / (kilobytes * 1000)))
    command = ["likwid-bench", "-t", test, "-w", f"N:{kilobytes}kB:{threads}",
               "-i", str(iterations)]
    found = [re.search(rf"{figure}:\s*([\d.]+)", output_of(command)) for _ in range(2)]
    return max((float(match[1]) / 1e3 for match in found if match), default=0)


def likwid(ceilings: dict[str, Any]) -> Iterator[Comparison]:
    """FMA peaks, and bandwidth in the first level, in the second and from memory."""
    moves, multiplies = likwid_suffixes()
    for curve in cpu_curves(ceilings):
        threads = curve["threads"]
        where = f"{threads} thread{'s' if threads > 1 else ''}"
        peak = max(fma["gflops"] for fma in ceilings["fma"]
                   if not fma["device"] and fma["threads"] == threads)
        theirs = likwid_run("peakflops_sp" + multiplies, 16 * threads, threads, "MFlops/s")
        yield f"FMA peak, {where}, GFLOP/s", "likwid-bench", peak, theirs
        largest = curve["points"][-1]["footprint_bytes"]
        for footprint in (20e3 * threads, 400e3 * threads, largest):
            kilobytes = round(footprint / 1000)
            for loop, tests in (("read", ["load"]), ("write", ["store", "store_mem"]),
                                ("copy", ["copy", "copy_mem"])):
                best = max(likwid_run(test + moves, kilobytes, threads, "MByte/s")
                           for test in tests)
                yield (f"{loop} {kilobytes} kB, {where}, GB/s", "likwid-bench",
                       rate_at(curve, kilobytes * 1e3, loop + "_gb_s"), best)


def stream(ceilings: dict[str, Any], program: str) -> Iterator[Comparison]:
    """Copying from memory on all cores; STREAM counts bytes as we do."""
    curve = max(cpu_curves(ceilings), key=lambda c: c["threads"])
    found = re.search(r"^Copy:\s*([\d.]+)", output_of([program]), re.MULTILINE)
    if found:
        yield ("copy from memory, all cores, GB/s", "STREAM", curve["points"][-1]["copy_gb_s"],
               float(found[1]) / 1e3)


def best_of(section: str, title: str) -> float:
    """The greatest figure below a title of clpeak's; 0 where there is none."""
    block = re.search(rf"{title}.*\n((?:\s+float\d*\s*: .*\n)+)", section)
    return max(map(float, re.findall(r": ([\d.]+)", block[1])), default=0) if block else 0


def clpeak(ceilings: dict[str, Any]) -> Iterator[Comparison]:
    """FMA peaks and reading from memory of OpenCL devices."""
    text = output_of(["clpeak", "--compute-sp", "--global-bandwidth", "--use-event-timer"])
    for section in re.split(r"^\s*Device: ", text, flags=re.MULTILINE)[1:]:
        name = section.splitlines()[0].strip()
        peaks = [fma["gflops"] for fma in ceilings["fma"] if fma["device"] == name]
        reads = [curve["points"][-1]["read_gb_s"] for curve in ceilings["bandwidth"]
                 if curve["device"] == name]
        if peaks:
            yield (f"FMA peak, {name}, GFLOP/s", "clpeak", max(peaks),
                   best_of(section, "Single-precision compute"))
        if reads:
            yield (f"read from memory, {name}, GB/s", "clpeak", max(reads),
                   best_of(section, "Global memory"))


def comparisons(ceilings: dict[str, Any]) -> Iterator[Comparison]:
    """All that the installed programs give; says which are absent."""
    if shutil.which("likwid-bench"):
        yield from likwid(ceilings)
    else:
        print("likwid-bench is absent: apt-get install likwid", file=sys.stderr)
    program = shutil.which("stream") or shutil.which("stream_c")
    if program:
        yield from stream(ceilings, program)
    else:
        print("STREAM is absent: no `stream` or `stream_c` on the PATH", file=sys.stderr)
    if shutil.which("clpeak"):
        yield from clpeak(ceilings)
    else:
        print("clpeak is absent: apt-get install clpeak", file=sys.stderr)


def main() -> int:
    """Measures, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rooflane", type=Path, default=ROOT / "build/rooflane",
                        help="the program to measure with; default: build/rooflane")
    parser.add_argument("--seconds", type=float, default=20, help="time for our ceilings")
    parser.add_argument("--ceilings", type=Path,
                        help="take ours from this file of `rooflane ceilings --json`")
    arguments = parser.parse_args()
    if arguments.ceilings:
        ceilings = json.loads(arguments.ceilings.read_text())["ceilings"]
    else:
        ceilings = measure(arguments.rooflane, arguments.seconds)
    status = 0
    print(f"{'ceiling':58} {'program':12} {'ours':>9} {'theirs':>9} {'ratio':>6}")
    for what, program, ours, theirs in comparisons(ceilings):
        if theirs <= 0:
            print(f"{what:58} {program:12} {ours:9.1f} {'none':>9}")
            continue
        low = ours < LOWEST_RATIO * theirs
        status = 1 if low else status
        print(f"{what:58} {program:12} {ours:9.1f} {theirs:9.1f} {ours / theirs:6.2f}"
              f"{' LOW' if low else ''}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
