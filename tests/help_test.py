"""--help of every script, and of the verbs that are scripts: it answers from the standard library,
and nothing is installed, built or downloaded for it.

usage: help_test.py ROOFLANE SOURCE_FOLDER
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path

# Commands run in another folder, and Meson may give relative paths.
ROOFLANE, ROOT = Path(sys.argv.pop(1)).absolute(), Path(sys.argv.pop(1)).absolute()
SCRIPTS = ROOT / "scripts"
# What installs, builds and downloads.
TOOLS = ("apt", "apt-cache", "apt-get", "cmake", "curl", "dpkg-buildpackage", "g++", "git", "meson",
         "ninja", "pip", "pip3", "sudo", "wget")
PATIENCE = 300  # seconds; each takes a tenth of one


def python_scripts() -> list[Path]:
    """All that can be started; the other files are modules of theirs."""
    return [path for path in sorted(SCRIPTS.glob("*.py"))
            if re.search(r'(?m)^#!|^if __name__ == "__main__"', path.read_text(encoding="utf-8"))]


class Help(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        self.home, self.called = self.folder / "home", self.folder / "called"
        for name in ("home", "tools"):
            (self.folder / name).mkdir()
        for name in TOOLS:
            tool = self.folder / "tools" / name
            tool.write_text(f"#!/bin/sh\necho {name} >>'{self.called}'\nexit 99\n",
                            encoding="utf-8")
            tool.chmod(0o755)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("ROOFLANE_", "XDG_", "PYTHON"))}
        self.environment = {
            **kept, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1", "https_proxy": "http://127.0.0.1:9"}

    def answer(self, *command: str | Path, **variables: str) -> str:
        """What a command prints, which must be good and must not leave anything behind."""
        done = subprocess.run([str(word) for word in command], cwd=self.folder, timeout=PATIENCE,
                              env=self.environment | variables, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.strip()), 40)
        self.assertEqual(done.stderr, "")
        self.assertEqual([str(path) for path in self.home.rglob("*")], [])
        self.assertFalse(self.called.exists() and self.called.read_text(encoding="utf-8"))
        return done.stdout

    def every(self, scripts: Sequence[Path], *start: str) -> None:
        self.assertGreater(len(scripts), 10)
        for path in scripts:
            for word in ("--help", "-h"):
                with self.subTest(script=path.name, word=word):
                    self.answer(*start, path, word)

    def test_scripts_in_python_need_the_standard_library_only(self) -> None:
        self.every(python_scripts(), sys.executable, "-S")

    def test_scripts_of_the_shell_print_their_text_and_do_nothing(self) -> None:
        self.every([path for path in sorted(SCRIPTS.glob("*.sh")) if os.access(path, os.X_OK)])

    def test_help_behind_other_arguments_does_nothing_else(self) -> None:
        for words in ("bench.sh -k gemm", "test.sh --lint", "lint.sh --quick", "build.sh rooflane",
                      "llm_compare.py tokens", "model_shapes.py graph.onnx", "tune.py tune --json"):
            script, *rest = words.split()
            with self.subTest(script=script):
                self.answer(SCRIPTS / script, *rest, "--help")

    def test_verbs_that_are_scripts_name_their_options(self) -> None:
        for words, option in ((["tune"], "--strategy"), (["archive"], "statistics"),
                              (["archive", "best"], "--top"), (["generate"], "--weights")):
            with self.subTest(words=words):
                self.assertIn(option, self.answer(ROOFLANE, *words, "--help"))

    def test_verbs_of_the_package_need_the_standard_library_only(self) -> None:
        for words, option in ((["tune"], "--strategy"), (["archive", "prune"], "--older-than"),
                              (["league", "run"], "--repeats"), (["generate"], "--chat"),
                              (["worker"], "")):
            with self.subTest(words=words):
                self.assertIn(option, self.answer(
                    sys.executable, "-S", "-m", "rooflane.verbs", *words, "--help",
                    PYTHONPATH=str(ROOT / "python")))


if __name__ == "__main__":
    unittest.main()
