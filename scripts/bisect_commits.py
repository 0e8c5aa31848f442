#!/usr/bin/env python3
"""`rooflane bisect`: bisect_commits.py ARGUMENT...

Starts python/rooflane/bisection. This file and the package need Python 3.10 or newer and the
standard library only. ROOFLANE_PROGRAM names the program that compares; default: build/rooflane.
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from package_verb import start  # noqa: E402

if __name__ == "__main__":
    command = ["bisect", *sys.argv[1:]]
    sys.exit(start(command, command, lambda: Path(sys.executable), "bisect's"))
