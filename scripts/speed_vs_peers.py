#!/usr/bin/env python3
"""Our kernels against every peer, class by class, with the goals of each: a Markdown table.

The problems stand in bench/targets/shapes.txt, the goals in bench/targets/targets.txt. Measuring
is `rooflane bench` (target_table/measuring.py), judging stands in target_table/judging.py. Standard
library only. Exit status: 0 the table was made, whatever it says; 2 wrong arguments or input; else
that of the benchmark that could not run.
"""
from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from target_table import goals, judging, measuring, results, table  # noqa: E402

DATA = SCRIPTS.parent / "bench" / "targets"


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 on what is wrong with it."""
    parser = argparse.ArgumentParser(
        prog="speed_vs_peers.sh", allow_abbrev=False,
        description="Measures our kernels against every peer; prints ratios and goals by class.")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quick", dest="level", action="store_const", const="quick",
                       default="default", help="few problems of each class")
    level.add_argument("--full", dest="level", action="store_const", const="full",
                       help="more and larger problems, three launches")
    parser.add_argument("--threads", metavar="N,...", help="default: 1 and all physical cores")
    parser.add_argument("--launches", metavar="N",
                        help="default: 2, with --full 3; more narrow the intervals, most of all "
                             "those of classes of one problem")
    parser.add_argument("--classes", metavar="C,...", default="",
                        help="classes or the first words of them: gemm-small, softmax")
    parser.add_argument("--out", metavar="PREFIX", help="write PREFIX.md and keep PREFIX-*.csv")
    parser.add_argument("--resume", action="store_true",
                        help="go on with the interrupted run of --out")
    parser.add_argument("--csv", metavar="FILE", nargs="+", help="summarise these, measure nothing")
    parser.add_argument("--machine", choices=goals.MACHINES,
                        help="whose goals hold; default: by the vendor of the CPU")
    parser.add_argument("--rooflane", metavar="PROGRAM", type=Path, help=argparse.SUPPRESS,
                        default=SCRIPTS.parent / "build" / "rooflane")
    given = parser.parse_args(words)
    if given.resume and not given.out:
        parser.error("--resume needs --out PREFIX: the files of the interrupted run")
    if given.csv and (given.resume or given.threads or given.launches
                      or given.level != "default"):
        parser.error("--csv measures nothing: no --quick, --full, --threads, --launches or "
                     "--resume with it")
    return given


def main(words: list[str]) -> int:
    """From arguments to the table."""
    given = arguments_of(words)
    try:
        shapes = goals.read_shapes(DATA / "shapes.txt", given.level)
        targets = goals.read_targets(DATA / "targets.txt")
        classes = goals.chosen(given.classes, shapes)
        if given.out:
            Path(given.out).absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            files, absent = given.csv, {}
            if not files:
                prefix = Path(given.out).absolute() if given.out else Path(folder) / "rows"
                files, absent = measuring.measure(
                    given.rooflane, {name: shapes[name] for name in classes}, Path(folder), prefix,
                    given.level, given.threads, given.launches, given.resume)
            problems = [problem for problem in results.read(files) if problem.name in classes]
        if not problems:
            raise goals.InputError("no row of a class of bench/targets/shapes.txt in "
                                   + ", ".join(map(str, files)))
        machine = given.machine or goals.machine_of(problems[0].cpu)
        verdicts = judging.judge(problems, targets, machine, classes)
        text = table.overview(verdicts, machine) + table.peers(problems, absent)
        print(text, end="")
        if given.out:
            Path(f"{given.out}.md").write_text(text + table.every_problem(verdicts),
                                               encoding="utf-8")
    except (goals.InputError, OSError) as error:
        print(f"speed_vs_peers: {error}", file=sys.stderr)
        return 2
    except measuring.BenchFailed as error:
        print(f"speed_vs_peers: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        os._exit(130)
