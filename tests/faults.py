"""What the tests of faults share: processes that can be found again, files read back as others
read them, disks that are full, kills at random moments. Not a test; standard library only.

FAULTS_KILLS says how often each verb is killed, FAULTS_SEED when: scripts/faults.sh asks for 200.
"""
from __future__ import annotations

import collections
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

PATIENCE = 240  # seconds; only a hang lasts so long
SEED = int(os.environ.get("FAULTS_SEED", "20261126"))
# Two groups of two rows, within a second; and one group that takes some.
BENCH = ["bench", "--shape", "gemm:m=n=k=16..32*2", "-v", "scalar,hwy", "--threads", "1",
         "--max-time", "0.1", "--launches", "2", "--ceilings-time", "0.1"]
LONG = ["bench", "--shape", "gemm:m=n=k=16", "-v", "scalar,hwy", "--threads", "1", "--max-time",
        "5", "--interval", "0.0001", "--launches", "1", "--ceilings-time", "0.1"]


def kills(few: int) -> int:
    """How many kills are asked for."""
    return int(os.environ.get("FAULTS_KILLS", few))


def mount_command() -> list[str] | None:
    """The words before a command that give it mounts of its own; none where that is not allowed."""
    for words in (["unshare", "--map-root-user", "--mount"], ["unshare", "--mount"]):
        if shutil.which("unshare") is None:
            return None
        tried = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()],
                               capture_output=True, check=False)
        if tried.returncode == 0:
            return words
    return None


def lines_of(path: Path) -> list[dict[str, str]]:
    """The whole lines of a CSV; asserts that each has as many cells as the header."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = list(csv.DictReader(text[:text.rfind("\n") + 1].splitlines()))
    for row in rows:
        assert None not in row and None not in row.values(), f"{path}: {row}"
    return rows


class Faults(unittest.TestCase):
    """Every test in an empty folder, with processes that carry a mark of its own."""

    rooflane = ""  # the program
    fakes = ""     # the program with variants that hang

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.csv = self.folder / "rows.csv"
        self.samples = self.folder / "rows.csv.samples.csv"
        self.resume = self.folder / "rows.csv.resume"
        self.mark = f"FAULTS_MARK={uuid.uuid4().hex}"
        self.environment = {**os.environ, "ROOFLANE_TRAITS": "none", "ROOFLANE_TUNED": "none",
                            **dict([self.mark.split("=")])}

    def start(self, *words: str, program: str = "", **more) -> subprocess.Popen:
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                "env": self.environment, "cwd": self.folder, **more}
        return subprocess.Popen([program or self.rooflane, *words], **more)

    def call(self, *words: str, **more) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out or "", err or ""

    def errors(self, err: str) -> list[str]:
        return [line for line in err.splitlines() if not line.startswith("note: ")]

    def refuse(self, status: int, words: Sequence[str], *arguments: str, **more) -> None:
        """One line that holds all the words, and this exit status."""
        got, out, err = self.call(*arguments, **more)
        told = self.errors(err)
        self.assertEqual(got, status, f"{arguments}\n{out}\n{err}")
        self.assertEqual(len(told), 1, err)
        for word in ("rooflane: ", *words):
            self.assertIn(word, told[0])

    def processes(self) -> dict[int, str]:
        """Those of this test that live, with what they are."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(folder.name)] = words
            except OSError:
                continue  # it ended, or is not ours
        return found

    def no_process_is_left(self) -> None:
        end = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.005)
        self.assertEqual(left, {}, f"seed {SEED}")

    def wait_for(self, what: Callable[[], bool], process: subprocess.Popen) -> None:
        """Until it holds, or the process has ended."""
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end and not what():
            time.sleep(0.005)

    def kill(self, process: subprocess.Popen) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        self.no_process_is_left()

    def rows_are_readable(self) -> None:
        """By the verbs that read rows; before there is a header there are no rows."""
        if not self.csv.exists() or self.csv.stat().st_size == 0:
            return
        if not lines_of(self.csv):
            self.refuse(2, ["contains no rows"], "roofline", str(self.csv))
            return
        for words in (["roofline", str(self.csv)], ["compare", str(self.csv), str(self.csv)]):
            status, out, err = self.call(*words)
            self.assertEqual(status, 0, f"seed {SEED}: {words}\n{out}\n{err}")
        lines_of(self.csv)
        lines_of(self.samples)

    def each_sample_once(self, rows: list[dict[str, str]]) -> None:
        samples = lines_of(self.samples)
        keys = collections.Counter((s["row"], s["launch"], s["round"]) for s in samples)
        self.assertEqual([key for key, count in keys.items() if count > 1], [])
        counted = collections.Counter(sample["row"] for sample in samples)
        for i, row in enumerate(rows):
            self.assertEqual(int(row["n_samples"]), counted[str(i)])

    def only_results_are_left(self, beside: Sequence[str] = ()) -> None:
        """What a kill may leave besides is a hidden file that nobody reads."""
        names = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
        self.assertEqual(names - {"rows.csv", "rows.csv.samples.csv", *beside}, set())


class Moments:
    """When to kill: anywhere within the time that a run was seen to take."""

    def __init__(self, name: str):
        self._chance = random.Random(f"{name} {SEED}")
        self._longest = 0.3

    def wait(self, process: subprocess.Popen) -> bool:
        """False: it ended before."""
        begin = time.monotonic()
        try:
            process.wait(self._chance.uniform(0, self._longest))
        except subprocess.TimeoutExpired:
            return True
        self._longest = max(0.05, time.monotonic() - begin)
        return False

    def later(self) -> None:
        """Nothing was seen to end yet."""
        self._longest = min(1.5 * self._longest, 60)


def main() -> None:
    """TEST.py ROOFLANE ROOFLANE_WITH_FAKES [UNITTEST…]."""
    import skip
    Faults.rooflane, Faults.fakes = (os.path.abspath(path) for path in sys.argv[1:3])
    skip.main(sys.argv[:1] + sys.argv[3:])
