#!/usr/bin/env python3
"""`rooflane generate` with a text: generate.py ARGUMENT...

Makes the Python environment for it (tokenizer, chat templates) from PyPI at the first call and
starts python/rooflane/generate in it. This file runs under any Python 3.10 or newer with the
standard library only.

  generate.py --prepare   makes the environment
  generate.py --python    prints its interpreter

ROOFLANE_GENERATE_PYTHON names an interpreter that has the packages already; no environment is made
then. ROOFLANE_PROGRAM names the program; default: build/rooflane. Exit status 3: the environment
cannot be had here (the reason is told); else what the package says.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
PACKAGE = SCRIPTS.parent / "python"
sys.path.insert(0, str(SCRIPTS))

from python_environment import Pip, Unavailable, ensure  # noqa: E402
from rooflane_json import PROGRAM  # noqa: E402

PACKAGES = ["jinja2==3.1.6", "tokenizers==0.23.3"]


def interpreter() -> str:
    """The interpreter that has the packages. Raises Unavailable."""
    if given := os.environ.get("ROOFLANE_GENERATE_PYTHON"):
        return given

    def install(pip: Pip) -> None:
        pip(["--only-binary=:all:", *PACKAGES])

    return str(ensure("generate", "\n".join(PACKAGES), install))


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    try:
        python = interpreter()
        if words[:1] == ["--prepare"]:
            return 0
        if words[:1] == ["--python"]:
            print(python)
            return 0
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        environment.setdefault("ROOFLANE_PROGRAM", str(PROGRAM))
        sys.stdout.flush()
        os.execve(python, [python, "-m", "rooflane", "generate", *words], environment)
    except Unavailable as reason:
        print(f"rooflane: generate's Python environment cannot be had: {reason}", file=sys.stderr)
    except OSError as error:
        print(f"rooflane: {error}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
