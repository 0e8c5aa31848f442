#!/usr/bin/env python3
"""Workers that stop, little memory, few files, readers and terminals that go, clocks that jump, two
runs for one file: the cause is named, other rows go on, files stay whole. faults_process_test.py
ROOFLANE ROOFLANE_WITH_FAKES [CLOCK_JUMPS.so].
"""
from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import faults
import skip
import tune_environment
from faults import BENCH, LONG, Faults, lines_of

CLOCK_JUMPS = ""
MEBIBYTE = 1 << 20
LATE = 4  # seconds: only a worker that was stopped takes so long, however busy the machine is


def at_most(what: int, most: int):
    """Sets a limit in a process to be."""
    return lambda: resource.setrlimit(what, (most, most))


class Workers(Faults):
    def test_a_stopped_worker_ends_as_timeout_and_the_run_goes_on(self) -> None:
        process = self.start(*LONG, "--timeout", str(LATE), "--csv", "rows.csv")
        self.wait_for(lambda: len(lines_of(self.samples)) > 2, process)
        process.send_signal(signal.SIGSTOP)  # it does not end while its worker is looked for
        stopped = [pid for pid, words in self.processes().items() if words.endswith("worker ")][0]
        os.kill(stopped, signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        err = process.communicate(timeout=faults.PATIENCE)[1]
        self.assertEqual(process.returncode, 1, err)
        rows = lines_of(self.csv)
        late = [row for row in rows if row["status"] == "TIMEOUT"]
        self.assertEqual([row["status"] for row in rows].count("PASSED"), len(rows) - len(late))
        self.assertEqual(len(late), 1)
        self.assertRegex(late[0]["reason"], f"^no answer within {LATE} s when asked to run for "
                                            "timing: the worker was stopped by a signal$")
        self.no_process_is_left()

    def test_a_run_that_was_stopped_itself_takes_no_worker_for_late(self) -> None:
        process = self.start(*LONG, "--timeout", str(LATE), "--csv", "rows.csv")
        self.wait_for(lambda: len(lines_of(self.samples)) > 2, process)
        process.send_signal(signal.SIGSTOP)
        time.sleep(LATE + 0.5)
        process.send_signal(signal.SIGCONT)
        err = process.communicate(timeout=faults.PATIENCE)[1]
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual({row["status"] for row in lines_of(self.csv)}, {"PASSED"})

    def test_who_evaluates_ends_when_nobody_reads_its_answers(self) -> None:
        process = self.start("evaluate", program=self.fakes, stdin=subprocess.PIPE)
        process.stdout.readline()
        for request in ({"op": "open", "shape": "softmax:rows=4,cols=8", "variant": "fake-tunable"},
                        {"op": "evaluate", "tunings": ["fault=3,pause=0"], "steps": []}):
            process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()  # in the middle of a run that hangs without end
        process.wait(timeout=faults.PATIENCE)
        for stream in (process.stdin, process.stderr):
            stream.close()
        self.no_process_is_left()


class Limits(Faults):
    def test_too_few_addresses_are_named_and_nothing_waits_for_ever(self) -> None:
        beyond_caches = [*BENCH[:-1], "1"]  # seconds for ceilings
        for mebibytes in (150, 250):
            with self.subTest(mebibytes=mebibytes):
                self.refuse(3, ["out of memory", f"ulimit -v allows {mebibytes}.0 MiB"],
                            *beyond_caches,
                            preexec_fn=at_most(resource.RLIMIT_AS, mebibytes * MEBIBYTE))

    def test_a_library_that_needs_more_addresses_is_absent_with_the_reason(self) -> None:
        if not self.installed_blas():
            self.skipTest(skip.reason("no OpenBLAS", "libopenblas-openmp-dev"))
        self.refuse(3, ["blas", "ulimit -v"], "bench", "-k", "gemm", "-v", "blas", "--shape",
                    "gemm:m=8,n=8,k=8", "--threads", "1",
                    preexec_fn=at_most(resource.RLIMIT_AS, 250 * MEBIBYTE))

    def installed_blas(self) -> bool:
        listed = json.loads(self.call("list", "--json")[1])
        return any(variant["name"] == "blas" and variant["available"]
                   for variant in listed["kernels"][0]["variants"])

    def test_too_few_files_are_named_in_rows(self) -> None:
        status, out, err = self.call(*BENCH, "--csv", "rows.csv",
                                     preexec_fn=at_most(resource.RLIMIT_NOFILE, 10))
        self.assertEqual(status, 1, err)
        rows = lines_of(self.csv)
        self.assertEqual(len(rows), 4)
        failed = [row for row in rows if row["status"] != "PASSED"]
        self.assertGreater(len(failed), 0)
        for row in failed:
            self.assertEqual(row["status"], "RUNTIME_ERROR")
            self.assertIn("Too many open files", row["reason"])

    def test_a_thousand_files_that_are_open_already(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1200:
            self.skipTest(skip.reason(f"no more than {hard} open files are allowed here"))

        def open_many() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
            for _ in range(1000):
                fcntl.fcntl(2, fcntl.F_DUPFD, 3)  # inherited, unlike os.dup's

        status, _, err = self.call(*BENCH, "--csv", "rows.csv", preexec_fn=open_many,
                                   close_fds=False)
        self.assertEqual(status, 0, err)
        self.assertEqual({row["status"] for row in lines_of(self.csv)}, {"PASSED"})

    def test_in_a_control_group_a_worker_that_eats_is_ended_and_named(self) -> None:
        with self.control_group(400 * MEBIBYTE) as join:
            status, out, err = self.call(
                "bench", "--shape", "softmax:rows=4,cols=8", "-v", "scalar,fake-hungry",
                "--threads", "1", "--max-time", "0.1", "--ceilings-time", "0.1", "--launches", "1",
                "--csv", "rows.csv", program=self.fakes, preexec_fn=join)
            self.assertEqual(status, 1, err)
            by = {row["variant"]: row for row in lines_of(self.csv)}
            self.assertEqual(by["scalar"]["status"], "PASSED")
            self.assertEqual(by["fake-hungry"]["status"], "RUNTIME_ERROR")
            self.assertIn("out of memory", by["fake-hungry"]["reason"])

    def test_what_a_control_group_above_the_own_one_cannot_hold_is_refused(self) -> None:
        with self.control_group(200 * MEBIBYTE) as join:
            self.refuse(3, ["needs 384.0 MiB of memory", " MiB available"], "verify", "-v",
                        "scalar", "--shape", "gemm:m=n=k=4096", "--threads", "1", preexec_fn=join)

    def control_group(self, limit: int) -> ControlGroup:
        try:
            return ControlGroup(limit, self.mark[-8:])
        except OSError as error:
            self.skipTest(skip.reason(f"no control group can be made here: {error.strerror}"))


class ControlGroup:
    """A group within one with a memory limit, of version 2 or 1, below this process's own."""

    def __init__(self, limit: int, name: str):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        groups = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
        old = "memory" in groups
        root = "/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup"
        inner = Path(root + groups["memory" if old else ""])
        outer = inner if inner.exists() else Path(root)  # as containers show it
        self._folder = outer / f"rooflane-{name}"
        self._folder.mkdir()
        self._inner = self._folder / "inner"
        try:
            (self._folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(
                str(limit), encoding="utf-8")
            self._inner.mkdir()
        except OSError:
            self._folder.rmdir()
            raise

    def __enter__(self):
        return lambda: (self._inner / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_: object) -> None:
        for folder in (self._inner, self._folder):
            self.remove(folder)

    @staticmethod
    def remove(folder: Path) -> None:
        for _ in range(100):
            try:
                return folder.rmdir()
            except OSError:  # its last process is being reaped
                time.sleep(0.05)


class Readers(Faults):
    def test_nobody_reads_any_more_is_a_quiet_end(self) -> None:
        for default in (True, False):  # Python has the signal ignored
            reading, writing = os.pipe()
            os.close(reading)
            with self.subTest(default=default):
                status, _, err = self.call(*BENCH, stdout=writing, restore_signals=default)
                self.assertEqual((status, self.errors(err)), (-signal.SIGPIPE, []))
            os.close(writing)
        self.no_process_is_left()

    def test_a_closed_standard_output_is_no_place_for_files(self) -> None:
        words = [*BENCH, "--csv", "rows.csv"]
        self.refuse(2, ["standard output cannot be written: Bad file descriptor"], *words,
                    stdout=None, preexec_fn=lambda: os.close(1))
        self.assertEqual([row["status"] for row in lines_of(self.csv)], ["PASSED"] * 4)
        self.rows_are_readable()

    def test_closed_standard_input_and_error_change_nothing(self) -> None:
        status, _, _ = self.call(*BENCH, "--csv", "rows.csv", stderr=None,
                                 preexec_fn=lambda: (os.close(0), os.close(2)))
        self.assertEqual(status, 0)
        self.assertEqual([row["status"] for row in lines_of(self.csv)], ["PASSED"] * 4)

    def test_a_terminal_that_closes_ends_the_run_which_can_go_on(self) -> None:
        if not skip.has_terminals():
            self.skipTest(skip.reason("no pseudo-terminals here"))
        ours, theirs = os.openpty()

        def own_terminal() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's children ignore it
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        process = self.start(*LONG, "--csv", "rows.csv", stdin=theirs, stdout=theirs, stderr=theirs,
                             preexec_fn=own_terminal)
        os.close(theirs)
        self.wait_for(lambda: len(lines_of(self.samples)) > 2, process)
        before = lines_of(self.samples)
        os.close(ours)
        self.assertEqual(process.wait(timeout=faults.PATIENCE), -signal.SIGHUP)
        self.no_process_is_left()
        self.assertEqual(lines_of(self.samples)[:len(before)], before)
        self.rows_are_readable()


class Together(Faults):
    def test_two_runs_never_write_one_file(self) -> None:
        for words in ([*LONG, "--csv", "rows.csv"],
                      ["model", "block", "--size", "tiny", "--threads", "1", "--max-time", "3",
                       "--interval", "0.0001", "--ceilings-time", "0.3", "--csv", "rows.csv"]):
            with self.subTest(words[0]):
                process = self.start(*words)
                lock = self.folder / "rows.csv.lock"
                # Stopped, it does not end before the others have asked.
                self.wait_for(lambda lock=lock: self.is_locked(lock), process)
                process.send_signal(signal.SIGSTOP)
                self.refuse(2, ["--csv: 'rows.csv' is being written by another process "
                                f"({process.pid})"], *BENCH, "--csv", "rows.csv")
                self.refuse(2, ["another process"], *BENCH, "--csv", "rows.csv", "--resume")
                process.send_signal(signal.SIGCONT)
                self.wait_for(lambda: self.resume.exists(), process)
                self.kill(process)
                self.assertTrue(lock.exists())
                # What a killed run left blocks nobody.
                status, _, err = self.call(*BENCH, "--csv", "rows.csv")
                self.assertEqual(status, 0, err)
                self.assertFalse(lock.exists())
                self.assertEqual(len(lines_of(self.csv)), 4)

    def is_locked(self, path: Path) -> bool:
        """Whether another process holds a file's lock, which is looked at and not taken."""
        layout = "hhqqi4x"  # struct flock
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            with open(path, "rb") as file:
                answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
        except FileNotFoundError:
            return False
        return struct.unpack(layout, answer)[0] != fcntl.F_UNLCK

    def test_two_runs_in_one_folder(self) -> None:
        runs = [self.start(*BENCH, "--csv", name) for name in ("one.csv", "two.csv")]
        for run in runs:
            err = run.communicate(timeout=faults.PATIENCE)[1]
            self.assertEqual(run.returncode, 0, err)
        for name in ("one.csv", "two.csv"):
            self.assertEqual(len(lines_of(self.folder / name)), 4)


class Clocks(Faults):
    """The time of day goes back and forth by hours at every look."""

    def setUp(self) -> None:
        super().setUp()
        if not CLOCK_JUMPS:
            self.skipTest(skip.reason("no library was given that makes the clock jump"))
        self.environment["LD_PRELOAD"] = CLOCK_JUMPS

    def test_the_clock_jumps_at_all(self) -> None:
        now = "import time; print(abs(time.time() - time.time()) > 1800)"
        done = subprocess.run([sys.executable, "-c", now], env=self.environment,
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "True\n")

    def test_bench_and_model_measure_by_clocks_that_only_run_forward(self) -> None:
        # A clock of the day would be hours off: beyond each of these limits, and beyond patience.
        status, _, err = self.call(*BENCH, "--csv", "rows.csv", "--timeout", "60")
        self.assertEqual(status, 0, err)
        self.assertEqual([row["status"] for row in lines_of(self.csv)], ["PASSED"] * 4)
        self.each_sample_once(lines_of(self.csv))
        status, _, err = self.call("model", "block", "--size", "tiny", "--threads", "1",
                                   "--max-time", "0.1", "--ceilings-time", "0.3", "--csv",
                                   "model.csv", "--timeout", "100")
        self.assertEqual(status, 0, err)

    def test_tune_and_its_archive(self) -> None:
        self.environment |= {"ROOFLANE_TUNE_PYTHON": tune_environment.interpreter(self),
                             "ROOFLANE_TUNER": str(tune_environment.ROOT / "scripts/tune.py"),
                             "ROOFLANE_ARCHIVE": str(self.folder / "archive.sqlite")}
        status, out, err = self.call("tune", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1",
                                     "--strategy", "random", "--budget", "3", "--max-time", "200",
                                     "--final-time", "5", "--no-store", "--json")
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["tuned"][0]["evaluations"], 3)
        status, out, err = self.call("archive", "history", "1", "--json")
        self.assertEqual(status, 0, err)
        status, out, err = self.call("archive", "list", "--json")
        self.assertEqual(status, 0, err)
        # "undecided": the comparison at the end did not decide, as on a busy machine.
        state, = [run["state"] for run in json.loads(out)["runs"]]
        self.assertIn(state, ("finished", "undecided"))


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[3].endswith(".so"):
        CLOCK_JUMPS = os.path.abspath(sys.argv.pop(3))
    faults.main()
