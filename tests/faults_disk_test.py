#!/usr/bin/env python3
"""Disks that are full, folders that cannot be written, files that may not grow: the message names
the file and the system's reason, and what was written stays readable. faults_disk_test.py ROOFLANE
ROOFLANE_WITH_FAKES.
"""
from __future__ import annotations

import json
import resource
import signal
import sys

import faults
import skip
import tune_environment
from faults import BENCH, Faults, lines_of

FULL = "No space left on device"
MOUNT = faults.mount_command()
# Mounts $DISK of so many KiB, runs the words in it, and brings what is there to $KEPT.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size="$1"k tmpfs "$DISK" && cd "$DISK" || exit 99
sh -c "$2"; shift 2
"$@"; status=$?
cp -r "$DISK/." "$KEPT"; exit $status
"""
FILL = "head -c 10m /dev/zero > filler 2>/dev/null"


class SmallDisks(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.disk, self.kept = self.folder / "disk", self.folder / "kept"

    def require_mounts(self) -> None:
        if MOUNT is None:
            self.skipTest(skip.reason("no mounts are allowed here"))

    def on_small_disk(self, kibibytes: int, before: str, *words: str, **environment: str,
                      ) -> tuple[int, str, str]:
        """A call in a folder that is such a disk; its files lie in self.kept afterwards."""
        self.require_mounts()
        for folder in (self.disk, self.kept):
            folder.mkdir(exist_ok=True)
        variables = {**self.environment, "DISK": str(self.disk), "KEPT": str(self.kept),
                     **environment}
        return self.call(*MOUNT[1:], "sh", "-c", ON_A_SMALL_DISK, "sh", str(kibibytes), before,
                         *words, program=MOUNT[0], env=variables)

    def assert_full(self, done: tuple[int, str, str], status: int, path: str) -> None:
        told = self.errors(done[2])
        self.assertEqual(done[0], status, done)
        self.assertEqual(len(told), 1, done)
        self.assertIn(path, told[0])
        self.assertIn(FULL, told[0])


class Measuring(SmallDisks):
    """What the program writes."""

    def test_bench_on_a_full_disk_leaves_whole_lines_and_goes_on_elsewhere(self) -> None:
        """One page more each time until samples were written before the disk was full: the
        files of the beginning differ in size by machine. The rows of 18 groups outgrow a page,
        however few samples a busy machine takes."""
        self.require_mounts()
        measured = False
        words = [*BENCH, "--shape", "softmax:rows=1..32768*2,cols=16"]
        for kibibytes in range(8, 40, 4):
            with self.subTest(kibibytes=kibibytes):
                done = self.on_small_disk(kibibytes, ":", self.rooflane, *words, "--csv",
                                          "rows.csv")
                self.assert_full(done, 2, "'rows.csv")
                self.csv, self.samples = self.kept / "rows.csv", self.kept / "rows.csv.samples.csv"
                self.rows_are_readable()
                measured = measured or len(lines_of(self.samples)) > 0
                for path in (self.csv, self.samples):
                    self.assertEqual(path.read_text(encoding="utf-8")[-1:], "\n")
                status, _, err = self.call(*words, "--csv", str(self.csv), "--resume")
                self.assertEqual(status, 0, err)
                self.assertEqual(len(lines_of(self.csv)), 36)
                self.each_sample_once(lines_of(self.csv))
            if measured:
                break
            for path in self.kept.iterdir():
                path.unlink()
        self.assertTrue(measured, "no disk was full in the middle of a run")
        self.no_process_is_left()

    def test_model_on_a_full_disk_keeps_the_rows_of_before(self) -> None:
        status, _, err = self.call("ceilings", "--seconds", "0.5", "--threads", "1", "--json",
                                   "ceilings.json")
        self.assertEqual(status, 0, err)
        done = self.on_small_disk(
            16, "echo before > rows.csv; " + FILL, self.rooflane, "model", "block", "--size",
            "tiny", "--threads", "1", "--max-time", "0.05", "--ceilings", "../ceilings.json",
            "--csv", "rows.csv")
        self.assert_full(done, 2, "'rows.csv")
        self.assertEqual((self.kept / "rows.csv").read_text(encoding="utf-8"), "before\n")

    def test_standard_output_on_a_full_disk_is_an_error(self) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.refuse(2, ["standard output cannot be written", FULL], *BENCH, stdout=full)
            self.refuse(2, ["standard output cannot be written", FULL], "list", stdout=full)

    def test_traits_on_a_full_disk(self) -> None:
        done = self.on_small_disk(4, "echo 1 > old; " + FILL, self.rooflane, "calibrate",
                                  "--seconds", "0.2", "--threads", "1",
                                  ROOFLANE_TRAITS=str(self.disk / "traits.json"))
        self.assert_full(done, 2, "traits.json")
        self.assertEqual({path.name for path in self.kept.iterdir()}, {"old", "filler"})

    def test_python_s_files_on_a_full_disk_name_the_file_and_leave_it(self) -> None:
        replace = ("import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; "
                   "from rooflane import files; files.replace(Path('tuned.json'), 'x' * 9000)")
        status, _, err = self.on_small_disk(
            4, "echo before > tuned.json; " + FILL, sys.executable, "-c", replace,
            str(tune_environment.ROOT / "python"))
        self.assertEqual(status, 1, err)
        self.assertIn(f"OSError: [Errno 28] {FULL}: 'tuned.json'", err)
        self.assertEqual((self.kept / "tuned.json").read_text(encoding="utf-8"), "before\n")
        self.assertFalse((self.kept / "tuned.json.partial").exists())

    def test_a_file_that_may_not_grow_is_an_error_and_no_signal(self) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

        self.refuse(2, ["'rows.csv.resume' cannot be written", "File too large"], *BENCH, "--csv",
                    "rows.csv", preexec_fn=limit)
        self.rows_are_readable()
        status, _, err = self.call(*BENCH, "--csv", "rows.csv", "--resume")
        self.assertEqual(status, 0, err)

    def test_a_folder_that_is_read_only_is_refused_before_anything_is_measured(self) -> None:
        read_only = "mount -o remount,ro \"$DISK\""
        for words in ([*BENCH, "--csv", "rows.csv"], [*BENCH, "--json", "rows.json"],
                      ["model", "block", "--csv", "rows.csv"],
                      ["ceilings", "--json", "rows.json"]):
            with self.subTest(words[0]):
                done = self.on_small_disk(64, read_only, self.rooflane, *words)
                told = self.errors(done[2])
                self.assertEqual((done[0], len(told)), (2, 1), done)
                self.assertRegex(told[0], r"--(csv|json): 'rows\.\w+' cannot be written: Read-only")

    def test_a_cache_folder_that_cannot_be_written_costs_time_alone(self) -> None:
        (self.folder / "file").write_text("", encoding="utf-8")
        self.environment["XDG_CACHE_HOME"] = str(self.folder / "file")
        status, out, err = self.call(*BENCH, "--json", "rows.json")
        self.assertEqual(status, 0, err)
        rows = json.loads((self.folder / "rows.json").read_text(encoding="utf-8"))["rows"]
        self.assertEqual({row["status"] for row in rows}, {"PASSED"})


class Tuning(SmallDisks):
    """What the tuner writes: the archive, the store."""

    def setUp(self) -> None:
        super().setUp()
        self.environment |= {"ROOFLANE_TUNE_PYTHON": tune_environment.interpreter(self),
                             "ROOFLANE_TUNER": str(tune_environment.ROOT / "scripts/tune.py")}
        self.words = ["tune", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1", "--strategy",
                      "random", "--budget", "2", "--final-time", "5", "--archive",
                      "archive.sqlite"]

    def test_an_archive_on_a_full_disk(self) -> None:
        status, _, err = self.on_small_disk(64, ":", self.rooflane, *self.words, "--no-store")
        self.assertEqual(status, 3, err)
        told, = self.errors(err)
        self.assertIn("archive.sqlite", told)
        self.assertIn("disk is full", told)

    def test_a_store_that_cannot_be_written_is_told_before_anything_is_measured(self) -> None:
        (self.folder / "file").write_text("", encoding="utf-8")
        self.environment["XDG_CACHE_HOME"] = str(self.folder / "file")
        self.refuse(3, [str(self.folder / "file"), "Not a directory"], *self.words)
        self.assertFalse((self.folder / "archive.sqlite").exists())


if __name__ == "__main__":
    faults.main()
