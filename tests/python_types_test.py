#!/usr/bin/env python3
"""Types and help of the Python package: python_types_test.py BUILD_DIR."""
from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import package_environment
import skip

# What users import, and what these import; the tuner and reports are programs.
MODULES = ["__init__", "__main__", "_core", "allocation", "errors", "function_peers", "functions",
           "listing", "measuring", "plans", "program", "user_variants"]
USE = """
import numpy as np
import rooflane

x = np.zeros((2, 3), np.float32)
rooflane.softmax(x, threads=1, out=x)
plan: rooflane.Plan = rooflane.plan("softmax", x=x)
plan.run()
{}
"""


def package_folder() -> Path:
    return Path(rooflane.__file__).parent


def mypy(*words):
    with tempfile.TemporaryDirectory() as cache:
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
                               "--python-version", "3.10", *words], capture_output=True, text=True,
                              check=False, env={**os.environ, "MYPYPATH": os.environ["PYTHONPATH"]})


class Types(unittest.TestCase):
    """mypy --strict."""

    def test_the_package(self):
        words = [word for module in MODULES if module != "_core"
                 for word in ("-m", f"rooflane.{module}".removesuffix(".__init__"))]
        done = mypy(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_users(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "use.py"
            file.write_text(USE.format(""), encoding="utf-8")
            done = mypy(file)
            self.assertEqual(done.returncode, 0, done.stdout)
            file.write_text(USE.format("rooflane.softmax(x, thread=1)\nrooflane.gem(x, x)"),
                            encoding="utf-8")
            done = mypy(file)
            self.assertEqual(done.stdout.count(": error:"), 2, done.stdout)

    def test_the_stub_is_the_modules(self):
        done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "rooflane._core",
                               "--ignore-missing-stub"], capture_output=True, text=True,
                              check=False, env={**os.environ,
                                                "MYPYPATH": os.environ["PYTHONPATH"]})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((package_folder() / "py.typed").exists())


class Help(unittest.TestCase):
    """Docstrings: examples that run, and one for whatever users call."""

    def test_examples(self):
        for module in MODULES:
            if module in ("__main__", "_core"):
                continue
            with self.subTest(module):
                name = f"rooflane.{module}".removesuffix(".__init__")
                told = doctest.testmod(importlib.import_module(name))
                self.assertEqual(told.failed, 0)

    def test_everything_has_help(self):
        for name in rooflane.__all__:
            with self.subTest(name):
                self.assertTrue(getattr(rooflane, name).__doc__)
        self.assertLessEqual(set(rooflane.__all__), set(dir(rooflane)))
        with self.assertRaises(AttributeError):
            rooflane.no_such_thing  # noqa: B018


if __name__ == "__main__":
    package_environment.enter(Path(sys.argv[1]))
    import rooflane
    skip.main([sys.argv[0], *sys.argv[2:]])
