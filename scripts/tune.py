#!/usr/bin/env python3
"""`rooflane tune`, `rooflane archive` and the league: tune.py tune|archive|league ARGUMENT...; and
the processes of a cluster: tune.py scheduler|worker ARGUMENT...

Makes the Python environment of the tuner from PyPI at the first call and starts the package
python/rooflane in it. This file runs under any Python 3.10 or newer with the standard library only.

  tune.py --prepare   makes the environment
  tune.py --python    prints its interpreter

ROOFLANE_TUNE_PYTHON names an interpreter that has the packages already; no environment is made
then. ROOFLANE_PROGRAM names the program; default: build/rooflane. Exit status 3: the environment
cannot be had here (the reason is told); else what the package says.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from package_verb import start  # noqa: E402
from python_environment import with_packages  # noqa: E402

PACKAGES = ["cmaes==0.13.1", "distributed==2026.8.0", "json-repair==0.64.6", "jsonschema==4.26.0",
            "numpy==2.4.6", "openai==3.57.0", "psycopg[binary]==3.3.9",
            "scipy==1.17.1", "sqlalchemy==2.1.9"]


def interpreter() -> Path:
    """The interpreter of the environment, made now if need be. Raises Unavailable."""
    return with_packages("tune", PACKAGES, "ROOFLANE_TUNE_PYTHON")


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    return start(words, words, interpreter, "the tuner's")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
