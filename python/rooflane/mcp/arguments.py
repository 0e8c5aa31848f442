"""The command line of the MCP server. Standard library only: its help needs no package."""
from __future__ import annotations

import argparse

BUDGET = 10.0  # seconds for timing


def arguments_of(words: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python3 -m rooflane.mcp", allow_abbrev=False,
        description="Serves `rooflane judge` over the Model Context Protocol on standard input and "
                    "output: a program submits the source of a kernel and gets a verdict.")
    parser.add_argument("--archive", metavar="FILE", default="",
                        help="keeps the attempts here; default: as rooflane judge does")
    parser.add_argument("--budget", metavar="SECONDS", type=float, default=BUDGET,
                        help="for timing a submission, which may ask for less; default: "
                             f"{BUDGET:g}")
    parser.add_argument("--unsafe", action="store_true",
                        help="judge without a jail where there is none: trusted sources only")
    given = parser.parse_args(words)
    if not 0 < given.budget < float("inf"):
        parser.error("--budget: more than 0")
    return given
