"""For tests of python/rooflane/onnx_graph: they go on in the interpreter that has the onnx package,
or are skipped where it cannot be had."""
from __future__ import annotations

import os
import sys
from pathlib import Path

import skip

ROOT = Path(__file__).resolve().parent.parent


def enter() -> None:
    """Goes on in that interpreter, with our package on its path."""
    sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "python")]
    import model_shapes
    from python_environment import Unavailable
    try:
        python = model_shapes.interpreter()
    except Unavailable as reason:
        if "PyPI cannot be reached" in str(reason):
            skip.everything(str(reason), f"from PyPI: {' '.join(model_shapes.PACKAGES)}")
        sys.exit(f"no environment: {reason}")
    if Path(sys.prefix).resolve() != Path(python).parent.parent.resolve():
        os.execv(python, [python, *sys.argv])
