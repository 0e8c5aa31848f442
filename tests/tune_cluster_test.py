#!/usr/bin/env python3
"""`rooflane tune --cluster`: tune_cluster_test.py ROOFLANE_WITH_FAKES.

A scheduler and workers on 127.0.0.1, of which some are killed. Needs the tuner's environment.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

import skip
import tune_environment

tune_environment.enter()

from distributed import KilledWorker  # noqa: E402
from rooflane.archive.database import ArchiveError  # noqa: E402
from rooflane.archive.store import Archive  # noqa: E402
from rooflane.tuner.cluster import ClusterEvaluator  # noqa: E402
from rooflane.tuning import Outcome, Trial, text_of  # noqa: E402

PROGRAM = ""
SHAPE = "softmax:rows=4,cols=8"
BUDGET = 12
PATIENCE = 400  # seconds: other tests run at the same time

# A program of another machine, as far as it says.
ANOTHER = """#!{python}
import os, subprocess, sys
with subprocess.Popen([{program!r}, *sys.argv[1:]], stdout=subprocess.PIPE, text=True) as process:
    for line in process.stdout:
        for colon in (":", ": "):
            line = line.replace('"key"' + colon + '"', '"key"' + colon + '"another ')
        print(line, end="", flush=True)
sys.exit(process.returncode)
"""


class Processes(unittest.TestCase):
    """The command beside a cluster of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                            "ROOFLANE_ARCHIVE": str(self.folder / "archive.sqlite"),
                            "PYTHONPATH": str(tune_environment.ROOT / "python")}
        about = self.folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--scheduler-file", str(about))
        self.wait(lambda: about.exists() and about.read_text(encoding="utf-8").endswith("}"))
        self.address = json.loads(about.read_text(encoding="utf-8"))["address"]

    def start(self, *words: str, program: str = "", **pipes: int) -> subprocess.Popen[str]:
        """A process that ends with the test."""
        environment = {**self.environment, "ROOFLANE_PROGRAM": program or PROGRAM}
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            process = subprocess.Popen([sys.executable, "-m", "rooflane.verbs", *words], text=True,
                                       env=environment, **{"stdout": log, "stderr": log, **pipes})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(lambda: process.stdout and process.stdout.close())
        self.addCleanup(lambda: process.stderr and process.stderr.close())
        return process

    def worker(self, program: str = "") -> subprocess.Popen[str]:
        return self.start("worker", self.address, "--no-nanny", "--death-timeout", "200",
                          "--local-directory", str(self.folder), program=program)

    def tune(self, *words: str) -> subprocess.Popen[str]:
        return self.start("tune", "--shape", SHAPE, "-v", "fake-tunable", "--threads", "1",
                          "--timeout", "4", "--final-time", "1", "--strategy", "local",
                          "--budget", str(BUDGET), "--json", *words, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)

    def wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                self.fail((self.folder / "log.txt").read_text(encoding="utf-8"))
            time.sleep(0.05)

    def trials(self, run: int = 1) -> list[Trial]:
        try:
            archive = Archive(self.environment["ROOFLANE_ARCHIVE"], create=False)
        except (ArchiveError, OSError):
            return []  # not made yet
        try:
            return archive.record_of(run).trials
        except ArchiveError:
            return []
        finally:
            archive.close()

    def told(self, process: subprocess.Popen[str], status: int = 0) -> list[dict]:
        """What it found; its status is asserted."""
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, status,
                         err + (self.folder / "log.txt").read_text(encoding="utf-8"))
        return json.loads(out)["tuned"] if out else []

    def assert_whole(self, trials: list[Trial], budget: int = BUDGET) -> None:
        """The budget was spent, each number and configuration once, the default first."""
        self.assertEqual([trial.number for trial in trials], list(range(budget)))
        texts = [text_of(trial.configuration) for trial in trials]
        self.assertEqual(len(set(texts)), budget)
        self.assertEqual(texts[0], "fault=0,pause=8")
        for trial in trials:  # a worker's end is nobody's fault
            self.assertEqual(trial.outcome is Outcome.CRASH, trial.configuration["fault"] == 2,
                             trial.reason)

    def test_a_killed_worker_loses_nothing_and_nothing_counts_twice(self):
        workers = [self.worker() for _ in range(2)]
        process = self.tune("--cluster", self.address)
        self.wait(lambda: len(self.trials()) >= 4)
        workers[1].kill()
        before = self.trials()
        self.assertLess(len(before), BUDGET)
        found, = self.told(process)
        self.assertEqual(found["evaluations"], BUDGET)
        self.assert_whole(self.trials())
        self.assertLess(found["ratio"]["high"], 1)
        self.assertIsNone(workers[0].poll())
        stores = list((self.folder / "cache" / "rooflane").glob("tuned-*.json"))
        self.assertEqual(len(stores), 1)
        self.assertIn(found["tuning"], stores[0].read_text(encoding="utf-8"))

    def test_another_machine_has_a_search_of_its_own(self):
        program = self.folder / "rooflane"
        program.write_text(ANOTHER.format(python=sys.executable, program=PROGRAM),
                           encoding="utf-8")
        program.chmod(0o755)
        for each in ("", str(program)):
            self.worker(each)
        self.wait_for_workers(2)
        found = self.told(self.tune("--cluster", self.address, "--budget", "8",
                                    "--export", str(self.folder / "tuned.json")))
        self.assertEqual(len(found), 2)
        another, ours = sorted(found, key=lambda one: not one["machine"].startswith("another "))
        self.assertEqual(another["machine"], "another " + ours["machine"])
        for one in found:
            self.assert_whole(self.trials(one["run"]), 8)
        self.assertNotEqual(another["run"], ours["run"])
        self.assertEqual(len(list(self.folder.glob("tuned-*.json"))), 2)

    def wait_for_workers(self, count: int) -> None:
        from distributed import Client
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=PATIENCE)

    def test_without_its_scheduler_a_search_goes_on_by_resume(self):
        for _ in range(2):
            self.worker()
        process = self.tune("--cluster", self.address)
        self.wait(lambda: len(self.trials()) >= 4)
        self.scheduler.kill()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("--resume", err)
        before = [text_of(trial.configuration) for trial in self.trials()]
        self.assertLess(len(before), BUDGET)
        found, = self.told(self.tune("--resume"))
        self.assertEqual((found["run"], found["evaluations"]), (1, BUDGET))
        trials = self.trials()
        self.assert_whole(trials)
        self.assertEqual([text_of(trial.configuration) for trial in trials][:len(before)], before)

    def test_interrupted_it_says_so_and_leaves_what_there_is(self):
        self.worker()
        process = self.tune("--cluster", self.address, "--budget", "5000")  # it is not over soon
        self.wait(lambda: len(self.trials()) >= 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("--resume", err)

    def test_where_no_scheduler_is_the_status_is_3(self):
        self.scheduler.kill()
        self.scheduler.wait()
        process = self.tune("--cluster", self.address)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("no scheduler answers", err)


class Deaths(unittest.TestCase):
    """Workers that a configuration kills, without processes."""

    def test_what_dask_gives_up_is_a_crash_of_the_configuration_that_kills_alone(self):
        def result(asked: list[dict[str, int]]) -> list[Trial]:
            if {"x": 1} in asked:
                raise KilledWorker("task", None, 2)
            return [Trial(0, one, Outcome.CORRECT) for one in asked]

        cluster = SimpleNamespace(submit=lambda *words: words[4], first=lambda *_: None,
                                  result=result)
        found = ClusterEvaluator(cluster, "kind").evaluate([{"x": x} for x in range(3)], [])
        self.assertEqual([one.outcome for one in found],
                         [Outcome.CORRECT, Outcome.CRASH, Outcome.CORRECT])


if __name__ == "__main__":
    PROGRAM = os.environ["ROOFLANE_PROGRAM"] = str(Path(sys.argv[1]).absolute())
    skip.main([sys.argv[0], *sys.argv[2:]])
