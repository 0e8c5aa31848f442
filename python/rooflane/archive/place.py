"""How an archive is named, and the error of all that concerns one. Standard library only."""
from __future__ import annotations

import os
from pathlib import Path

FORMATS = ("t4", "kernel-tuner")
VALID = "a path, sqlite:///PATH, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"


class ArchiveError(Exception):
    """What an archive cannot do, in one line. status: 2 the argument is wrong, 3 it cannot be
    served here."""

    def __init__(self, reason: str, status: int = 2):
        super().__init__(reason)
        self.status = status


def default_path() -> Path:
    """Where the archive lies when nobody says: $XDG_DATA_HOME/rooflane/tune.sqlite."""
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "rooflane" / "tune.sqlite"
