"""python -m model_check FOLDER [--torch]: outputs of a saved model against NumPy in double, or
PyTorch in float32. One line an output; exit status 1 when one errs by more than its bound.
"""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from model_check.forward import MODELS
from model_check.operations import NumpyOperations, TorchOperations


def check(folder: Path, op: Any) -> bool:
    saved = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    good = True
    for phase, described in saved["phases"].items():
        def tensor(name: str, phase: str = phase) -> Any:
            own = folder / f"{phase}.{name}.npy"
            return op.array(np.load(own if own.exists() else folder / f"{name}.npy"))

        outputs = MODELS[saved["model"]](op, described["symbols"], tensor)
        for name, bound in described["bounds"].items():
            got = np.load(folder / f"{phase}.{name}.npy").astype(np.float64)
            error = float(np.abs(got - op.numbers(outputs[name]).reshape(got.shape)).max())
            passed = error <= bound
            good = good and passed
            print(f"{'PASSED' if passed else 'FAILED'} {saved['model']} {phase}/{name}: differs "
                  f"from {op.name} by {error:.3g}, bound {bound:.3g}, "
                  f"values up to {np.abs(got).max():.3g}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="A saved model, computed by others.")
    parser.add_argument("folder", type=Path, help="what `rooflane model --save` wrote")
    parser.add_argument("--torch", action="store_true", help="PyTorch instead of NumPy")
    arguments = parser.parse_args()
    op = TorchOperations() if arguments.torch else NumpyOperations()
    return 0 if check(arguments.folder, op) else 1


if __name__ == "__main__":
    sys.exit(main())
