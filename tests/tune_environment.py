"""For tests of python/rooflane: they go on in the interpreter of the tuner or of another script, or
are skipped where its packages cannot be had."""
from __future__ import annotations

import importlib
import os
import sys
import unittest
from collections.abc import Callable
from pathlib import Path

import skip

ROOT = Path(__file__).resolve().parent.parent


def interpreter(test: unittest.TestCase, script: str = "tune") -> str:
    """The same interpreter for programs that a test starts; skips the test where there is none."""
    return _made(script, lambda *why: test.skipTest(skip.reason(*why)))


def enter(script: str = "tune") -> None:
    """Goes on in the interpreter that has the script's packages, with the package on its path."""
    sys.path[:0] = [str(ROOT / "python")]
    python = _made(script, skip.everything)
    if Path(sys.prefix).resolve() != Path(python).parent.parent.resolve():
        os.execv(python, [python, *sys.argv])


def _made(script: str, skipped: Callable[[str, str], object]) -> str:
    sys.path[:0] = [str(ROOT / "scripts")]
    maker = importlib.import_module(script)
    from python_environment import Unavailable
    try:
        return maker.interpreter()
    except Unavailable as reason:
        if "PyPI cannot be reached" not in str(reason):
            raise
        skipped(str(reason), f"from PyPI: {' '.join(maker.PACKAGES)}")
