#!/usr/bin/env python3
"""`rooflane tune`, `rooflane archive` and the league: tune.py tune|archive|league ARGUMENT...; and
the processes of a cluster: tune.py scheduler|worker ARGUMENT...

Makes the Python environment of the tuner from PyPI at the first call and starts the package
python/rooflane in it. This file runs under any Python 3.10 or newer with the standard library only.

  tune.py --prepare [gp]   makes the environment
  tune.py --python [gp]    prints its interpreter

Strategy gp needs PyTorch besides: a second environment, which takes 2 to 7 GB, is made when it is
asked for: when a word of the command, or a part of one between "=", "," and ":", is gp.
ROOFLANE_TUNE_PYTHON names an interpreter that has the packages already; no environment is made
then. ROOFLANE_PROGRAM names the program; default: build/rooflane. Exit status 3: the environment
cannot be had here (the reason is told); else what the package says.
"""
from __future__ import annotations

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from package_verb import start  # noqa: E402
from peer_workers import environments  # noqa: E402
from python_environment import Pip, ensure, with_packages  # noqa: E402

PACKAGES = ["cmaes==0.13.1", "distributed==2026.8.0", "json-repair==0.64.6", "jsonschema==4.26.0",
            "numpy==2.4.6", "openai==3.57.0", "optuna==5.0.0", "psycopg[binary]==3.3.9",
            "scikit-learn==1.9.1", "scipy==1.17.1", "sqlalchemy==2.1.9"]
VARIABLE = "ROOFLANE_TUNE_PYTHON"


def asks_for_gp(words: list[str]) -> bool:
    """Whether a command needs PyTorch."""
    return any("gp" in re.split("[=,:]", word) for word in words)


def interpreter(gp: bool = False) -> Path:
    """The interpreter of the environment, made now if need be; `gp`: of the one with PyTorch.
    Raises Unavailable."""
    if not gp or os.environ.get(VARIABLE):
        return with_packages("tune", PACKAGES, VARIABLE)

    def install_with_torch(pip: Pip) -> None:
        pip(["--only-binary=:all:", *PACKAGES])
        environments.install_torch(pip, "tune-gp")

    return ensure("tune-gp", " ".join([*PACKAGES, environments.torch_recipe()]),
                  install_with_torch)


def variables(gp: bool = False) -> dict[str, str]:
    """The environment variables that the interpreter is started with."""
    if gp and not os.environ.get(VARIABLE):
        return environments.torch_variables("tune-gp")
    return {}


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    gp = asks_for_gp(words)
    return start(words, words, lambda: interpreter(gp), "the tuner's", variables(gp))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
