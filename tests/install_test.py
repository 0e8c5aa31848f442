#!/usr/bin/env python3
"""What `meson install` puts where: install_test.py BUILD_DIR SOURCE_DIR

Programs, library and headers are there and found, the manual page says what `--help` says, the
shells complete what the program knows, and the Debian package takes all of it. Standard library
only; mandoc and zsh where they are installed.
"""
from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import skip

BUILD, ROOT = Path(), Path()
EXPECTED = ["bin/rooflane", "lib*/**/librooflane.so", "lib*/**/librooflane.so.0",
            "lib*/**/pkgconfig/rooflane.pc", "include/rooflane/rooflane.hpp",
            "include/rooflane/rooflane.h", "include/rooflane/variant.h",
            "include/rooflane/core/problem.hpp", "share/man/man1/rooflane.1",
            "share/bash-completion/completions/rooflane", "share/zsh/site-functions/_rooflane",
            "share/rooflane/rooflane.schema.json", "share/rooflane/scripts/peers.py",
            "share/rooflane/scripts/peer_workers/serve.py", "share/rooflane/scripts/tune.py",
            "share/rooflane/scripts/generate.py", "share/rooflane/scripts/bisect_commits.py",
            "share/rooflane/python/rooflane/__main__.py",
            "share/rooflane/python/rooflane/tuner/command.py"]


def output(*command: str | Path, **variables: str) -> str:
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          check=False, env={**os.environ, **variables}, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    """What all tests share: one installation into an empty folder."""

    folder, prefix = Path(), Path()
    table: dict[str, Any] = {}
    libraries = ""

    @classmethod
    def rooflane(cls, *words: str, **variables: str) -> str:
        return output(cls.prefix / "bin/rooflane", *words, LD_LIBRARY_PATH=cls.libraries,
                      **variables)

    def options(self) -> list[tuple[str, list[str]]]:
        return [(verb["name"], option["names"]) for verb in self.table["verbs"]
                for option in verb.get("options", [])]


def setUpModule() -> None:
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    Installed.folder = Path(folder.name)
    output("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", Installed.folder)
    Installed.prefix = next(Installed.folder.glob("**/bin/rooflane")).parent.parent
    Installed.libraries = ":".join(str(path.parent) for path in
                                   Installed.prefix.glob("lib*/**/librooflane.so"))
    Installed.table = json.loads(Installed.rooflane("--verbs"))


