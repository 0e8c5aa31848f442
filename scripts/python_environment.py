"""Virtual environments that our Python scripts make for themselves, with packages from PyPI.

Not a script; standard library only. An environment is made once and kept under the user's cache
folder (`$XDG_CACHE_HOME/rooflane/python`, else `~/.cache/rooflane/python`): a file `ready`, written
last, repeats the recipe it was made from, so that a second call returns at once. Used by peers.py
and report.py. Where the command asks for help no environment is made: the script's own text is
printed instead, unless it has answered before.
"""
from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from script_help import answer_help

Pip = Callable[[Sequence[str]], None]


class Unavailable(Exception):
    """An environment cannot be had here; the text says why, in one line."""


def cache_folder() -> Path:
    """Where environments are kept."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "rooflane" / "python"


def folder_of(name: str) -> Path:
    """The folder of environment `name` for this version of Python."""
    return cache_folder() / f"{name}-{sys.implementation.cache_tag}"


def ready(name: str, recipe: str | None = None) -> Path | None:
    """The interpreter of environment `name` when it is complete, made from `recipe` (None: any)."""
    folder = folder_of(name)
    try:
        made_from = (folder / "ready").read_text(encoding="utf-8")
    except OSError:
        return None
    python = folder / "bin" / "python"
    return python if recipe in (None, made_from) and python.exists() else None


def failure(name: str) -> str | None:
    """Why the last attempt to make environment `name` failed; nothing when none did."""
    try:
        return (folder_of(name) / "failed").read_text(encoding="utf-8")
    except OSError:
        return None


def ensure(name: str, recipe: str, install: Callable[[Pip], None]) -> Path:
    """The interpreter of environment `name`, made now if need be.

    `install` is handed a function that runs `pip install ARGUMENTS`; `recipe` is text that changes
    whenever `install` would do something else. Progress goes to standard error. Two processes that
    want the same environment wait for one another, and share a failure. Raises Unavailable.
    """
    answer_help()
    if (python := ready(name, recipe)) is not None:
        return python
    folder = folder_of(name)
    failed_before = _time_of_failure(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / f"{folder.name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (python := ready(name, recipe)) is not None:
                return python
            # While this process waited for the lock another one failed, which takes seconds where
            # no host answers.
            if _time_of_failure(folder) != failed_before and (why := failure(name)):
                raise Unavailable(why)
            return _make(folder, recipe, install)
    except OSError as error:
        raise Unavailable(f"environment {folder} cannot be made: {error}") from error


def _time_of_failure(folder: Path) -> int:
    """When the last attempt to make this environment failed, in ns; 0 when none did."""
    try:
        return (folder / "failed").stat().st_mtime_ns
    except OSError:
        return 0


def with_packages(name: str, packages: Sequence[str], variable: str = "") -> Path:
    """The interpreter that the environment variable names, else that of an environment with these
    packages and nothing else, made now if need be. Raises Unavailable."""
    if given := os.environ.get(variable):
        return Path(given)
    return ensure(name, " ".join(packages), lambda pip: pip(["--only-binary=:all:", *packages]))


def pip_of(python: Path) -> list[str]:
    """The command that is pip for this interpreter. One pip serves all environments: unpacking one
    takes longer than most of the installations that follow. Raises Unavailable."""
    if python.parent.parent == folder_of("pip"):
        return [str(python), "-m", "pip"]
    recipe = "pip>=22.3"  # the first that has --python
    shared = ensure("pip", recipe, lambda pip: pip([recipe]))
    return [str(shared), "-m", "pip", "--python", str(python)]


def _make(folder: Path, recipe: str, install: Callable[[Pip], None]) -> Path:
    print(f"making the Python environment {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"

    def pip(arguments: Sequence[str]) -> None:
        # Python compiles what is imported, a small part of it, when it is, if it may keep that.
        compiles = [] if sys.dont_write_bytecode else ["--no-compile"]
        _run([*pip_of(python), "install", "--disable-pip-version-check", *compiles, "--no-input",
              "--quiet", *arguments])

    try:
        has_pip = [] if folder == folder_of("pip") else ["--without-pip"]
        _run([sys.executable, "-m", "venv", *has_pip, str(folder)])
        install(pip)
    except Unavailable as error:
        folder.mkdir(exist_ok=True)
        (folder / "failed").write_text(str(error), encoding="utf-8")
        raise
    partial = folder / "ready.partial"
    partial.write_text(recipe, encoding="utf-8")
    partial.rename(folder / "ready")
    return python


def _run(command: Sequence[str]) -> None:
    """Runs a command; what it prints goes to standard error, and its last line into the reason."""
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    sys.stderr.write(done.stdout)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    reason = (errors or lines or [f"exit status {done.returncode}"])[-1]
    if "ensurepip" in done.stdout:
        reason = "this Python cannot make virtual environments: apt-get install python3-venv"
    if "connection broken" in done.stdout:
        reason = "PyPI cannot be reached"
    raise Unavailable(reason)
