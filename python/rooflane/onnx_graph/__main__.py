"""python -m rooflane.onnx_graph PROGRAM ARGUMENT...: started by scripts/model_shapes.py; the
program's kernels, as `rooflane list --json` has them, on standard input."""
from __future__ import annotations

import json
import sys
from pathlib import Path

from .command import main

listed = json.load(sys.stdin)
sys.exit(main(sys.argv[2:], {
    kernel["name"]: frozenset(parameter["name"] for parameter in kernel["parameters"])
    for kernel in listed["kernels"]}, Path(sys.argv[1])))
