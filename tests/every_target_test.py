#!/usr/bin/env python3
"""Every instruction set that an emulator has, on a CPU that has no better one: every_target_test.py
ROOFLANE.

qemu-user runs the program as an old CPU. It logs each instruction that it translates, and it
translates what is about to run for the first time. So the test sees that the result is right, that
the target's own instructions ran, and that no newer ones did. The emulator has nothing newer than
AVX2: other tests run those targets where the CPU has them.
"""
from __future__ import annotations

import ast
import math
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

import skip

ROOFLANE = Path()
EMULATOR = "qemu-x86_64"


@dataclass(frozen=True)
class Target:
    """A Highway target, the oldest CPU that has it, and what the log of its run must and must not
    have. A program's own start-up uses what the CPU has, so only `wrong` of newer CPUs counts."""
    isa: str
    cpu: str
    must: str
    wrong: str


TARGETS = [Target("SCALAR", "Nehalem", r"mulss ", r"%ymm"),
           Target("SSE4", "Westmere", r"mulps .*%xmm", r"%ymm"),
           Target("AVX2", "Haswell", r"vfmadd\d+ps .*%ymm", r"%zmm")]
# Sizes on no vector's boundary. Each with its tensors: inputs, output.
PROBLEMS = {"gemm:m=19,n=37,k=29": (["a", "b"], "c"),
            "gemm:m=3,n=70,k=64,b_type=q8_0,trans_b=1": (["a", "b"], "c"),
            "softmax:rows=5,cols=83": (["x"], "y"),
            "layernorm:rows=5,cols=83": (["x", "gamma", "beta"], "y"),
            "rmsnorm:rows=5,cols=83": (["x", "gamma"], "y"),
            "attention:batch=1,heads=2,q_len=7,kv_len=19,head_dim=20": (["q", "k", "v"], "o")}


def floats(path: Path, kind: str) -> tuple[float, ...]:
    """The elements of an .npy file of format version 1; `kind`: f or d."""
    data = path.read_bytes()
    length, = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10:10 + length].decode("latin-1"))
    return struct.unpack(f"<{math.prod(header['shape'])}{kind}", data[10 + length:])


class EveryTarget(unittest.TestCase):
    def setUp(self) -> None:
        if platform.machine() != "x86_64" or not shutil.which(EMULATOR):
            self.skipTest(skip.reason(f"no {EMULATOR}", "qemu-user"))
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def emulated(self, cpu: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        # Threads, and other processes, would run on the real CPU.
        return subprocess.run([EMULATOR, "-cpu", cpu, "-d", "in_asm", "-D", self.folder / "log",
                               ROOFLANE, *words], capture_output=True, text=True, check=False)

    def check(self, target: Target, shape: str, inputs: list[str], output: str) -> None:
        kernel, _, parameters = shape.partition(":")
        done = subprocess.run([ROOFLANE, "inputs", kernel, "--shape", shape, "--out", self.folder],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        given = [word for name in inputs
                 for word in ("--in", f"{name}={self.folder / name}.npy")]
        settings = [word for word in parameters.split(",") if not re.match(
            r"(m|n|k|rows|cols|batch|heads|q_len|kv_len|head_dim)=", word)]
        done = self.emulated(target.cpu, "run", kernel, "-v", "hwy", "--isa", target.isa,
                             "--threads", "1", *given,
                             *(["--params", ",".join(settings)] if settings else []),
                             "--out", f"{output}={self.folder / 'result.npy'}")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = floats(self.folder / "result.npy", "f")
        reference = floats(self.folder / f"{output}_reference.npy", "d")
        self.assertEqual(len(result), len(reference))
        # Far above rounding, far below what a lane at the wrong place gives.
        largest = max(map(abs, reference))
        for got, expected in zip(result, reference, strict=True):
            self.assertAlmostEqual(got, expected, delta=1e-4 * largest)
        log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        self.assertRegex(log, target.must)
        self.assertNotRegex(log, target.wrong)

    def test_each_kernel_runs_by_each_targets_instructions(self) -> None:
        for target in TARGETS:
            for shape, (inputs, output) in PROBLEMS.items():
                with self.subTest(isa=target.isa, cpu=target.cpu, shape=shape):
                    self.check(target, shape, inputs, output)

    def test_a_target_that_the_cpu_lacks_is_refused(self) -> None:
        for target, older in ((TARGETS[1], "Nehalem"), (TARGETS[2], "Westmere")):
            done = self.emulated(older, "verify", "-k", "softmax", "-v", "hwy", "--isa", target.isa)
            self.assertEqual(done.returncode, 3)
            self.assertIn("this CPU lacks it", done.stderr)


if __name__ == "__main__":
    ROOFLANE = Path(sys.argv.pop(1)).resolve()
    skip.main(sys.argv[:1])
