#!/usr/bin/env python3
"""The Python environment that the package `rooflane` is built and tested with.

  bindings_environment.py           makes it from PyPI at the first call, prints its interpreter
  bindings_environment.py --ready   prints, without making anything, an interpreter that has
                                    nanobind and nanobind's folder: this interpreter, or that of
                                    the environment

Exit status 3: it cannot be had here; the reason is told in one line.
"""
from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from python_environment import Pip, Unavailable, ensure, failure, ready
from script_help import answer_help

NAME = "bindings"
PACKAGES = ["nanobind==3.1.0", "numpy==2.4.6"]
RECIPE = " ".join(PACKAGES)


def nanobind_folder(python: str) -> str:
    """The folder of that interpreter's nanobind."""
    code = "import nanobind; print(nanobind.include_dir())"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Unavailable(f"{python} has no nanobind that can be imported")
    return str(Path(found.stdout.strip()).parent)


def standing() -> str:
    """The interpreter that is there already."""
    if importlib.util.find_spec("nanobind") is not None:
        return sys.executable
    if (python := ready(NAME, RECIPE)) is not None:
        return str(python)
    raise Unavailable(failure(NAME) or "its environment is not made: scripts/build.sh makes it")


def main(words: list[str]) -> int:
    """Prints the interpreter, with --ready nanobind's folder too."""
    def install(pip: Pip) -> None:
        pip(["--only-binary=:all:", *PACKAGES])

    answer_help()
    try:
        if words == ["--ready"]:
            python = standing()
            print(python, nanobind_folder(python), sep="\n")
        elif not words:
            print(ensure(NAME, RECIPE, install))
        else:
            print("usage: bindings_environment.py [--ready]", file=sys.stderr)
            return 2
    except Unavailable as reason:
        print(reason)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
