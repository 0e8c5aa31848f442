#!/usr/bin/env python3
"""scripts/speed_vs_build.py, with this build as the older one: speed_vs_build_test.py ROOFLANE"""
from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import skip

ROOFLANE = Path(sys.argv.pop(1)).absolute()
SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "speed_vs_build.py"


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True,
                          check=False)


class SpeedVsBuild(unittest.TestCase):
    def test_each_class_is_drawn_measured_and_summarised(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = run(ROOFLANE, "--count", "2", "--classes", "q8_0,s8,int8-products", "--threads",
                       "1,2", "--seconds", "0.05", "--out", folder)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            rows = re.findall(r"^\| (\S+) \| (\d) \| (\d) \| (\S+) \|", done.stdout, re.MULTILINE)
            self.assertEqual([row[:3] for row in rows],
                             [(name, threads, "1") for name in ("q8_0", "s8", "int8-products")
                              for threads in "12"], done.stdout)
            for row in rows:
                self.assertGreater(float(row[3]), 0)
            problems = (Path(folder) / "q8_0-1.txt").read_text(encoding="utf-8")
            self.assertRegex(problems, r"^gemm:.*b_type=q8_0.*\n$")
            self.assertTrue((Path(folder) / "q8_0-1.csv").exists())

    def test_what_is_wrong_is_told(self) -> None:
        done = run(ROOFLANE, "--classes", "q9")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown class q9", done.stderr)
        done = run("/nowhere/rooflane")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/rooflane: no such program", done.stderr)


if __name__ == "__main__":
    skip.main(sys.argv[:1])
