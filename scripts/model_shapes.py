#!/usr/bin/env python3
"""ONNX graph to model file: model_shapes.py FILE.onnx [--batch N] [--len N] [--out FILE].

Operators that Rooflane has kernels for become steps; the others are listed (docs/models.md). --help
names all options. This file needs only the standard library; the graph is read (python/rooflane/
onnx_graph/) in an environment with the onnx package, installed from PyPI at the first call.
ROOFLANE_ONNX_PYTHON names an interpreter that already has the package.

Exit status: 0 good, 2 wrong arguments or file, 3 the environment or the program is not available.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from python_environment import Unavailable, with_packages  # noqa: E402
from rooflane_json import PACKAGE, PROGRAM, Refused, ask  # noqa: E402

PACKAGES = ["numpy==2.4.6", "onnx==1.23.2"]


def interpreter() -> Path:
    """The interpreter of the environment, made now if need be. Raises Unavailable."""
    return with_packages("onnx", PACKAGES, "ROOFLANE_ONNX_PYTHON")


def main(words: list[str]) -> int:
    """Asks the program for its kernels and hands all else to the package."""
    from rooflane.onnx_graph.arguments import parser
    program = (parser().parse_args(words).rooflane or PROGRAM).absolute()
    try:
        python = interpreter()
        listed = ask(program, "list")
        command = [python, "-m", "rooflane.onnx_graph", str(program), *words]
        return subprocess.run(command, input=json.dumps(listed), text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE)}).returncode
    except (Unavailable, Refused, OSError) as error:
        print(f"model_shapes.py: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
