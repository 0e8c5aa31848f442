"""The command line of `rooflane tune`. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse
from pathlib import Path

from rooflane import strategies


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="rooflane tune", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n"
               "  rooflane tune --shape gemm:m=64,n=64,k=64 --threads 1 --budget 20\n"
               "  rooflane tune -k attention --preset llama3-8b --max-time 600 --report report\n"
               "  rooflane tune --model gpt2-small --threads 1 --max-time 600\n"
               "  rooflane tune -v opencl --shape gemm:m=n=k=256 --strategy local\n"
               "  rooflane tune --strategy source --shape softmax:rows=512,cols=1000 --budget 20",
        description="Searches for a faster schedule of a variant for your problems and stores it; "
                    "bench, run and the library use it from then on.")
    what = parser.add_argument_group("what is tuned")
    what.add_argument("-k", "--kernel", metavar="K", help="only problems of this kernel")
    what.add_argument("-v", "--variant", metavar="V", default="hwy", help="default: hwy")
    what.add_argument("--shape", metavar="SHAPE", action="append", default=[],
                      help="problems, as in bench")
    what.add_argument("--preset", metavar="P", action="append", default=[],
                      help="a preset, a file of shapes, or random:N[:SEED]")
    what.add_argument("--model", metavar="M", action="append", default=[],
                      help="the problems of a model, weighted by its calls, as in `rooflane model`")
    what.add_argument("--threads", metavar="N,...", help="default: 1 and all physical cores")
    what.add_argument("--isa", metavar="TARGET", default="", help="default: the CPU's best")
    what.add_argument("--math", metavar="M", default="fp32")
    what.add_argument("--cl-device", metavar="I", type=int, default=0)
    what.add_argument("--cache", choices=("warm", "cold"), default="",
                      help="operands in the caches or in memory; default: cold for up to 16 rows "
                           "with prepack=1, else warm")
    for option in ("--plugin", "--blas"):
        what.add_argument(option, metavar="NAME=FILE", action="append", default=[],
                          help="as in bench")
    how = parser.add_argument_group("the search")
    how.add_argument("--strategy", metavar="S", default=strategies.DEFAULT,
                     help=f"default: {strategies.DEFAULT}; " + "; ".join(
                         f"{name}: {text}" for name, text in strategies.DESCRIPTIONS.items()))
    how.add_argument("--budget", metavar="N", type=int, default=100,
                     help="evaluations for each problem and thread count; several share them: "
                          "those that promise most get more; default: 100")
    how.add_argument("--max-time", metavar="SECONDS", type=float, help="total time of all searches")
    how.add_argument("--final-time", metavar="SECONDS", type=float, default=120,
                     help="the last comparison of a search takes at most this; default: 120")
    how.add_argument("--stop-at", metavar="X", help="end a search at this speed-up: 2.0x")
    how.add_argument("--patience", metavar="N", type=int,
                     help="end a search after N evaluations without a new best")
    how.add_argument("--seed", metavar="N", type=int, default=1)
    how.add_argument("--timeout", metavar="SECONDS", type=float, default=60,
                     help="for one step of an evaluation; default: 60")
    how.add_argument("--cluster", metavar="tcp://HOST:PORT",
                     help="evaluate on the workers (tune.py worker) of this scheduler "
                          "(tune.py scheduler)")
    strategies.add_arguments(how)
    result = parser.add_argument_group("results")
    result.add_argument("--archive", metavar="URL", help="SQLite file or database URL")
    result.add_argument("--resume", action="store_true",
                        help="continue interrupted searches; print finished ones")
    result.add_argument("--report", metavar="DIR", type=Path, help="write report.txt and .html")
    result.add_argument("--export", metavar="FILE", type=Path,
                        help="also write to this file of tuned schedules; with --strategy source: "
                             "the best source")
    how.add_argument("--source-budget", metavar="SECONDS", type=float, default=5,
                     help="with --strategy source: for timing one source; default: 5")
    result.add_argument("--unsafe", action="store_true",
                        help="with --strategy source: judge without a jail if there is none")
    result.add_argument("--no-store", action="store_true",
                        help="do not change this machine's store")
    result.add_argument("--space", action="store_true",
                        help="only print the spaces, with the cost model's predictions")
    result.add_argument("--export-space", metavar="FILE", type=Path,
                        help="with --strategy all: keep the measured space for the league")
    result.add_argument("--json", action="store_true", help="print results as JSON")
    given = parser.parse_args(words)
    if given.budget < 1:
        parser.error("--budget: at least 1")
    if given.strategy == "source":
        for option in ("cache", "cluster", "report", "space"):
            if getattr(given, option):
                parser.error(f"--{option} does not go with --strategy source")
    elif given.unsafe:
        parser.error("--unsafe goes with --strategy source")
    if given.export_space and given.strategy != "all":
        parser.error("--export-space needs --strategy all")
    try:
        strategies.check_name(given.strategy)
        strategies.options_of(given, {})
        given.speed_up = float(given.stop_at.removesuffix("x")) if given.stop_at else None
    except ValueError as error:
        parser.error(str(error))
    return given
