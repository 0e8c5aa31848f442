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

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from package_verb import start  # noqa: E402
from python_environment import with_packages  # noqa: E402

PACKAGES = ["jinja2==3.1.6", "tokenizers==0.23.3"]


def interpreter() -> Path:
    """The interpreter that has the packages. Raises Unavailable."""
    return with_packages("generate", PACKAGES, "ROOFLANE_GENERATE_PYTHON")


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    return start(words, ["generate", *words], interpreter, "generate's")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
