"""Asks the program for JSON (`rooflane VERB --json`); standard library only.

Scripts read what C++ computed and compute no statistic of their own: `rooflane schema VERB` says
what the documents hold.
"""
from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "rooflane"


class Refused(Exception):
    """The program could not do what it was asked; the text is its own line."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


def ask(program: Path, verb: str, *arguments: str | Path) -> dict[str, Any]:
    """The document that a verb prints. Raises Refused."""
    # Absolute: a bare name would be looked for in $PATH.
    command = [str(program.absolute()), verb, "--json", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Refused(f"{program} cannot be run ({error.strerror}): build it, or name another with "
                      "--rooflane", 3) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise Refused(lines[-1].removeprefix("rooflane: "), done.returncode)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval, where that is known."""
    value: float
    low: float | None
    high: float | None


def figure_of(told: dict[str, float] | None) -> Figure | None:
    """A figure of a document; nothing where it has none."""
    return Figure(told["value"], told["low"], told["high"]) if told else None


def summary_of(program: Path, files: Sequence[Path | str], *options: str) -> dict[str, Any]:
    """What `rooflane roofline` makes of CSV files. Raises Refused."""
    return ask(program, "roofline", *options, *files)
