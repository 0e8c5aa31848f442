"""What the tests of the command line share: a folder per test, calls and refusals, `.npy` as bytes.

Not a test itself: cli_test.py and cli_measure_test.py are. Needs Python's standard library only.
"""
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence

import skip

SMALL = "gemm:m=5,n=7,k=3"
VERBS = ["list", "doctor", "run", "inputs", "verify", "ceilings", "calibrate", "bench", "roofline",
         "compare", "model", "generate", "judge", "schema", "worker", "evaluate"]
# Their arguments are read by python/rooflane, in an environment of its own: tune_test.py.
FORWARDED = ["tune", "archive", "bisect"]
PATIENCE = 600  # seconds: other tests may measure at the same time


def is_only_suspect(said: str) -> bool:
    """Whether nothing is wrong but that limits measured so briefly came out too low, as they may
    where other programs run, or where a sanitizer slows them and not the libraries beside them."""
    return "SUSPECT" in said and not re.search(
        "FAILED|TIMEOUT|BUILD_ERROR|RUNTIME_ERROR", said)


def npy(descr: str, shape: tuple[int, ...], data: bytes, order: str = "False",
        magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    """A file's bytes, sound or not: nothing is checked."""
    header = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    return magic + struct.pack("<H", len(header)) + header + data


def floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def read_npy(path: str) -> tuple[tuple[int, ...], str, list[float]]:
    """Shape, type and values of a little-endian C-order file."""
    with open(path, "rb") as file:
        content = file.read()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length = struct.unpack("<H", content[8:10])[0]
    header = eval(content[10:10 + length], {"__builtins__": {}})  # a literal that we wrote
    letter, width = {"<f4": ("f", 4), "<f8": ("d", 8)}[header["descr"]]
    data = content[10 + length:]
    values = list(struct.unpack(f"<{len(data) // width}{letter}", data))
    return header["shape"], header["descr"], values


def matmul(a: Sequence[float], b: Sequence[float], m: int, n: int, k: int) -> list[float]:
    return [sum(a[i * k + p] * b[p * n + j] for p in range(k)) for i in range(m) for j in range(n)]


class CommandLine(unittest.TestCase):
    """Every test runs in an empty folder of its own."""

    rooflane = ""  # the program
    fakes = ""     # the program with variants that cheat, crash and hang

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name: str) -> str:
        return os.path.join(self.folder.name, name)

    def write(self, name: str, content: bytes) -> None:
        with open(self.path(name), "wb") as file:
            file.write(content)

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def call(self, *arguments: str, program: str | None = None, env: dict[str, str] | None = None,
             stdin: str = "") -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        result = subprocess.run(
            [program or self.rooflane, *arguments], cwd=self.folder.name, input=stdin,
            capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **(env or {})})
        return result.returncode, result.stdout, result.stderr

    def succeed(self, *arguments: str, program: str | None = None,
                env: dict[str, str] | None = None, stdin: str = "") -> str:
        status, out, err = self.call(*arguments, program=program, env=env, stdin=stdin)
        self.assertEqual(status, 0, f"{arguments}\n{out}\n{err}")
        return out

    def serves(self, math_name: str, weight_type: str) -> bool:
        """Whether this CPU multiplies such weights by that math."""
        shape = f"gemm:m=1,n=1,k=32,trans_b=1,b_type={weight_type}"
        return any(self.call("verify", "-v", variant, "--math", math_name, "--shape", shape)[0] != 3
                   for variant in ("hwy", "avx512"))

    def refuse(self, status: int, words: Sequence[str], *arguments: str, program: str | None = None,
               env: dict[str, str] | None = None) -> None:
        """One line on standard error that holds all the words; nothing on standard output."""
        got, out, err = self.call(*arguments, program=program, env=env)
        context = f"{shlex.join(arguments)}\n{out}\n{err}"
        self.assertEqual(got, status, context)
        self.assertEqual(out, "", context)
        lines = [line for line in err.splitlines() if not line.startswith("note: ")]
        self.assertEqual(len(lines), 1, context)
        self.assertTrue(lines[0].startswith("rooflane: "), context)
        for word in words:
            self.assertIn(word, lines[0], context)

    def gemm_arrays(self) -> None:
        self.a = [float(i % 5 - 2) for i in range(12)]
        self.b = [float(i % 7 - 3) for i in range(24)]
        self.write("a.npy", npy("<f4", (3, 4), floats(self.a)))
        self.write("b.npy", npy("<f4", (4, 6), floats(self.b)))


def main() -> None:
    """Runs the tests of the calling program: TEST.py ROOFLANE ROOFLANE_WITH_FAKES [UNITTEST…]."""
    CommandLine.rooflane, CommandLine.fakes = (os.path.abspath(path) for path in sys.argv[1:3])
    skip.main(sys.argv[:1] + sys.argv[3:])
