#!/usr/bin/env python3
"""Whole models against NumPy in double precision, or PyTorch, with the same weights.

  check_models.py [--torch] [--size NAME] [MODEL...]     default: every model, at size tiny

`rooflane model --save` writes weights, inputs, outputs and what the outputs may err by; the models
are written down once more in model_check/, by hand from their papers. Makes the peers' environment
(peers.py). Exit status: 0 all within their bounds, 1 not, 3 the environment cannot be had.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from peer_workers import environments  # noqa: E402
from python_environment import Unavailable  # noqa: E402


def models() -> list[str]:
    return sorted(path.stem for path in (SCRIPTS.parent / "bench" / "models").glob("*.txt"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares whole models with NumPy or PyTorch.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.add_argument("--torch", action="store_true", help="PyTorch in float32 instead of NumPy")
    parser.add_argument("--size", default="tiny", help="a small size; default: tiny")
    parser.add_argument("--rooflane", default=SCRIPTS.parent / "build" / "rooflane", type=Path)
    arguments = parser.parse_args()
    peer = "torch" if arguments.torch else "numpy"
    try:
        environments.prepare(peer)
        python = environments.interpreter(peer)
    except Unavailable as reason:
        print(f"check_models: {peer} cannot be had: {reason}", file=sys.stderr)
        return 3
    environment = {**os.environ, **environments.variables(peer), "PYTHONPATH": str(SCRIPTS)}
    environment.pop("OPENBLAS_CORETYPE", None)
    status = 0
    for model in arguments.models or models():
        with tempfile.TemporaryDirectory() as folder:
            for command in ([str(arguments.rooflane), "model", model, "--size", arguments.size,
                             "--save", folder],
                            [str(python), "-m", "model_check", folder,
                             *["--torch"] * arguments.torch]):
                quiet = subprocess.DEVNULL if command[1] == "model" else None
                done = subprocess.run(command, env=environment, stdout=quiet, check=False)
                if done.returncode != 0:
                    status = 1
                    break
    return status


if __name__ == "__main__":
    sys.exit(main())
