"""What the tests of `rooflane judge` share: a folder with an archive of its own, brief judgements,
and the reason why none is possible here. Not a test; standard library only.
"""
from __future__ import annotations

import functools
import glob
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import skip

TESTS = Path(__file__).resolve().parent
SHAPES = {"softmax": "softmax:rows=24,cols=256", "gemm": "gemm:m=24,n=40,k=32",
          "layernorm": "layernorm:rows=24,cols=100", "add": "add:rows=64,cols=256"}
# Nothing here depends on how fast a source is: one peer, so that verdicts are made, is enough.
BRIEF = ("--budget", "0.3", "--hidden", "3", "--against", "hwy")
FLAGS = "-O3 -march=native"
KERNEL = re.compile(rf'(?:\bvoid |\.kernel = ")({"|".join(SHAPES)})\b')
ASKED = re.compile(r"^ ?\*? ?flags: (.+?)(?: \*/)?$", re.MULTILINE)
PATIENCE = 400  # seconds; only a hang lasts so long
RIGHT = ("WINNER", "TIE", "LOSER", "UNDECIDED")
# What makes a jail, where it is missing; nothing helps where namespaces are forbidden.
PACKAGES = "" if shutil.which("bwrap") else "bubblewrap libseccomp2"


class Judging(unittest.TestCase):
    """Every test judges in a folder of its own."""

    rooflane = ""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.archive = self.folder / "attempts"
        if reason := no_jail(self.rooflane):
            self.skipTest(skip.reason(reason, PACKAGES))

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The verb, in a session of its own, so that nothing it starts can reach the test."""
        return subprocess.run([self.rooflane, "judge", *words, "--archive", str(self.archive)],
                              cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=PATIENCE, check=False,
                              start_new_session=True)

    def judge(self, source: Path, *words: str, flags: str = "", shape: str = "",
              threads: int = 1) -> dict[str, Any]:
        """The document of a judgement; the kernel is the one that the source defines."""
        text = source.read_text(encoding="utf-8")
        if "openblas" in text and not glob.glob("/usr/lib/*/libopenblas.so"):
            self.skipTest(skip.reason("no OpenBLAS to link with", "libopenblas-dev"))
        if source.suffix == ".cl" and (why := skip.no_device(self.rooflane)):
            self.skipTest(why)
        asked, kernel = ASKED.search(text), KERNEL.search(text)[1]
        flags = " ".join(filter(None, [FLAGS, asked and asked[1], flags]))
        done = self.call(str(source), "-k", kernel, "--shape", shape or SHAPES[kernel], "--json",
                         "--threads", str(threads), f"--flags={flags}", *BRIEF, *words)
        context = f"{source.name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        self.assertIn(done.returncode, (0, 1), context)
        document: dict[str, Any] = json.loads(done.stdout)
        self.assertEqual(done.returncode == 0, document["verdict"] in RIGHT, context)
        return document


@functools.cache
def no_jail(rooflane: str) -> str:
    """Why nothing can be judged here in a jail; empty where it can."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "softmax.c"
        source.write_text("void softmax(;\n", encoding="utf-8")  # the compiler is jailed, too
        done = subprocess.run(
            [rooflane, "judge", source, "-k", "softmax", "--archive", f"{folder}/attempts"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=PATIENCE)
    return done.stderr.strip().removeprefix("rooflane: ") if done.returncode == 3 else ""
