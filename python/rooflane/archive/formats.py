"""What `archive import` reads: files in the formats of other tuners, and other archives. A run of
an archive keeps its `uid`, so that it is the same in every archive."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from . import kernel_tuner, t4
from .interchange import FormatError
from .place import FORMATS, ArchiveError
from .records import RunRecord
from .store import Archive

MODULES = dict(zip(FORMATS, (t4, kernel_tuner)))
SQLITE = b"SQLite format 3\0"


def guess(text: str) -> str | None:
    """The format of a text; none where it is none of them."""
    if '"tune_params_keys"' in text[:100_000]:  # perhaps without its end
        return "kernel-tuner"
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return "t4" if isinstance(document, dict) and isinstance(document.get("results"),
                                                             list) else None


def write(runs: Sequence[RunRecord], name: str) -> str:
    """Runs in a format. Raises ArchiveError."""
    try:
        return MODULES[name].write(runs)
    except FormatError as error:
        raise ArchiveError(f"--format {name}: {error}") from error


def read(source: str, name: str | None) -> list[RunRecord]:
    """The runs of a file, or of another archive. Raises ArchiveError."""
    if "://" in source:
        return [one.run for one in Archive(source, create=False).stored({})]
    path = Path(source)
    try:
        content = path.read_bytes()
        if content.startswith(SQLITE):
            return [one.run for one in Archive(source, create=False).stored({})]
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        raise ArchiveError(f"'{path}' cannot be read: {reason}") from error
    found = name or guess(text)
    if found is None:
        raise ArchiveError(f"'{path}' is neither an archive nor of the formats "
                           + ", ".join(FORMATS))
    try:
        return [MODULES[found].read(text, path.name)]
    except FormatError as error:
        raise ArchiveError(f"'{path}': {error}") from error
    except KeyError as error:
        raise ArchiveError(f"'{path}' is not a {found} file: {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        why = str(error).splitlines()[0]
        raise ArchiveError(f"'{path}' is not a {found} file: {why}") from error
