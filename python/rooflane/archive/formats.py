"""The formats by name, and which of them a file is. Our own is JSON, which holds runs whole; a run
keeps its `uid`, so that it is the same in every archive."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from . import kernel_tuner, t4
from .interchange import FormatError
from .place import ArchiveError
from .records import RunRecord, run_of, run_record

OURS, VERSION = "rooflane-archive", 1


def write_json(runs: Sequence[RunRecord]) -> str:
    """Runs of any spaces, whole."""
    return json.dumps({"format": OURS, "schema_version": VERSION,
                       "runs": list(map(run_record, runs))}, indent=1) + "\n"


def read_json(text: str, _: str) -> list[RunRecord]:
    """The inverse."""
    document = json.loads(text)
    if document["schema_version"] > VERSION:
        raise FormatError(f"its schema is {document['schema_version']}; this version knows "
                          f"{VERSION}")
    return list(map(run_of, document["runs"]))


Write = Callable[[Sequence[RunRecord]], str]
Read = Callable[[str, str], list[RunRecord]]
FORMATS: dict[str, tuple[Write, Read]] = {
    "t4": (t4.write, t4.read), "kernel-tuner": (kernel_tuner.write, kernel_tuner.read),
    "json": (write_json, read_json)}


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
    if document.get("format") == OURS:
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
