#!/usr/bin/env python3
"""`rooflane evaluate` and `rooflane tune`: tune_test.py ROOFLANE_WITH_FAKES.

The fakes' tunable variant fails in every way that a candidate may; its speed is a sleep, so that
its order is known on any machine. Needs the tuner's environment.
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

import skip
import tune_environment

tune_environment.enter()

from rooflane import strategies  # noqa: E402
from rooflane.evaluator import (  # noqa: E402
    Evaluation,
    Evaluator,
    Refused,
    Step,
    Target,
    compare,
)
from rooflane.spaces import values_of  # noqa: E402
from rooflane.tuner import export, final, search  # noqa: E402
from rooflane.tuning import (  # noqa: E402
    Cost,
    Outcome,
    Ratio,
    Space,
    Trial,
    configuration_of,
    text_of,
)

PROGRAM = ""
SHAPE = "softmax:rows=4,cols=8"
FAKE = Target(SHAPE, "fake-tunable")
FEW = [Step(2, 100.0)]


class Evaluations(unittest.TestCase):
    """What a candidate does becomes its outcome; the rest goes on."""

    def setUp(self) -> None:
        self.evaluator = Evaluator(timeout=2)
        self.addCleanup(self.evaluator.close)

    def one(self, text: str):
        found, = self.evaluator.evaluate([configuration_of(text)], FEW)
        return found

    def test_every_way_to_fail_is_an_outcome_with_its_reason(self):
        self.evaluator.open(FAKE)
        for fault, outcome, reason in ((1, Outcome.INCORRECT, "expected"),
                                       (2, Outcome.CRASH, "SIGSEGV"),
                                       (3, Outcome.TIMEOUT, "2 s"),
                                       (4, Outcome.BUILD_ERROR, "fault=4 does not build")):
            with self.subTest(outcome=outcome):
                found = self.one(f"fault={fault},pause=0")
                self.assertEqual(found.outcome, outcome)
                self.assertIn(reason, found.reason)
                self.assertIsNone(found.ratio)
        good = self.one("fault=0,pause=0")
        self.assertEqual((good.outcome, good.reason), (Outcome.CORRECT, ""))
        self.assertLess(good.ratio.value, 1)
        self.assertEqual(len(good.ns), len(good.default_ns))

    def test_several_share_rounds(self):
        space = self.evaluator.open(FAKE)
        slow, same, crash = self.evaluator.evaluate(
            [{"fault": 0, "pause": 16}, space.default, {"fault": 2, "pause": 0}], FEW)
        self.assertEqual(slow.default_ns[:1], same.default_ns[:1])
        self.assertGreater(slow.ratio.value, 1)
        self.assertEqual(crash.outcome, Outcome.CRASH)

    def test_the_hopeless_get_no_rounds_and_the_slow_few(self):
        self.evaluator.open(FAKE)
        steps = [Step(2, 1.2), Step(4, 1.1)]
        for _ in range(100):
            hopeless, slow, fast = self.evaluator.evaluate(
                [{"fault": 0, "pause": 200}, {"fault": 0, "pause": 16}, {"fault": 0, "pause": 1}],
                steps)
            # Pauses of 16 and 1 ms on a busy machine may end so late that they come to the same.
            if max(slow.ns) < 22e6 and max(fast.ns) < 8e6:
                break
        self.assertEqual([len(one.ns) for one in (hopeless, slow, fast)], [1, 2, 6])

    def test_proposals_are_completed_refused_or_corrected(self):
        space = self.evaluator.open(FAKE)
        self.assertEqual(space.default, {"fault": 0, "pause": 8})
        whole, forbidden, outside, unknown = self.evaluator.check(
            [{"pause": 3}, {"fault": 5}, {"pause": 2000}, {"paws": 3}])
        self.assertEqual(whole.configuration, {"fault": 0, "pause": 3})
        self.assertIn("against the rules", forbidden.reason)
        self.assertIn("0 to 1000", outside.reason)
        self.assertIn("'paws'; nearest is 'pause'", unknown.reason)
        corrected, = self.evaluator.nearest([{"fault": 5, "pause": 3}])
        self.assertEqual(corrected.configuration, {"fault": 0, "pause": 3})
        self.assertEqual(corrected.changed, ("fault",))

    def test_what_cannot_be_opened_says_why(self):
        for target, reason in ((Target("softmax:rows=4", "hwy"), "cols"),
                               (Target(SHAPE, "hwi"), "nearest is 'hwy'"),
                               (Target(SHAPE, "fake-unsupported"), "never in the mood"),
                               (Target(SHAPE, "fake-crash"), "SIGSEGV")):
            with self.assertRaisesRegex(Refused, reason):
                self.evaluator.open(target)
        self.assertEqual(self.evaluator.open(FAKE).shape, SHAPE)  # it lives

    def test_a_schedule_s_candidates_are_legal_predicted_and_complete(self):
        space = self.evaluator.open(Target("gemm:m=33,n=65,k=17", "hwy"))
        self.assertEqual(space.candidates[0].configuration, space.default)
        predicted = [candidate.predicted_ns for candidate in space.candidates]
        self.assertEqual(predicted, sorted(predicted))
        for candidate in space.candidates:
            legal, = self.evaluator.check([candidate.configuration])
            self.assertEqual(legal.configuration, candidate.configuration)
        texts = [text_of(candidate.configuration) for candidate in space.candidates]
        self.assertEqual(len(texts), len(set(texts)))
        more, = self.evaluator.check([{"threads": 2}])
        self.assertIn("threads=2 of 1", more.reason)

    def test_the_program_ends_with_its_input(self):
        self.evaluator.open(FAKE)
        process = self.evaluator._process
        self.evaluator.close()
        self.assertEqual(process.returncode, 0)


class Values(unittest.TestCase):
    """Which values of a range are tried."""

    def test_a_narrow_range_is_tried_whole(self):
        self.assertEqual(values_of(0, 3, [2]), (0, 1, 2, 3))

    def test_of_a_wide_one_the_proposed_and_steps_around_them(self):
        values = values_of(1, 1 << 40, [100, 400])
        self.assertEqual((values[0], values[-1]), (25, 1600))
        self.assertLessEqual({100, 400}, set(values))
        self.assertLess(len(values), 20)
        self.assertEqual(values, tuple(sorted(set(values))))

    def test_nothing_outside_the_range(self):
        values = values_of(8, 512, [8, 512])
        self.assertEqual((values[0], values[-1]), (8, 512))
        self.assertEqual(values_of(5, 1000, [])[0], 5)


class CompleteSearches(unittest.TestCase):
    """What looks fastest after a complete search is measured again, in further processes."""

    class Processes:
        """The default and x=2 take 1, x=1 takes 0.9; the first launch of x=2 looked like 0.5."""
        def __init__(self) -> None:
            self.asked: list[str] = []

        def evaluate(self, configurations, steps, best=1, fresh=False):
            configuration, = configurations
            assert fresh
            self.asked.append(text_of(configuration))
            rounds = steps[0].rounds
            ns = [90.0 if configuration["x"] == 1 else 100.0] * rounds
            return [Evaluation(configuration, Outcome.CORRECT, "", Ratio(ns[0] / 100, 0.9, 1.1),
                               ns, [100.0] * rounds, 0.0, 1.0, 0, Cost())]

    class Silent:
        """A strategy and an archive."""
        name = "all"

        def observe(self, trial) -> None:
            pass

        def record(self, run, trial) -> None:
            pass

    def test_a_lucky_launch_does_not_stand(self):
        first = {0: 1.0, 1: 0.9, 2: 0.5, 3: 1.2}
        trials = [Trial(x, {"x": x}, Outcome.CORRECT, "all", ratio=Ratio(worth, worth, worth),
                        ns=[100 * worth] * 21, default_ns=[100.0] * 21)
                  for x, worth in first.items()]
        processes = self.Processes()
        complete = search.Search(space=None, evaluator=processes, strategy=self.Silent(), seeds=[],
                                 limits=search.Limits(None), archive=self.Silent(), run=1)
        complete.history.trials = trials
        complete.confirm()
        # Twice as often slow as fast, x=2 is worth 1; x=0 and x=3 cannot be the fastest.
        self.assertEqual(sorted(processes.asked), ["x=1", "x=1", "x=2", "x=2"])
        self.assertEqual({trial.note for trial in complete.history.trials[4:]}, {"measured again"})


class Finals(unittest.TestCase):
    """Winners and ties from made-up samples."""

    DEFAULT, A, B = {"x": 0}, {"x": 1}, {"x": 2}

    def verdict(self, a: float, b: float, noise: float = 0.001, workspace=(0, 10, 5)):
        meeting = final.Final(None, self.DEFAULT, [self.A, self.B])
        meeting._workspace[:] = workspace
        for repetition in range(final.REPETITIONS):
            for index, factor in enumerate((1.0, a, b)):
                luck = 1 + noise * ((repetition * 7 + index * 3) % 5 - 2)  # of a process
                meeting._times[index].append(
                    [factor * luck * (1 + noise * (i % 3 - 1)) for i in range(9)])
        return meeting.verdict()

    def test_a_clear_winner(self):
        found = self.verdict(0.8, 0.9)
        self.assertEqual((found.chosen, found.kind), (self.A, "winner"))
        self.assertAlmostEqual(found.ratio.value, 0.8, places=2)
        self.assertLess(found.ratio.high, 0.85)

    def test_of_a_tie_the_default_is_kept(self):
        found = self.verdict(0.995, 1.2)
        self.assertEqual((found.chosen, found.kind), (self.DEFAULT, "tie"))

    def test_of_a_tie_without_the_default_the_least_workspace(self):
        found = self.verdict(0.800, 0.805)
        self.assertEqual((found.chosen, found.kind), (self.B, "tie"))
        self.assertEqual([one.configuration for one in found.tie_set], [self.A, self.B])

    def test_noise_makes_ties(self):
        self.assertEqual(self.verdict(0.97, 1.0, noise=0.05).kind, "tie")

    def test_the_default_wins_against_slower_ones(self):
        found = self.verdict(1.1, 1.2)
        self.assertEqual((found.chosen, found.kind, found.ratio), (self.DEFAULT, "winner",
                                                                   Ratio(1, 1, 1)))

    def test_the_program_compares_as_bench_does(self):
        (far, slower), (near, equal), (open_, undecided) = compare(
            [[[0.10, 0.11, 0.09]] * 5, [[0.001, -0.001, 0.0]] * 5, [[0.2], [-0.2]]])
        self.assertEqual((slower, equal, undecided), ("slower", "equal", "undecided"))
        self.assertAlmostEqual(far.value, 1.105, places=3)
        self.assertTrue(1.08 < far.low < far.value < far.high < 1.13)
        self.assertTrue(0.98 < near.low <= 1 <= near.high < 1.02)
        self.assertTrue(open_.low < 0.8 and open_.high > 1.2)
        self.assertEqual(compare([[[0.5]]])[0][0].high, float("inf"))  # one round has no interval
        for wrong in ([[]], [[[]]]):
            with self.assertRaises(Refused):
                compare(wrong)

    def test_neighbours_change_all_sizes_and_leave_vectors(self):
        problem = {"text": "gemm:m=1,n=100,k=7,trans_b=1",
                   "parameters": {"m": 1, "n": 100, "k": 7, "batch": 1}}
        self.assertEqual(final.neighbours_of(problem, ["m", "n", "k", "batch"]),
                         ["gemm:m=1,n=99,k=6,trans_b=1", "gemm:m=1,n=101,k=8,trans_b=1",
                          "gemm:m=1,n=50,k=3,trans_b=1", "gemm:m=1,n=200,k=14,trans_b=1"])


class Tune(unittest.TestCase):
    """The verb as a user calls it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                            "ROOFLANE_ARCHIVE": str(self.folder / "archive.sqlite"),
                            "ROOFLANE_TUNE_PYTHON": sys.executable,
                            "ROOFLANE_TUNER": str(tune_environment.ROOT / "scripts/tune.py")}

    def tune(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([PROGRAM, "tune", *words], capture_output=True, text=True,
                              env=self.environment, check=False)

    def fake(self, *words: str) -> list[str]:
        return ["--shape", SHAPE, "-v", "fake-tunable", "--timeout", "2", *words]

    def test_it_finds_the_fastest_keeps_it_and_says_so(self):
        file = self.folder / "tuned.json"
        done = self.tune(*self.fake("--strategy", "local", "--budget", "14", "--export", str(file),
                                    "--json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told, = json.loads(done.stdout)["tuned"]
        found = configuration_of(told["tuning"])
        self.assertEqual(found["fault"], 0)
        self.assertLess(found["pause"], 8)
        self.assertLess(told["ratio"]["high"], 1)
        self.assertEqual(told["default"], "fault=0,pause=8")
        document = json.loads(file.read_text(encoding="utf-8"))
        entry, = document["entries"]
        self.assertEqual(entry["tuning"], told["tuning"])
        greeting = subprocess.run([PROGRAM, "evaluate"], input="", capture_output=True, text=True,
                                  env=self.environment, check=True).stdout
        kept = self.folder / "cache" / "rooflane" / Path(json.loads(greeting)["store"]).name
        self.assertEqual(str(kept), json.loads(greeting)["store"])
        self.assertEqual(json.loads(kept.read_text(encoding="utf-8"))["entries"][0]["tuning"],
                         told["tuning"])

    def test_the_model_alone_keeps_the_default(self):
        done = self.tune(*self.fake("--strategy", "default", "--budget", "1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the default", done.stdout)
        self.assertFalse(list((self.folder / "cache" / "rooflane").glob("tuned-*.json"))
                         and "fake" in next((self.folder / "cache" / "rooflane").glob(
                             "tuned-*.json")).read_text(encoding="utf-8"))

    def test_killed_it_goes_on_where_it_was(self):
        words = self.fake("--strategy", "random", "--budget", "20", "--seed", "5")
        process = subprocess.Popen([PROGRAM, "tune", *words], env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        before = self.wait_for_trials(6)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = self.tune(*words, "--resume", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told, = json.loads(done.stdout)["tuned"]
        self.assertEqual(told["evaluations"], 20)
        from rooflane.archive.store import Archive
        archive = Archive(self.environment["ROOFLANE_ARCHIVE"])
        self.addCleanup(archive.close)
        trials = archive.trials(told["run"])
        self.assertEqual([trial.number for trial in trials], list(range(20)))
        self.assertGreaterEqual(len(before), 6)
        texts = [text_of(trial.configuration) for trial in trials]
        self.assertEqual(len(texts), len(set(texts)))
        self.assertEqual([text_of(trial.configuration) for trial in before], texts[:len(before)])

    def wait_for_trials(self, count: int):
        from rooflane.archive.store import Archive
        for _ in range(600):
            time.sleep(0.1)
            if not Path(self.environment["ROOFLANE_ARCHIVE"]).exists():
                continue
            try:
                archive = Archive(self.environment["ROOFLANE_ARCHIVE"])
                trials = archive.trials(1)
                archive.close()
            except Exception:  # it is being made
                continue
            if len(trials) >= count:
                return trials
        self.fail("no trials were recorded")

    def test_spaces_are_printed_with_predictions(self):
        done = self.tune("--space", "--json", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        space, = json.loads(done.stdout)["spaces"]
        self.assertEqual(space["candidates"][0]["tuning"], space["default"])
        self.assertGreater(space["candidates"][0]["predicted_ns"], 0)
        text = self.tune("--space", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1").stdout
        self.assertIn("ns predicted", text)

    def test_help_tells_examples_and_every_strategy(self):
        for words in (["--help"], ["-h"]):
            done = self.tune(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("Examples:", done.stdout)
        for name in strategies.DESCRIPTIONS:
            self.assertIn(f"{name}: ", " ".join(done.stdout.split()))

    def test_wrong_arguments_are_refused_with_2_and_impossible_ones_with_3(self):
        for status, reason, words in (
                (2, "--shape or --preset", []),
                (2, "nearest is 'softmax'", ["--shape", "sofmax:rows=1,cols=1"]),
                (2, "no variant 'hwi'", ["--shape", SHAPE, "-v", "hwi"]),
                (2, "--strategy", ["--shape", SHAPE, "--strategy", "tpee"]),
                (2, "--budget", ["--shape", SHAPE, "--budget", "0"]),
                (2, "--threads", ["--shape", SHAPE, "--threads", "none"]),
                (3, "has no tunables", ["--shape", SHAPE, "-v", "scalar"]),
                (3, "logical CPUs", ["--shape", SHAPE, "--threads", "9999"])):
            done = self.tune(*words)
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertIn(reason, done.stderr)


class Export(unittest.TestCase):
    """The file of tuned schedules."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "tuned.json"
        self.machine = {"key": "a cpu", "cpu": "a", "cores": 2}

    def keep(self, shape: str, chosen: dict[str, int]) -> list[dict]:
        from rooflane.tuning import Verdict
        space = Space("gemm", "hwy", shape, "fp32", 2, "AVX3", "", (), {"x": 0}, (), None)
        export.keep(self.path, self.machine, space, Verdict(chosen, Ratio(0.9, 0.8, 1)), {})
        return json.loads(self.path.read_text(encoding="utf-8"))["entries"]

    def test_a_case_has_one_entry_and_the_default_none(self):
        self.keep("gemm:m=1", {"x": 1})
        self.keep("gemm:m=2", {"x": 2})
        self.assertEqual([entry["tuning"] for entry in self.keep("gemm:m=1", {"x": 3})],
                         ["x=2", "x=3"])
        self.assertEqual([entry["tuning"] for entry in self.keep("gemm:m=2", {"x": 0})], ["x=3"])

    def test_what_is_no_such_file_is_left_as_it_is(self):
        for text, reason in (("{", "no file of tuned schedules"), ("[]", "no file"),
                             ('{"rooflane_tuned": 9}', "version 9"),
                             ('{"rooflane_tuned": 1, "machine": {"key": "b"}, "entries": []}',
                              "another machine")):
            self.path.write_text(text, encoding="utf-8")
            with self.assertRaisesRegex(export.BadFile, reason):
                self.keep("gemm:m=1", {"x": 1})
            self.assertEqual(self.path.read_text(encoding="utf-8"), text)


if __name__ == "__main__":
    PROGRAM = os.environ["ROOFLANE_PROGRAM"] = str(Path(sys.argv[1]).absolute())
    skip.main([sys.argv[0], *sys.argv[2:]])
