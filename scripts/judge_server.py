#!/usr/bin/env python3
"""The MCP server of `rooflane judge`: judge_server.py OPTION...

Makes the Python environment for it from PyPI at the first call and starts python/rooflane/mcp in
it. This file runs under any Python 3.10 or newer with the standard library only.

  judge_server.py --prepare   makes the environment
  judge_server.py --python    prints its interpreter

ROOFLANE_MCP_PYTHON names an interpreter that has the package mcp already; no environment is made
then. ROOFLANE_PROGRAM names the program; default: build/rooflane. Exit status 3: the environment
cannot be had here (the reason is told); else what the package says.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from package_verb import start  # noqa: E402
from python_environment import with_packages  # noqa: E402

PACKAGES = ["mcp==2.3.0"]


def interpreter() -> Path:
    """The interpreter that has the packages. Raises Unavailable."""
    return with_packages("mcp", PACKAGES, "ROOFLANE_MCP_PYTHON")


def main(words: list[str]) -> int:
    """Becomes the package in its interpreter."""
    return start(words, ["mcp", *words], interpreter, "the MCP server's")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
