#!/usr/bin/env python3
"""Tunes the same problems again and again: is the choice always the same, and the fastest?
Usage: fresh_tunings.py CSV [--tunings N] [--repetitions N] [--seconds S] [--shape SHAPE]...

Each problem is first searched completely (--strategy all), then N times as a user would, with one
thread and seeds 1 to N, and nothing is stored. The truth comes from other measurements: all chosen
schedules, the default and the five fastest of all searches run in fresh processes, in a shuffled
order, as often as --repetitions says. CSV gets a row for each of them: how often it was chosen, how
often its tuning was undecided, and its time over the fastest's. CSV.tunings.jsonl keeps the
tunings and CSV.archive.sqlite their evaluations; the same command continues there. --seconds: no
tuning begins after so long, and the exit status is 4 while some are missing.
"""
from __future__ import annotations

import argparse
import csv
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from rooflane import program  # noqa: E402
from rooflane.evaluator import Evaluator, Step, Target  # noqa: E402
from rooflane.tuning import configuration_of, text_of  # noqa: E402

SHAPES = ("softmax:rows=512,cols=1000", "layernorm:rows=256,cols=1000",
          "attention:batch=1,heads=1,q_len=1,kv_len=1000,head_dim=64,causal=0")
TOP = 5
ROUNDS = 9  # of a repetition, as in tune's last comparison
NEVER = 1e9  # a ratio that excludes nobody
UNFINISHED = 4


def tuned(rooflane: Path, archive: Path, shape: str, seed: int) -> dict[str, Any]:
    """One tuning; seed 0 is the complete search."""
    begin = time.monotonic()
    document = program.ask(
        rooflane, "tune", "--shape", shape, "--threads", "1", "--seed", str(seed), "--no-store",
        "--archive", archive, *(["--strategy", "all"] if seed == 0 else []))
    found = document["tuned"][0]
    return {"shape": shape, "seed": seed, "seconds": round(time.monotonic() - begin, 1),
            **{key: found[key] for key in ("tuning", "default", "kind", "ratio", "tie_set",
                                           "evaluations", "build", "time")}}


def measured(rooflane: Path, archive: Path, shape: str, tunings: list[dict[str, Any]],
             repetitions: int) -> list[dict[str, Any]]:
    """The truth: a row for each schedule, the fastest first."""
    words = ["archive", "best", "--json", "--archive", archive, "--shape", shape, "--top", TOP]
    best = json.loads(program.run(rooflane, words).stdout)["best"]
    chosen = Counter(one["tuning"] for one in tunings if one["seed"])
    names = list(dict.fromkeys([tunings[0]["default"], *chosen,
                                *(text_of(one["configuration"]) for one in best)]))
    times: list[list[list[float]]] = [[] for _ in names]
    chance = random.Random(1)
    with Evaluator() as evaluator:
        evaluator.open(Target(shape, "hwy", threads=1))
        for _ in range(repetitions):
            order = chance.sample(range(len(names)), len(names))
            found = evaluator.evaluate([configuration_of(names[index]) for index in order],
                                       [Step(ROUNDS, NEVER)], NEVER, fresh=True)
            for index, one in zip(order, found):
                times[index].append(one.ns)

        def logs(one: int, other: int) -> list[list[float]]:
            return [[math.log(a / b) for a, b in zip(mine, theirs)]
                    for mine, theirs in zip(times[one], times[other])]

        typical = [statistics.median(map(statistics.median, one)) for one in times]
        over = [statistics.median(map(statistics.median, logs(index, 0)))
                for index in range(len(names))]
        leader = min(range(len(names)), key=over.__getitem__)
        others = [index for index in range(len(names)) if index != leader]
        compared = dict(zip(others, evaluator.compare([logs(index, leader) for index in others])))
    rows = []
    for index in sorted(range(len(names)), key=over.__getitem__):
        ratio = compared[index].ratio if index != leader else None
        of_it = [one for one in tunings if one["seed"] and one["tuning"] == names[index]]
        rows.append({
            "shape": shape, "tuning": names[index], "is_default": int(index == 0),
            "chosen": len(of_it), "undecided": sum(one["kind"] == "undecided" for one in of_it),
            "p50_ns": f"{typical[index]:.0f}",
            **{f"ratio{suffix}": f"{getattr(ratio, name) if ratio else 1:.4f}"
               for suffix, name in (("", "value"), ("_lo", "low"), ("_hi", "high"))},
            "verdict": compared[index].verdict if ratio else "fastest",
            "repetitions": repetitions,
            "evaluations": round(statistics.median(one["evaluations"]
                                                   for one in tunings if one["seed"])),
            "seconds": round(statistics.median(one["seconds"] for one in tunings if one["seed"])),
            "build_commit": tunings[0]["build"], "test_time": tunings[-1]["time"]})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=Path)
    parser.add_argument("--tunings", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--shape", action="append", help="default: three small problems")
    given = parser.parse_args()
    rooflane = program.path()
    shapes = given.shape or SHAPES
    kept = given.csv.with_suffix(".tunings.jsonl")
    archive = given.csv.with_suffix(".archive.sqlite")
    begin = time.monotonic()
    tunings = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()
               ] if kept.exists() else []
    done = {(one["shape"], one["seed"]) for one in tunings}
    for seed in range(given.tunings + 1):
        for shape in shapes:
            if (shape, seed) in done:
                continue
            if time.monotonic() - begin > given.seconds:
                return UNFINISHED
            tunings.append(tuned(rooflane, archive, shape, seed))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(tunings[-1]) + "\n")
    with given.csv.open("w", encoding="utf-8", newline="") as file:
        rows = [row for shape in shapes for row in measured(
            rooflane, archive, shape, [one for one in tunings if one["shape"] == shape],
            given.repetitions)]
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
