"""The program `rooflane`: where it is, and asking it. Standard library only; scripts use it too.

What is measured, judged and compared is computed there; Python reads it.
"""
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rooflane.errors import Unavailable

PACKAGE = Path(__file__).resolve().parent
# Beside the module of a wheel or a build tree; in build/ of a checkout.
PLACES = (Path(__file__).parent / "bin" / "rooflane", PACKAGE.parent.parent / "build" / "rooflane")

ARGUMENT, UNAVAILABLE = 2, 3  # exit statuses


class Refused(Exception):
    """The program could not do what it was asked; the text is its own."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status

    def as_error(self) -> Exception:
        """As the package's functions raise it."""
        if self.status == ARGUMENT:
            return ValueError(str(self))
        if self.status == UNAVAILABLE:
            return Unavailable(str(self))
        return RuntimeError(str(self))


def path() -> Path:
    """The program: $ROOFLANE_PROGRAM, else the one that came with the package. Raises
    Unavailable."""
    if given := os.environ.get("ROOFLANE_PROGRAM"):
        return Path(given)
    for place in PLACES:
        if place.exists():
            return place.resolve()
    raise Unavailable(f"the program is not in {PLACES[0].parent}; ROOFLANE_PROGRAM may name it")


def told(stderr: str, status: int) -> str:
    """Why the program refuses: its complaints, a line each, or the last line of all that it
    said."""
    lines = stderr.strip().splitlines() or [f"status {status}"]
    complaints = [line for line in lines if line.startswith("rooflane: ")] or lines[-1:]
    return "\n".join(line.removeprefix("rooflane: ") for line in complaints)


def run(program: Path, words: Sequence[str | Path], good: Sequence[int] = (0,),
        environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end; standard output and error are kept. Raises Refused for an exit
    status that is not among the good ones, and where it cannot be started."""
    # Absolute: a bare name would be looked for in $PATH.
    command = [str(program.absolute()), *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment} if environment else None)
    except OSError as error:
        raise Refused(f"{program} cannot be run ({error.strerror}): build it, or name another with "
                      "--rooflane", UNAVAILABLE) from error
    if done.returncode not in good:
        raise Refused(told(done.stderr, done.returncode), done.returncode)
    return done


def ask(program: Path, verb: str, *arguments: str | Path) -> dict[str, Any]:
    """The document that a verb prints with --json. Raises Refused."""
    document: dict[str, Any] = json.loads(run(program, [verb, "--json", *arguments]).stdout)
    return document
