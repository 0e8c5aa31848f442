"""`rooflane archive list|best|history|statistics|prune|export|import [--archive URL]`; arguments.py
reads what follows.

Exit status: 0 good, 2 a wrong argument or file, 3 the archive cannot be served here (PostgreSQL
does not answer, another schema). Data goes to standard output, everything else to standard error.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rooflane import files

from . import formats, queries, tables
from .arguments import arguments_of, nearest
from .place import ArchiveError, default_path
from .queries import Selection, Stored
from .records import plain
from .store import Archive

SCHEMA_VERSION = 1  # of the output of --json
SELECTING = ("kernel", "variant", "machine", "strategy", "shape")


def _parts(shape: str) -> tuple[str, frozenset[str]]:
    """A problem whatever the order of its keys."""
    kernel, _, values = shape.partition(":")
    return kernel.strip(), frozenset(value.strip() for value in values.split(","))


def _selected(archive: Archive, arguments: argparse.Namespace) -> list[Stored]:
    """The runs that the flags select. Raises ArchiveError on what the archive does not have."""
    everything = archive.stored({})
    selection: Selection = {}
    for name in SELECTING:
        given = getattr(arguments, name)
        known = sorted({one.line()[name] for one in everything})
        if given is None or not known:
            continue
        match = next((one for one in known if one == given or
                      name == "shape" and _parts(one) == _parts(given)), None)
        if match is None:
            raise ArchiveError(f"--{name}: the archive has nothing of '{given}'"
                               + nearest(given, known))
        selection[name] = match
    for flag, name in (("--space", "space"), ("run", "run")):
        number = getattr(arguments, name, None)
        selection[name] = number
        if number is not None and not any(one.is_in(selection) for one in everything):
            raise ArchiveError(f"{flag}: the archive has no {name} {number} in this selection")
    return [one for one in everything if one.is_in(selection)]


def _list(found: list[Stored], _: argparse.Namespace) -> tuple[Any, str]:
    lines = queries.runs(found)
    return lines, tables.run_table(lines)


def _best(found: list[Stored], arguments: argparse.Namespace) -> tuple[Any, str]:
    lines = queries.best(found, arguments.top)
    return lines, tables.best_table(lines)


def _history(found: list[Stored], _: argparse.Namespace) -> tuple[Any, str]:
    return ([{"run": one.id, **{"evaluations" if name == "trials" else name: value
                                for name, value in plain(one.run).items()}} for one in found],
            "\n".join(f"run {one.id}: {one.run.space.title}, {one.run.strategy}, {one.run.state}\n"
                      + tables.history_table(one.run) for one in found))


def _statistics(found: list[Stored], _: argparse.Namespace) -> tuple[Any, str]:
    told = queries.statistics(found)
    return told, tables.statistics_text(told)


# What shows runs: the name in JSON, and JSON and text of the selected runs.
Show = Callable[[list[Stored], argparse.Namespace], tuple[Any, str]]
SHOWN: dict[str, tuple[str, Show]] = {
    "list": ("runs", _list), "best": ("best", _best), "history": ("runs", _history),
    "statistics": ("statistics", _statistics)}


def _prune(archive: Archive, arguments: argparse.Namespace) -> tuple[Any, str]:
    pruned = archive.prune(arguments.older_than, arguments.keep, arguments.failed,
                           arguments.dry_run)
    return {**pruned, "dry_run": arguments.dry_run}, (
        f"{'would remove' if arguments.dry_run else 'removed'} {pruned['evaluations']} "
        f"evaluations, {pruned['runs']} runs with {pruned['exchanges']} exchanges, "
        f"{pruned['spaces']} spaces\n")


def _export(archive: Archive, arguments: argparse.Namespace) -> tuple[Any, str]:
    runs = [one.run for one in _selected(archive, arguments)]
    text = formats.write(runs, arguments.format)
    if arguments.file == "-":
        arguments.json = False
        return None, text
    path = Path(arguments.file)
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            path.write_text(text, encoding="utf-8")
        else:
            files.replace(path, text)
    except OSError as error:
        raise ArchiveError(f"'{path}' cannot be written: {error.strerror}") from error
    count = sum(len(run.trials) for run in runs)
    if not arguments.json:
        print(f"{arguments.file}: {len(runs)} runs, {count} evaluations", file=sys.stderr)
    return {"file": arguments.file, "format": arguments.format, "runs": len(runs),
            "evaluations": count}, ""


def _import(archive: Archive, arguments: argparse.Namespace) -> tuple[Any, str]:
    added = [{"run": number, "evaluations": len(run.trials), "new": new}
             for run in arguments.runs for number, new in [archive.add(run)]]
    for one in [] if arguments.json else added:
        print(f"run {one['run']}: {one['new']} new of {one['evaluations']} evaluations",
              file=sys.stderr)
    return added, ""


WORK = {"prune": ("pruned", _prune), "export": ("exported", _export),
        "import": ("imported", _import)}


def _check(arguments: argparse.Namespace) -> None:
    """What no parser sees. Raises ArchiveError."""
    given = vars(arguments)
    if arguments.verb == "history" and all(given[name] is None
                                           for name in (*SELECTING, "space", "run")):
        raise ArchiveError("archive: history needs RUN or --shape S; `archive list` prints them")
    if arguments.verb == "prune" and not arguments.failed and (
            arguments.older_than is arguments.keep is None):
        raise ArchiveError("archive: prune needs --older-than DAYS, --keep N or --failed")
    if arguments.verb == "import":
        arguments.runs = formats.read(arguments.file, arguments.format)


def _run(arguments: argparse.Namespace) -> str:
    """What a verb prints. Without an archive that somebody named, and none yet, it is empty."""
    _check(arguments)
    verb = arguments.verb
    archive = None
    if (arguments.archive or os.environ.get("ROOFLANE_ARCHIVE") or default_path().exists()
            or verb == "import"):
        archive = Archive(arguments.archive, create=verb == "import")
    elif verb == "export":
        raise ArchiveError("archive: there is nothing to export")
    else:
        print(f"nothing was tuned yet: no archive '{default_path()}'", file=sys.stderr)
    if verb in SHOWN:
        name, show = SHOWN[verb]
        value, text = show(_selected(archive, arguments) if archive else [], arguments)
        if archive is None and verb in ("history", "statistics"):
            text = ""
    else:
        name, work = WORK[verb]
        value, text = work(archive, arguments) if archive else (None, "")
    if not arguments.json:
        return text
    document = {"schema_version": SCHEMA_VERSION, "archive": archive.url if archive else None,
                name: value}
    return json.dumps(plain(document), indent=2) + "\n"


def main(words: list[str]) -> int:
    """Runs a verb; the exit status."""
    try:
        sys.stdout.write(_run(arguments_of(words)))
        sys.stdout.flush()
        return 0
    except ArchiveError as error:
        print(f"rooflane: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