class Files(Installed):
    def test_everything_is_there(self) -> None:
        for pattern in EXPECTED:
            with self.subTest(pattern):
                self.assertEqual(len(list(self.prefix.glob(pattern))), 1)
        self.assertEqual(list(self.prefix.glob("**/__pycache__")), [])

    def test_the_program_finds_its_scripts(self) -> None:
        self.assertEqual(self.rooflane("tune", "WORD", ROOFLANE_TUNE_PYTHON="/bin/echo"),
                         "-m rooflane.verbs tune WORD\n")
        peers = subprocess.run(
            [self.prefix / "bin/rooflane", "bench", "--peers", "nobody", "--dry-run"], text=True,
            capture_output=True, check=False,
            env={**os.environ, "LD_LIBRARY_PATH": self.libraries, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertRegex(peers.stderr, r"nobody.*valid: .*numpy")

    def test_who_links_needs_no_other_library(self) -> None:
        pc, = self.prefix.glob("lib*/**/rooflane.pc")
        self.assertNotIn("Requires", pc.read_text(encoding="utf-8"))

    def test_the_debian_packages_take_every_file(self) -> None:
        lines = [line.split()[0] for path in (ROOT / "debian").glob("*.install")
                 for line in path.read_text(encoding="utf-8").splitlines()]
        patterns = [str(line).removeprefix("usr/") for line in lines]
        # Without Debian's tools Meson may choose lib64; a package's folder is named by its machine.
        names = [re.sub("^lib64/", "lib/machine/", str(path.relative_to(self.prefix)))
                 for path in self.prefix.glob("**/*") if not path.is_dir()]
        taken = {name: [pattern for pattern in patterns if fnmatch.fnmatch(name, pattern)
                        or name.startswith(pattern + "/")] for name in names}
        self.assertEqual([name for name, by in taken.items() if len(by) != 1], [])
        for pattern in patterns:
            with self.subTest(pattern):
                self.assertTrue(any(pattern in by for by in taken.values()))

    def test_the_debian_version_is_the_program_s(self) -> None:
        changelog = (ROOT / "debian/changelog").read_text(encoding="utf-8")
        self.assertEqual(re.match(r"rooflane \(([^)]+)\)", changelog)[1],
                         self.table["version"])


class Manual(Installed):
    def page(self) -> Path:
        return self.prefix / "share/man/man1/rooflane.1"

    def test_every_verb_and_option_is_in_it(self) -> None:
        text = self.page().read_text(encoding="ascii").replace("\\-", "-")
        for verb in self.table["verbs"]:
            self.assertIn(f".SS {verb['name']}\n", text)
        for verb, names in self.options():
            section = text.split(f".SS {verb}\n")[1].split("\n.S")[0]
            for name in names:
                with self.subTest(verb, option=name):
                    self.assertIn(f"\\fB{name}\\fR", section)
        self.assertIn("\\fB--strategy\\fR", text)  # of a verb that is a script

    def test_mandoc_finds_nothing(self) -> None:
        if shutil.which("mandoc") is None:
            self.skipTest(skip.reason("no mandoc", "mandoc"))
        self.assertEqual(output("mandoc", "-T", "lint", "-W", "warning", self.page()), "")


class Completion(Installed):
    def bash(self, *words: str) -> list[str]:
        """The words that bash offers for the last of these."""
        script = self.prefix / "share/bash-completion/completions/rooflane"
        asks = (f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rooflane; '
                "printf '%s\\n' \"${COMPREPLY[@]}\"")
        return output("bash", "-c", asks, "bash", "rooflane", *words).split()

    def test_bash_knows_verbs_and_options(self) -> None:
        self.assertEqual(self.bash("com"), ["compare"])
        self.assertEqual({*self.bash("")} - {"--help", "--version", "--verbs"},
                         {verb["name"] for verb in self.table["verbs"]})
        for verb, names in self.options():
            for name in names:
                self.assertIn(name, self.bash(verb, name))
        self.assertEqual(self.bash("tune", "--strat"), ["--strategy"])

    def test_bash_knows_values(self) -> None:
        self.assertEqual(self.bash("bench", "--cache", "c"), ["cold"])
        self.assertEqual(self.bash("bench", "--cache", "=", "w"), ["warm"])
        self.assertEqual(self.bash("bench", "-k", "soft"), ["softmax"])
        self.assertEqual(self.bash("bench", "-k", "gemm,soft"), ["gemm,softmax"])
        self.assertEqual(self.bash("bench", "--preset", "gpt"), ["gpt2-small"])
        self.assertIn("hwy", self.bash("verify", "-v", ""))
        self.assertEqual(self.bash("bench", "--csv", ""), [])  # files, by readline

    def test_zsh_completes(self) -> None:
        if shutil.which("zsh") is None:
            self.skipTest(skip.reason("no zsh", "zsh"))
        if not skip.has_terminals():
            self.skipTest(skip.reason("no pseudo-terminals here"))
        folder = self.prefix / "share/zsh/site-functions"
        output("zsh", "-n", folder / "_rooflane")
        for typed, completed in (("rooflane compa", "rooflane compare"),
                                 ("rooflane bench --fail-on", "--fail-on-regression"),
                                 ("rooflane bench --cache co", "--cache cold"),
                                 ("rooflane bench -k gemm,softm", "-k gemm,softmax")):
            with self.subTest(typed):
                self.assertIn(completed, self.zsh(folder, typed, completed))

    def zsh(self, folder: Path, typed: str, completed: str) -> str:
        """The line after Tab in a shell on a terminal of its own, as soon as it contains the
        expected text."""
        return output("zsh", "-f", "-c", """
            zmodload zsh/zpty
            zpty shell zsh -f -i
            zpty -w shell "PS1=; fpath=($1 \\$fpath); autoload -U compinit; compinit -u -D"
            zpty -w shell "echo rea\\dy"
            zpty -r -m shell line '*ready*'
            zpty -w -n shell "$2"$'\\t'
            for i in {1..900}; do
              while zpty -r -t shell part; do line=$line$part; done
              if [[ $line == *$3* ]]; then break; fi
              sleep 0.1
            done
            zpty -d shell
            print -rn -- $line""", "zsh", folder, typed, completed)


if __name__ == "__main__":
    BUILD, ROOT = (Path(word).resolve() for word in sys.argv[1:3])
    skip.main(sys.argv[:1])
