"""The file of tuned schedules, which bench, run and the library read: tuned.json.

docs/tuning.md describes its format. The machine's own store is such a file, next to the measured
traits.
"""
from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rooflane import files
from rooflane.tuning import Space, Verdict, text_of

VERSION = 1
KEYS = ("kernel", "variant", "shape", "math", "threads", "isa", "device", "cache")  # of a case


class BadFile(Exception):
    """A file that is not one of tuned schedules, or is of another machine; one line."""


def entry_of(space: Space, verdict: Verdict, build: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a verdict."""
    return {"kernel": space.kernel, "variant": space.variant, "shape": space.shape,
            "math": space.math, "threads": space.threads, "isa": space.isa,
            "device": space.device, "cache": space.cache, "tuning": text_of(verdict.chosen),
            "default": text_of(space.default),
            "ratio": {"value": round(verdict.ratio.value, 4), "low": round(verdict.ratio.low, 4),
                      "high": round(verdict.ratio.high, 4)},
            "exact": verdict.exact, "build": build.get("commit", ""),
            "time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def keep(path: Path, machine: dict[str, Any], space: Space, verdict: Verdict,
         build: dict[str, Any]) -> None:
    """Writes a verdict into a file in place of an earlier one for the same case. Where the default
    was chosen the file has no entry for the case: the model finds it by itself. Raises BadFile,
    OSError."""
    entry = entry_of(space, verdict, build)
    with _locked(path):
        document = _read(path, machine)
        # An entry that names no state of the caches is of the one that such a problem usually has.
        usual = {"cache": space.problem.get("usual_cache", "warm")}
        document["entries"] = [other for other in document["entries"]
                               if any((usual | other).get(key) != entry[key] for key in KEYS)]
        if verdict.chosen != space.default:
            document["entries"].append(entry)
        files.replace(path, _text_of(document))


def begin(path: Path, machine: dict[str, Any]) -> None:
    """Makes the file without entries, unless there is one. Raises BadFile, OSError."""
    with _locked(path):
        files.replace(path, _text_of(_read(path, machine)))


def require_writable(path: Path) -> None:
    """Before hours of measuring. Raises OSError."""
    with _locked(path):
        pass


def _text_of(document: dict[str, Any]) -> str:
    """One entry a line."""
    entries = ",\n".join("    " + json.dumps(entry) for entry in document["entries"])
    return (f'{{"rooflane_tuned": {VERSION},\n "machine": {json.dumps(document["machine"])},\n'
            f' "entries": [\n{entries}\n]}}\n')


def _read(path: Path, machine: dict[str, Any]) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"rooflane_tuned": VERSION, "machine": machine, "entries": []}
    try:
        document = json.loads(text)
        if document["rooflane_tuned"] != VERSION:
            raise BadFile(f"{path}: of version {document['rooflane_tuned']}, not {VERSION}")
        if document["machine"]["key"] != machine["key"]:
            raise BadFile(f"{path}: tuned on another machine ({document['machine']['key']})")
        if not isinstance(document["entries"], list):
            raise BadFile(f"{path}: its entries are no list")
    except (ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path}: no file of tuned schedules ({error})") from error
    return document


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Other searches wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
