#!/usr/bin/env python3
"""Types and help of the Python package: python_types_test.py BUILD_DIR."""
from __future__ import annotations

import ast
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


class Types(unittest.TestCase):
    """mypy --strict."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def mypy(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder / "cache",
             "--python-version", "3.10", *words], capture_output=True, text=True, check=False,
            env={**os.environ, "MYPYPATH": os.environ["PYTHONPATH"]})

    def test_the_package_and_its_users(self):
        names = [f"rooflane.{module}".removesuffix(".__init__") for module in MODULES]
        imports = "".join(f"import {name}\n" for name in names)
        good, bad = self.folder / "good.py", self.folder / "bad.py"
        good.write_text(imports + USE.format(""), encoding="utf-8")
        bad.write_text(USE.format("rooflane.softmax(x, thread=1)\nrooflane.gem(x, x)"),
                       encoding="utf-8")
        done = self.mypy(good)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.mypy(bad)
        self.assertEqual(done.stdout.count(": error:"), 2, done.stdout)

    def test_the_stub_has_what_the_module_has(self):
        stub = ast.parse((package_folder() / "_core.pyi").read_text(encoding="utf-8"))

        def names(body):
            return {node.target.id if isinstance(node, ast.AnnAssign) else node.name
                    for node in body
                    if isinstance(node, (ast.AnnAssign, ast.ClassDef, ast.FunctionDef))}

        def public(owner):
            return {name for name in vars(owner) if not name.startswith("__")}

        plan, = (node for node in stub.body if isinstance(node, ast.ClassDef))
        self.assertEqual(names(stub.body), public(rooflane._core))
        self.assertEqual(names(plan.body) - {"__init__"}, public(rooflane._core.Plan))

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
    import rooflane._core
    skip.main([sys.argv[0], *sys.argv[2:]])
