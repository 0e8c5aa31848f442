#!/usr/bin/env python3
"""`rooflane tune`, `rooflane archive` and the league: tune.py tune|archive|league ARGUMENT...

Makes the Python environment of the tuner from PyPI at the first call and starts the package
python/rooflane in it. This file runs under any Python 3.10 or newer with the standard library only.

  tune.py --prepare   makes the environment
  tune.py --python    prints its interpreter

ROOFLANE_TUNE_PYTHON names an interpreter that has the packages already; no environment is made
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

PACKAGES = ["cmaes==0.13.1", "distributed==2026.8.0", "json-repair==0.64.6", "jsonschema==4.26.0",
            "numpy==2.4.6", "openai==3.57.0", "optuna==5.0.0", "psycopg[binary]==3.3.9",
            "scipy==1.17.1", "sqlalchemy==2.1.9"]


def interpreter() -> str:
    """The interpreter of the environment, made now if need be. Raises Unavailable."""
    if given := os.environ.get("ROOFLANE_TUNE_PYTHON"):
        return given

    def install(pip: Pip) -> None:
        pip(["--only-binary=:all:", *PACKAGES])

    return str(ensure("tune", " ".join(PACKAGES), install))


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    try:
        python = interpreter()
        if words[:1] == ["--prepare"]:
            return 0
        if words[:1] == ["--python"]:
            print(python)
            return 0
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(PACKAGE)
        environment.setdefault("ROOFLANE_PROGRAM", str(PROGRAM))
        sys.stdout.flush()
        os.execve(python, [python, "-m", "rooflane", *words], environment)
    except Unavailable as reason:
        print(f"rooflane: the tuner's Python environment cannot be had: {reason}", file=sys.stderr)
    except OSError as error:
        print(f"rooflane: {error}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
