"""The formats by name, and which of them a file is."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from . import documents, kernel_tuner, t4
from .interchange import FormatError
from .place import ArchiveError
from .records import RunRecord

Write = Callable[[Sequence[RunRecord]], str]
Read = Callable[[str, str], list[RunRecord]]
FORMATS: dict[str, tuple[Write, Read]] = {
    "t4": (t4.write, t4.read), "kernel-tuner": (kernel_tuner.write, kernel_tuner.read),
    "json": (documents.write_json, documents.read_json)}


def guess(text: str) -> str | None:
    """The format of a text; none where it is none of them."""
    if '"tune_params_keys"' in text[:100_000]:  # perhaps without its end
        return "kernel-tuner"
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    if document.get("format") == documents.FORMAT:
        return "json"
    return "t4" if isinstance(document.get("results"), list) else None


def write(runs: Sequence[RunRecord], name: str) -> str:
    """Runs in a format. Raises ArchiveError."""
    try:
        return FORMATS[name][0](runs)
    except FormatError as error:
        raise ArchiveError(f"--format {name}: {error}") from error


def read(path: Path, name: str | None) -> list[RunRecord]:
    """The runs of a file. Raises ArchiveError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        raise ArchiveError(f"'{path}' cannot be read: {reason}") from error
    found = name or guess(text)
    if found is None:
        raise ArchiveError(f"'{path}' is none of the formats {', '.join(FORMATS)}")
    try:
        return FORMATS[found][1](text, path.name)
    except FormatError as error:
        raise ArchiveError(f"'{path}': {error}") from error
    except KeyError as error:
        raise ArchiveError(f"'{path}' is not a {found} file: {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        why = str(error).splitlines()[0]
        raise ArchiveError(f"'{path}' is not a {found} file: {why}") from error
