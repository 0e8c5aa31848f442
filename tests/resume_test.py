"""`bench` may be killed at any time: files stay readable, no finished sample is lost or repeated,
and --resume goes on to the end.

Usage: resume_test.py PATH/rooflane
"""

import collections
import csv
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import skip

PROGRAM = ""
SEED = 20261121
REQUEST = ["bench", "--shape", "gemm:m=n=k=32..64*2", "--shape", "softmax:rows=16,cols=256",
           "-v", "scalar,hwy", "--threads", "1", "--launches", "3",
           "--ceilings-time", "0.1"]
# No interval is so narrow: a group takes all this time, however fast the machine is.
LENGTHY = ["--max-time", "1.5", "--interval", "0.0001"]
ROWS = 6
PATIENCE = 240  # seconds; only a hang lasts so long


def read(path: pathlib.Path) -> list[dict[str, str]]:
    """All whole lines of a CSV; asserts that each has as many cells as the header."""
    if not path.exists():
        return []
    text = path.read_text()
    rows = list(csv.DictReader(text[:text.rfind("\n") + 1].splitlines()))
    for row in rows:
        assert None not in row and None not in row.values(), f"{path}: {row}"
    return rows


def key(sample: dict[str, str]) -> tuple[str, str, str]:
    return sample["row"], sample["launch"], sample["round"]


class Resume(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.csv = pathlib.Path(self.folder.name) / "rows.csv"
        self.samples = pathlib.Path(f"{self.csv}.samples.csv")
        self.state = pathlib.Path(f"{self.csv}.resume")

    def start(self, *more: str) -> subprocess.Popen:
        more = more if "--interval" in more else (*more, *LENGTHY)
        return subprocess.Popen([PROGRAM, *REQUEST, "--csv", str(self.csv), *more],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def run_to_end(self, *more: str) -> None:
        process = self.start(*more)
        errors = process.communicate(timeout=PATIENCE)[1]
        self.assertEqual(process.returncode, 0, errors)

    def wait_for_sample(self, process: subprocess.Popen, more_than: int) -> None:
        """Until the samples file has grown, the run has ended, or patience has."""
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if self.state.exists() and len(read(self.samples)) > more_than:
                return
            time.sleep(0.005)

    def test_killed_again_and_again_a_run_loses_and_repeats_no_sample(self) -> None:
        chance = random.Random(SEED)
        kills = 0
        process = self.start()
        for _ in range(12):
            before = read(self.samples) if self.state.exists() else []
            self.wait_for_sample(process, len(before))
            time.sleep(chance.uniform(0, 0.4))
            if process.poll() is not None:
                break
            seen = read(self.samples)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=PATIENCE)
            kills += 1
            after = read(self.samples)
            # The rows in the file before the kill are still there, in the same order.
            self.assertEqual(after[:len(seen)], seen, f"seed {SEED}")
            self.assertEqual(after[:len(before)], before, f"seed {SEED}")
            self.check_rounds(after)
            read(self.csv)
            process = self.start("--resume")
        errors = process.communicate(timeout=PATIENCE)[1]
        self.assertEqual(process.returncode, 0, errors)
        self.assertGreater(kills, 2, "the run was killed too seldom to show anything")

        rows = read(self.csv)
        self.assertEqual(len(rows), ROWS)
        self.assertEqual({row["status"] for row in rows}, {"PASSED"})
        self.assertEqual({row["launch"] for row in rows}, {"3"})
        self.assertEqual(len({row["run_id"] for row in rows}), 1)
        samples = read(self.samples)
        self.assertEqual([k for k, n in collections.Counter(map(key, samples)).items() if n > 1],
                         [])
        counted = collections.Counter(sample["row"] for sample in samples)
        for i, row in enumerate(rows):
            self.assertEqual(int(row["n_samples"]), counted[str(i)])
        self.assertFalse(self.state.exists())

    def check_rounds(self, samples: list[dict[str, str]]) -> None:
        """The rounds of every row and repetition follow one another without a gap."""
        rounds = collections.defaultdict(list)
        for sample in samples:
            rounds[sample["row"], sample["launch"]].append(int(sample["round"]))
        for taken in rounds.values():
            self.assertEqual(taken, list(range(len(taken))))

    def test_a_complete_run_is_not_measured_again(self) -> None:
        self.run_to_end()
        before = self.csv.read_bytes(), self.samples.read_bytes()
        self.run_to_end("--resume")
        self.assertEqual((self.csv.read_bytes(), self.samples.read_bytes()), before)

    def test_another_request_is_refused_and_nothing_is_written(self) -> None:
        process = self.start()
        self.wait_for_sample(process, 2)
        process.kill()
        process.communicate(timeout=PATIENCE)
        before = self.samples.read_bytes()
        for change in (["--seed", "7"], ["--max-time", "1.5", "--interval", "3"]):
            refused = self.start("--resume", *change)
            errors = refused.communicate(timeout=PATIENCE)[1]
            self.assertEqual(refused.returncode, 2, errors)
            self.assertIn("--resume", errors)
        self.assertEqual(self.samples.read_bytes(), before)

    def test_a_half_line_at_the_end_of_each_file_is_cut_off(self) -> None:
        process = self.start()
        self.wait_for_sample(process, 8)
        process.kill()
        process.communicate(timeout=PATIENCE)
        for path in (self.csv, self.samples, self.state):
            with path.open("a") as file:
                file.write('1,"half')
        self.run_to_end("--resume")
        self.assertEqual(len(read(self.csv)), ROWS)
        self.assertNotIn("half", self.csv.read_text() + self.samples.read_text())

    def test_resume_without_a_file_is_an_error(self) -> None:
        process = subprocess.run([PROGRAM, *REQUEST, "--resume"], capture_output=True, text=True,
                                 timeout=PATIENCE)
        self.assertEqual(process.returncode, 2)
        self.assertIn("--csv", process.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    skip.main(sys.argv)
