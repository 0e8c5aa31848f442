"""`rooflane archive list|best|history|statistics|prune|export|import [--archive URL]`; arguments.py
reads what follows.

Exit status: 0 good, 2 a wrong argument or file, 3 the archive cannot be served here (PostgreSQL
does not answer, a newer schema). Data goes to standard output, everything else to standard error.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from . import documents, formats, tables
from .arguments import arguments_of, nearest
from .place import ArchiveError, default_path
from .queries import RunLine, Selection
from .records import RunRecord
from .store import Archive

SCHEMA_VERSION = 1  # of the output of --json


def _open(arguments: argparse.Namespace, create: bool = False) -> Archive | None:
    """The archive; none where nobody named one and the user has none yet."""
    named = arguments.archive or os.environ.get("ROOFLANE_ARCHIVE")
    if not named and not create and not default_path().exists():
        print(f"nothing was tuned yet: no archive '{default_path()}'", file=sys.stderr)
        return None
    return Archive(arguments.archive, create)


def _parts(shape: str) -> tuple[str, frozenset[str]]:
    """A problem whatever the order of its keys."""
    kernel, _, values = shape.partition(":")
    return kernel.strip(), frozenset(value.strip() for value in values.split(","))


def _selection(archive: Archive, arguments: argparse.Namespace, run: int | None = None
               ) -> Selection:
    """What the flags select. Raises ArchiveError on what the archive does not have."""
    found: dict[str, Any] = {"space": arguments.space, "run": run}
    for name in ("kernel", "variant", "machine", "strategy", "shape"):
        given = getattr(arguments, name)
        if given is None:
            continue
        known = archive.names(name)
        match = next((one for one in known if one == given or
                      name == "shape" and _parts(one) == _parts(given)), None)
        if match is None and known:
            raise ArchiveError(f"--{name}: the archive has nothing of '{given}'"
                               + nearest(given, known))
        found[name] = match or given
    selection = Selection(**found)
    for flag, number in (("--space", arguments.space), ("run", run)):
        if number is not None and not archive.runs(selection):
            raise ArchiveError(f"{flag}: the archive has no {flag.lstrip('-')} {number} in "
                               "this selection")
    return selection


def _json(name: str, value: Any, archive: Archive | None) -> str:
    """What --json prints."""
    def plain(one: Any) -> Any:
        if isinstance(one, datetime):
            return one.isoformat()
        if is_dataclass(one) and not isinstance(one, type):
            return asdict(one)
        raise TypeError(type(one).__name__)

    document = {"schema_version": SCHEMA_VERSION, "archive": archive.url if archive else None,
                name: value}
    return json.dumps(document, indent=2, default=plain) + "\n"


def _list(arguments: argparse.Namespace) -> str:
    archive = _open(arguments)
    lines = archive.runs(_selection(archive, arguments)) if archive else []
    return _json("runs", lines, archive) if arguments.json else tables.run_table(lines)


def _best(arguments: argparse.Namespace) -> str:
    archive = _open(arguments)
    lines = archive.best(_selection(archive, arguments), arguments.top) if archive else []
    if arguments.json:
        return _json("best", lines, archive)
    defaults = {line.space: archive.record_of(line.run).space.default
                for line in lines} if archive else {}
    return tables.best_table(lines, defaults)


def _records(archive: Archive, selection: Selection) -> list[tuple[RunLine, RunRecord]]:
    return [(line, archive.record_of(line.run)) for line in archive.runs(selection)]


def _history(arguments: argparse.Namespace) -> str:
    chosen = (arguments.run, arguments.kernel, arguments.variant, arguments.shape, arguments.space,
              arguments.strategy, arguments.machine)
    if all(value is None for value in chosen):
        raise ArchiveError("archive: history needs RUN or --shape S; `archive list` prints them")
    archive = _open(arguments)
    runs = _records(archive, _selection(archive, arguments, arguments.run)) if archive else []
    if arguments.json:
        return _json("runs", [{"run": line.run, **documents.run_record(run)}
                              for line, run in runs], archive)
    return "\n".join(f"run {line.run}: {run.space.title}, {run.strategy}, {run.state}\n"
                     + tables.history_table(run) for line, run in runs)


def _statistics(arguments: argparse.Namespace) -> str:
    archive = _open(arguments)
    if archive is None:
        return _json("statistics", None, archive) if arguments.json else ""
    found = archive.statistics(_selection(archive, arguments, arguments.run))
    if arguments.json:
        return _json("statistics", found, archive)
    return tables.statistics_text(found)


def _prune(arguments: argparse.Namespace) -> str:
    if arguments.older_than is None and arguments.keep is None and not arguments.failed:
        raise ArchiveError("archive: prune needs --older-than DAYS, --keep N or --failed")
    archive = _open(arguments)
    if archive is None:
        return _json("pruned", None, archive) if arguments.json else ""
    pruned = archive.prune(arguments.older_than, arguments.keep, arguments.failed,
                           arguments.dry_run)
    if arguments.json:
        return _json("pruned", {**asdict(pruned), "dry_run": arguments.dry_run}, archive)
    return (f"{'would remove' if arguments.dry_run else 'removed'} {pruned.evaluations} "
            f"evaluations, {pruned.runs} runs with {pruned.exchanges} exchanges, {pruned.spaces} "
            "spaces\n")


def _export(arguments: argparse.Namespace) -> str:
    if arguments.format not in formats.FORMATS:
        raise ArchiveError(f"--format '{arguments.format}'"
                           + nearest(arguments.format, formats.FORMATS))
    archive = _open(arguments)
    if archive is None:
        raise ArchiveError("archive: there is nothing to export")
    runs = [run for _, run in _records(archive, _selection(archive, arguments, arguments.run))]
    text = formats.write(runs, arguments.format)
    if arguments.file == "-":
        return text
    _replace(Path(arguments.file), text)
    count = sum(len(run.trials) for run in runs)
    if arguments.json:
        return _json("exported", {"file": arguments.file, "format": arguments.format,
                                  "runs": len(runs), "evaluations": count}, archive)
    print(f"{arguments.file}: {len(runs)} runs, {count} evaluations", file=sys.stderr)
    return ""


def _replace(path: Path, text: str) -> None:
    """Writes a file that is there only when it is complete. Raises ArchiveError."""
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            path.write_text(text, encoding="utf-8")
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent,
                                         prefix=f".{path.name}.", delete=False) as file:
            partial = Path(file.name)
            file.write(text)
        partial.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
        partial.replace(path)
    except OSError as error:
        raise ArchiveError(f"'{path}' cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _import(arguments: argparse.Namespace) -> str:
    if arguments.format is not None and arguments.format not in formats.FORMATS:
        raise ArchiveError(f"--format '{arguments.format}'"
                           + nearest(arguments.format, formats.FORMATS))
    runs = formats.read(Path(arguments.file), arguments.format)
    archive = _open(arguments, create=True)
    added = [{"run": number, "evaluations": len(run.trials), "new": new}
             for run in runs for number, new in [archive.add(run)]]
    if arguments.json:
        return _json("imported", added, archive)
    for one in added:
        print(f"run {one['run']}: {one['new']} new of {one['evaluations']} evaluations",
              file=sys.stderr)
    return ""


RUN = {"list": _list, "best": _best, "history": _history, "statistics": _statistics,
       "prune": _prune, "export": _export, "import": _import}


def main(words: list[str]) -> int:
    """Runs a verb; the exit status."""
    try:
        arguments = arguments_of(words)
        sys.stdout.write(RUN[arguments.verb](arguments))
        sys.stdout.flush()
        return 0
    except ArchiveError as error:
        print(f"rooflane: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
