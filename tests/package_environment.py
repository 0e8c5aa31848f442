"""For tests of the Python package: they go on in an interpreter that has NumPy, ml_dtypes and
pandas beside the package of the build tree, or are skipped where these cannot be had."""
from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

import restart
import skip

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["cloudpickle==3.1.3", "ml_dtypes==0.6.0", "mypy==2.4.1", "numpy==2.4.6",
            "pandas==3.1.1", "typing_extensions==4.16.0"]
NAME = "package-tests"


def interpreter() -> Path:
    """The environment's interpreter, made now if need be. Raises Unavailable."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from python_environment import with_packages
    return with_packages(NAME, PACKAGES)


def enter(build: Path) -> None:
    """Goes on in that interpreter, with the package of a build folder on its path."""
    if not list((build / "python" / "rooflane").glob("_core*.so")):
        skip.everything("built without the Python package",
                        "from PyPI: nanobind, and python3-dev")
    restart.in_environment(NAME, PACKAGES, PYTHONPATH=str((build / "python").resolve()))


def run_with_torch(test: unittest.TestCase, script: str) -> None:
    """Runs a script in the peers' environment of PyTorch, and asserts that it ends well; skips the
    test where that was not prepared."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from peer_workers import environments
    from python_environment import Unavailable
    try:
        python = environments.interpreter("torch")
    except Unavailable as reason:
        test.skipTest(skip.reason(f"no PyTorch: {reason}"))
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False,
                          env={**os.environ, **environments.variables("torch")})
    test.assertEqual(done.returncode, 0, done.stderr)
