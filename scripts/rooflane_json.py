"""What scripts ask the program for (`rooflane VERB --json`), and the package python/rooflane for
them; standard library only.

Scripts read what C++ computed and compute no statistic of their own: `rooflane schema VERB` says
what the documents hold.
"""
from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_environment import cache_folder

SCRIPTS = Path(__file__).resolve().parent


def package_folder() -> Path:
    """What to name in PYTHONPATH for the package and nothing else. Where scripts came with an
    installed package, beside which others lie, a folder of links of the user's cache."""
    if (SCRIPTS.parent / "python").is_dir():
        return SCRIPTS.parent / "python"
    name = hashlib.sha256(str(SCRIPTS.parent).encode()).hexdigest()[:16]
    link = cache_folder() / f"package-{name}" / "rooflane"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        with contextlib.suppress(FileExistsError):  # another process was first
            link.symlink_to(SCRIPTS.parent)
    return link.parent


PACKAGE = package_folder()
sys.path.insert(0, str(PACKAGE))

from rooflane.program import PLACES, Refused, ask  # noqa: E402

PROGRAM = next(filter(Path.exists, PLACES), PLACES[-1])


__all__ = ["PACKAGE", "PROGRAM", "Figure", "Refused", "ask", "figure_of", "summary_of"]


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
