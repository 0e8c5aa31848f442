"""The command line of `tune.py league`. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse
from pathlib import Path

from rooflane.league import spaces

STRATEGIES = "default,random,local,cmaes"  # those that need nothing else
REPEATS = 100
SEED_POINTS = 4
ROUNDS = 7  # drawn per evaluation: the least odd number with a 95 % interval of the median


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 if it is wrong. `verb` is the name of the action."""
    parser = argparse.ArgumentParser(
        prog="tune.py league",
        description="Keeps completely measured spaces, and compares strategies on them.")
    verbs = parser.add_subparsers(required=True, dest="verb", metavar="VERB")

    def verb(name: str, told: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=told, description=told)
        made.add_argument("--spaces", metavar="FILE", type=Path, default=spaces.SHIPPED,
                          help="compressed file; default: bench/spaces/spaces.json.xz")
        return made

    verb("list", "lists the spaces of a compressed file")
    add = verb("add", "adds files of `tune --export-space` to a compressed file")
    add.add_argument("files", nargs="+", metavar="FILE", type=Path)
    run = verb("run", "compares strategies by replay of the spaces")
    run.add_argument("--strategies", metavar="NAME,...", default=STRATEGIES,
                     help=f"default: {STRATEGIES}")
    run.add_argument("--only", metavar="TEXT", action="append", default=[],
                     help="spaces with this text in their line of `list`; repeatable")
    run.add_argument("--repeats", metavar="N", type=_positive, default=REPEATS,
                     help=f"searches per strategy and space; default: {REPEATS}")
    run.add_argument("--rounds", metavar="N", type=_positive, default=ROUNDS,
                     help=f"recorded rounds drawn per evaluation; default: {ROUNDS}")
    run.add_argument("--seed-points", metavar="N", type=_positive, default=SEED_POINTS,
                     help="start of all searches: the default and the model's next candidates; "
                          f"default: {SEED_POINTS}")
    run.add_argument("--seed", metavar="N", type=int, default=0)
    run.add_argument("--latency", metavar="NAME=SECONDS", action="append", default=[],
                     help="the cost of a strategy's proposal, instead of measuring it")
    run.add_argument("--jobs", metavar="N", type=_positive, default=1,
                     help="processes; more than the idle cores make strategies look slow")
    run.add_argument("--results", metavar="FILE", type=Path,
                     help="keep each strategy's figures here; existing ones are not computed again")
    run.add_argument("--markdown", metavar="FILE", type=Path, help="default: standard output")
    run.add_argument("--json", metavar="FILE", type=Path)
    return parser.parse_args(words)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
