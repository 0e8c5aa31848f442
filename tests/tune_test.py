#!/usr/bin/env python3
"""`rooflane evaluate` and `rooflane tune`: tune_test.py ROOFLANE_WITH_FAKES.

The fakes' tunable variant fails in every way that a candidate may; its speed is a sleep, so that
its order is known on any machine. Needs the tuner's environment.
"""
from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import skip
import tune_environment

tune_environment.enter()

import numpy as np  # noqa: E402
from rooflane import strategies  # noqa: E402
from rooflane.evaluator import Evaluator, Refused, Step, Target  # noqa: E402
from rooflane.league import spaces  # noqa: E402
from rooflane.league.replay import ReplayedSpace, ratio_of  # noqa: E402
from rooflane.spaces import values_of  # noqa: E402
from rooflane.tuner import command, export, final, search, worth  # noqa: E402
from rooflane.tuning import (  # noqa: E402
    Candidate,
    History,
    Neighbour,
    Outcome,
    Ratio,
    Space,
    Trial,
    Verdict,
    configuration_of,
    text_of,
)

PROGRAM = ""
SHAPE = "softmax:rows=4,cols=8"
FAKE = Target(SHAPE, "fake-tunable")
FEW = [Step(2, 100.0)]
LATE = 6  # seconds: only what hangs takes so long, however busy the machine is


class Evaluations(unittest.TestCase):
    """What a candidate does becomes its outcome; the rest goes on."""

    def setUp(self) -> None:
        self.evaluator = Evaluator(timeout=LATE)
        self.addCleanup(self.evaluator.close)

    def one(self, text: str):
        found, = self.evaluator.evaluate([configuration_of(text)], FEW)
        return found

    def test_every_way_to_fail_is_an_outcome_with_its_reason(self):
        self.evaluator.open(FAKE)
        for fault, outcome, reason in ((1, Outcome.INCORRECT, "expected"),
                                       (2, Outcome.CRASH, "SIGSEGV"),
                                       (3, Outcome.TIMEOUT, f"{LATE} s"),
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
            [{"fault": 0, "pause": 200}, space.default, {"fault": 2, "pause": 0}], FEW,
            best=100)  # nobody is hopeless
        self.assertEqual(slow.default_ns[:1], same.default_ns[:1])
        self.assertGreater(slow.ratio.value, 1)
        self.assertEqual(crash.outcome, Outcome.CRASH)

    def test_the_hopeless_get_no_rounds_and_the_slow_few(self):
        self.evaluator.open(FAKE)
        # Beside a best of 10 times the default's 8 ms: beyond 30 times is hopeless, beyond 12 slow.
        # A busy machine ends pauses some milliseconds late.
        steps = [Step(2, 1.2), Step(4, 1.1)]
        taken = []
        for _ in range(20):
            taken = [len(one.ns) for one in self.evaluator.evaluate(
                [{"fault": 0, "pause": pause} for pause in (700, 170, 1)], steps, best=10)]
            if taken == [1, 2, 6]:
                break
        self.assertEqual(taken, [1, 2, 6])

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

    def test_problems_are_listed_by_the_same_process(self):
        listed = self.evaluator.list(["softmax:rows=1..2*2,cols=8"], [])
        self.assertEqual([one["text"] for one in listed["problems"]],
                         ["softmax:rows=1,cols=8", "softmax:rows=2,cols=8"])
        with self.assertRaisesRegex(Refused, "nearest is 'softmax'"):
            self.evaluator.list(["sofmax:rows=1,cols=8"], [])
        model = [one["text"] for one in self.evaluator.list([], [], ["llama"])["problems"]]
        self.assertGreater(len(model), 2 * len(set(model)))  # layers are alike

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
        self.assertGreater(space.prediction_error, 0.01)
        self.assertIsNone(self.evaluator.open(FAKE).prediction_error)
        self.evaluator.open(Target("gemm:m=33,n=65,k=17", "hwy"))
        more, = self.evaluator.check([{"threads": 2}])
        self.assertIn("threads=2 of 1", more.reason)

    def test_packed_weights_of_few_rows_are_cold_unless_said_otherwise(self):
        for shape, asked, cache in (("gemm:m=16,n=8,k=8,prepack=1", "", "cold"),
                                    ("gemm:m=17,n=8,k=8,prepack=1", "", "warm"),
                                    ("gemm:m=16,n=8,k=8", "", "warm"),
                                    ("gemm:m=16,n=8,k=8,prepack=1", "warm", "warm"),
                                    ("gemm:m=17,n=8,k=8", "cold", "cold")):
            space = self.evaluator.open(Target(shape, "hwy", cache=asked))
            self.assertEqual(space.cache, cache, (shape, asked))
            self.assertEqual(space.title.endswith(" cold"), cache == "cold")
            self.assertEqual(space.problem["usual_cache"],
                             "cold" if "m=16" in shape and "prepack" in shape else "warm")
        with self.assertRaisesRegex(Refused, "cache mode"):
            self.evaluator.open(Target(SHAPE, "hwy", cache="tepid"))

    def test_the_program_ends_with_its_input(self):
        self.evaluator.open(FAKE)
        process = self.evaluator._process
        self.evaluator.close()
        self.assertEqual(process.returncode, 0)


class Values(unittest.TestCase):
    """Which values of a range are tried."""

    def test_a_narrow_range_is_tried_whole_and_steps_around_what_is_proposed_in_a_wide_one(self):
        self.assertEqual(values_of(0, 3, [2]), (0, 1, 2, 3))
        values = values_of(1, 1 << 40, [100, 400])
        self.assertEqual((values[0], values[-1]), (25, 1600))
        self.assertLessEqual({100, 400}, set(values))
        self.assertLess(len(values), 20)
        self.assertEqual(values, tuple(sorted(set(values))))
        self.assertEqual(values_of(8, 512, [8, 512])[::len(values_of(8, 512, [8, 512])) - 1],
                         (8, 512))
        self.assertEqual(values_of(5, 1000, [])[0], 5)


class Silent:
    """An archive that keeps nothing."""

    def record(self, run, trial) -> None:
        pass


class PlantedMachine:
    """An evaluator with known true times: `truth` is the time over the default's, by text. A
    process is faster or slower by `luck`, a round by `noise`, both standard deviations of
    logarithms. The program compares."""

    def __init__(self, program: Evaluator, truth: dict[str, float], default: dict[str, int],
                 noise: float, luck: float, seed: int, workspace: dict[str, int] | None = None):
        self.compare, self.truth, self.default = program.compare, truth, text_of(default)
        self.noise, self.luck, self.workspace = noise, luck, workspace or {}
        self.chance = np.random.default_rng(seed)
        self.orders: list[list[str]] = []  # of the processes of each repetition
        self._first = self._process(self.default)

    def _process(self, text: str) -> float:
        return 1e5 * self.truth[text] * np.exp(self.luck * self.chance.standard_normal())

    def evaluate(self, configurations, steps, best=1, fresh=False):
        if fresh:
            self._first = self._process(self.default)
            self.orders.append([text_of(one) for one in configurations])
        ends = np.cumsum([step.rounds for step in steps])
        first = self._first * np.exp(self.noise * self.chance.standard_normal(ends[-1]))
        return [self._one(one, steps, ends, best, first) for one in configurations]

    def _one(self, configuration, steps, ends, best, first):
        text = text_of(configuration)
        if text not in self.truth:
            return Trial(0, configuration, Outcome.CRASH, reason="planted")
        ns = self._process(text) * np.exp(self.noise * self.chance.standard_normal(ends[-1]))
        for step, end in zip(steps, ends):
            ratio = ratio_of(ns[:end], first[:end])
            if ratio.low > best * step.within:
                break
        return Trial(0, configuration, Outcome.CORRECT, ratio=ratio, ns=list(ns[:end]),
                     default_ns=list(first[:end]), workspace_bytes=self.workspace.get(text, 0))


class Finals(unittest.TestCase):
    """Winners, ties and open ends of planted times."""

    DEFAULT, A, B = {"x": 0}, {"x": 1}, {"x": 2}

    @classmethod
    def setUpClass(cls) -> None:
        cls.program = Evaluator()
        cls.addClassCleanup(cls.program.close)

    def machine(self, a: float, b: float | None, noise: float = 0.01, seed: int = 1):
        truth = {"x=0": 1.0, "x=1": a, **({} if b is None else {"x=2": b})}
        return PlantedMachine(self.program, truth, self.DEFAULT, noise, noise / 4, seed,
                              {"x=1": 10, "x=2": 5})

    def verdict(self, a: float, b: float | None, noise: float = 0.01, seconds: float = 1e9):
        machine = self.machine(a, b, noise)
        return final.Final(machine, self.DEFAULT, [self.A, self.B]).race(seconds)

    def test_winners_and_ties_are_those_of_the_planted_times(self):
        for a, b, chosen, kind in (
                (0.8, 0.9, self.A, "winner"), (1.1, 1.2, self.DEFAULT, "winner"),
                (0.8, None, self.A, "winner"),  # the other one fails, and leaves the race
                (0.995, 1.2, self.DEFAULT, "tie"),
                (0.800, 0.802, self.B, "tie")):  # without the default the least workspace
            found = self.verdict(a, b)
            self.assertEqual((found.chosen, found.kind), (chosen, kind), (a, b))
            true = {"x=0": 1.0, "x=1": a, "x=2": b}[text_of(chosen)]
            self.assertAlmostEqual(found.ratio.value, true, places=2)
            self.assertLess(found.ratio.high, 1.07 * true)
        self.assertCountEqual([one.configuration for one in found.tie_set], [self.A, self.B])

    def test_what_is_not_decided_in_time_is_called_so_and_the_default_stays(self):
        found = self.verdict(0.96, 1.3, noise=0.1, seconds=0)
        self.assertEqual((found.chosen, found.kind), (self.DEFAULT, "undecided"))
        self.assertGreater(found.seconds_more, 0)
        self.assertIn("undecided", final.describe(found, self.DEFAULT))
        self.assertIn("more would decide", final.describe(found, self.DEFAULT))

    def test_in_a_short_race_only_as_many_go_on_as_reach_the_first_look_in_time(self):
        """A clock that each process lets go on by a second."""
        truth = {f"x={x}": 1.0 - x / 50 for x in range(9)}
        for seconds, field in ((20, [9, 3, 3, 3]), (5, [9, 2, 2, 2]), (1000, [9, 9, 9, 7])):
            machine = PlantedMachine(self.program, truth, self.DEFAULT, 0.01, 0.003, 1)
            with mock.patch.object(final.time, "monotonic",
                                   lambda of=machine: float(sum(map(len, of.orders)))):
                found = final.Final(machine, self.DEFAULT, [{"x": x} for x in range(1, 9)]
                                    ).race(seconds)
            self.assertEqual([len(order) for order in machine.orders[:4]], field)
            self.assertEqual(found.chosen, {"x": 8})

    def test_the_default_takes_part_to_the_end_in_a_shuffled_order(self):
        machine = self.machine(0.8, 0.801, noise=0.05)
        final.Final(machine, self.DEFAULT, [self.A, self.B]).race(1e9)
        self.assertTrue(all("x=0" in order for order in machine.orders))
        self.assertGreater(len({tuple(order) for order in machine.orders}), 2)

    def test_sixty_tunings_name_a_member_of_the_true_tie_set(self):
        """Three completely recorded spaces, their medians as true times; rounds that differ by 2, 5
        and 10 %, processes by 1 %. The true tie set: what takes at most 2 % longer than the
        fastest."""
        recorded = spaces.read(spaces.SHIPPED)
        members, stored, false = 0, 0, 0
        for title in ("softmax:rows=512,cols=1000 hwy", "gemm:m=33,n=1000,k=500",
                      "attention:batch=1,heads=32"):
            replayed = ReplayedSpace(next(one for one in recorded
                                          if spaces.title_of(one).startswith(title)))
            truth, default = replayed.truth, replayed.space.default
            for seed in range(20):
                machine = PlantedMachine(self.program, truth, default,
                                         (0.02, 0.05, 0.10)[seed % 3], 0.01, seed)
                found = self.tuned(replayed.space, machine, seed)
                worth_of = truth[text_of(found.chosen)]
                members += worth_of <= 1.02 * replayed.optimum
                stored += found.chosen != default
                false += found.chosen != default and worth_of >= truth[text_of(default)]
        self.assertGreaterEqual(members, 57)
        self.assertEqual(false, 0, f"of {stored} that are stored")

    def tuned(self, space: Space, machine: PlantedMachine, seed: int):
        """A complete search and its last comparison."""
        strategy = strategies.make("all", space, seed)
        whole = search.Search(space, machine, strategy, strategies.seeds(space),
                              search.Limits(None), Silent(), 1, search.COMPLETE)
        whole.execute()
        return final.Final(machine, space.default, final.best_of(whole.history), seed).race(1e9)

    def test_a_pruned_run_that_goes_on_numbers_its_trials_after_the_last(self):
        replayed = ReplayedSpace(spaces.read(spaces.SHIPPED)[0])
        space = replayed.space
        machine = PlantedMachine(self.program, replayed.truth, space.default, 0.02, 0.01, 1)

        def searched(trials: int, before: list[Trial]) -> list[Trial]:
            strategy = strategies.make("random", space, 1)
            return search.Search(space, machine, strategy, [space.default],
                                 search.Limits(trials), Silent(), 1, trials=before
                                 ).execute().trials

        first = searched(5, [])
        self.assertEqual([trial.number for trial in first], [0, 1, 2, 3, 4])
        rest = searched(6, [trial for trial in first if trial.number not in (1, 2)])
        self.assertEqual([trial.number for trial in rest], [0, 3, 4, 5, 6, 7])

    def test_a_schedule_as_fast_as_the_default_is_not_stored(self):
        """Races of eight schedules that are all as fast as the default: none is stored."""
        truth = {f"x={x}": 1.0 for x in range(9)}
        finalists = [{"x": x} for x in range(1, 9)]
        stored = 0
        for seed in range(24):
            machine = PlantedMachine(self.program, truth, self.DEFAULT, (0.02, 0.10)[seed % 2],
                                     0.01, seed)
            found = final.Final(machine, self.DEFAULT, finalists, seed).race(1e9)
            stored += found.chosen != self.DEFAULT
        self.assertEqual(stored, 0)

    def test_the_error_of_all_comparisons_of_a_race_adds_up_to_the_promised_one(self):
        """However many finalists have left, each look takes the same share for each of them."""
        asked = []
        machine = PlantedMachine(self.program, {f"x={x}": 1 + x / 10 for x in range(25)},
                                 self.DEFAULT, 0.05, 0.01, 1)
        compare = machine.compare
        machine.compare = lambda pairs, level: asked.append((len(pairs), level)) or compare(
            pairs, level)
        final.Final(machine, self.DEFAULT, [{"x": x} for x in range(1, 25)]).race(1e9)
        over_default = asked[::2]
        self.assertLess(over_default[0][0], 24)  # halved before the first look
        for _, level in over_default:
            self.assertLessEqual((1 - level) * len(final.LOOKS) * 24, final.ERROR * 1.0001)

    def test_the_program_compares_as_bench_does(self):
        far, near, open_ = self.program.compare(
            [[[0.10, 0.11, 0.09]] * 5, [[0.001, -0.001, 0.0]] * 5, [[0.2], [-0.2]]])
        self.assertEqual([one.verdict for one in (far, near, open_)],
                         ["slower", "equal", "undecided"])
        self.assertAlmostEqual(far.ratio.value, 1.105, places=3)
        self.assertTrue(1.08 < far.ratio.low < far.ratio.value < far.ratio.high < 1.13)
        self.assertTrue(0.98 < near.ratio.low <= 1 <= near.ratio.high < 1.02)
        self.assertTrue(open_.ratio.low < 0.8 and open_.ratio.high > 1.2)
        self.assertGreater(open_.repetitions, 1)
        one_round, = self.program.compare([[[0.5]]])  # has no interval
        self.assertEqual(one_round.ratio.high, float("inf"))
        for wrong, level in (([[]], 0.99), ([[[]]], 0.99), ([[[0.1]]], 0.5)):
            with self.assertRaises(Refused):
                self.program.compare(wrong, level)

    def test_a_stricter_level_decides_later(self):
        pair = [[0.05, 0.06, 0.04], [0.03, 0.04, 0.05], [0.06, 0.05, 0.07], [0.04, 0.05, 0.06]]
        found = [self.program.compare([pair], level)[0].verdict for level in (0.99, 0.9999)]
        self.assertEqual(found, ["slower", "undecided"])

    def test_neighbours_change_all_sizes_and_the_caches_and_leave_vectors(self):
        problem = {"text": "gemm:m=1,n=100,k=7,trans_b=1",
                   "parameters": {"m": 1, "n": 100, "k": 7, "batch": 1}, "cache": "cold"}
        space = Space("gemm", "hwy", problem["text"], "fp32", 1, "AVX3", "", (), {}, (), None,
                      problem)
        found = final.neighbours_of(Target(problem["text"], "hwy"), space, ["m", "n", "k", "batch"])
        self.assertEqual([(one.shape, one.cache) for one in found],
                         [("gemm:m=1,n=99,k=6,trans_b=1", "cold"),
                          ("gemm:m=1,n=101,k=8,trans_b=1", "cold"),
                          ("gemm:m=1,n=50,k=3,trans_b=1", "cold"),
                          ("gemm:m=1,n=200,k=14,trans_b=1", "cold"),
                          ("gemm:m=1,n=100,k=7,trans_b=1", "warm")])

    def test_a_warm_winner_that_loses_cold_is_reported(self):
        space = Space("gemm", "hwy", "gemm:m=64", "fp32", 1, "AVX3", "", (), {"x": 0}, (), None)
        slower = Neighbour("gemm:m=64", Outcome.CORRECT, "", Ratio(1.2, 1.15, 1.25), "cold")
        verdict = Verdict({"x": 1}, Ratio(0.9, 0.89, 0.91), neighbours=[slower])
        self.assertTrue(final.serves_neighbours(verdict.neighbours))  # it is not another size
        done = SimpleNamespace(space=space, history=History(space), verdict=verdict, run=1)
        text = command.line_of(done, "a line")
        self.assertIn("with cold caches it is slower than the default: 1.200 times its time", text)


class Worth(unittest.TestCase):
    """Which search gets the next evaluations."""

    @staticmethod
    def history(predicted: list[float], measured: list[float], shape: str = "gemm:m=1",
                error: float | None = None) -> History:
        """x=0 is the default; the first ones of x are measured."""
        space = Space("gemm", "hwy", shape, "fp32", 1, "AVX3", "", (), {"x": 0},
                      tuple(Candidate({"x": x}, ns) for x, ns in enumerate(predicted)), None,
                      prediction_error=error)
        return History(space, [
            Trial(x, {"x": x}, Outcome.CORRECT, "seed", ratio=Ratio(ratio, ratio, ratio),
                  ns=[1e6 * ratio], default_ns=[1e6]) for x, ratio in enumerate(measured)])

    def test_what_the_model_holds_possible_promises_more_than_what_it_excludes(self):
        errors = worth.ModelErrors()
        near, far = (worth.gain_of_batch(self.history([100, 101, ns], [1.0, 1.0]), errors, 9, 0.0)
                     for ns in (102, 180))
        self.assertGreater(near, worth.DOUBT)
        self.assertLess(far, worth.DOUBT)

    def test_a_model_that_was_right_has_a_narrow_interval(self):
        right, wrong = worth.ModelErrors(), worth.ModelErrors()
        predicted = [100, 110, 120, 130, 140, 150]
        right.learn(self.history(predicted, [1.0, 1.1, 1.2, 1.3, 1.4]))
        wrong.learn(self.history(predicted, [1.0, 1.6, 0.9, 1.9, 1.1]))
        fresh = self.history([100, 104], [1.0], "gemm:m=2")
        self.assertLess(right.of(fresh), worth.USUAL_ERROR)
        self.assertGreater(wrong.of(fresh), worth.USUAL_ERROR)
        self.assertLess(worth.gain_of_batch(fresh, right, 9, 0.0),
                        worth.gain_of_batch(fresh, wrong, 9, 0.0))

    def test_what_the_fit_left_is_where_the_error_begins(self):
        errors = worth.ModelErrors()
        exact, rough = (self.history([100, 105], [1.0], error=error) for error in (0.02, 0.30))
        self.assertAlmostEqual(errors.of(exact), 0.02)
        self.assertAlmostEqual(errors.of(self.history([100], [1.0])), worth.USUAL_ERROR)
        self.assertLess(worth.gain_of_batch(exact, errors, 9, 0.0), worth.DOUBT)
        self.assertGreater(worth.gain_of_batch(rough, errors, 9, 0.0), worth.DOUBT)

    def test_batches_without_success_promise_less_and_less(self):
        history = self.history([], [1.0])
        gains = [worth.gain_of_batch(history, worth.ModelErrors(), batches, 0.0)
                 for batches in range(5)]
        self.assertEqual(gains, sorted(gains, reverse=True))
        self.assertLess(gains[-1], worth.DOUBT)
        self.assertGreater(worth.gain_of_batch(history, worth.ModelErrors(), 5, 0.10), 0.04)

    def test_the_expected_improvement_of_one_is_the_known_one(self):
        self.assertAlmostEqual(worth.expected_gain(0.0, [0.0], 1.0), 0.3989, places=2)
        self.assertEqual(worth.expected_gain(0.0, [], 1.0), 0.0)
        self.assertAlmostEqual(worth.expected_gain(0.0, [-0.5], 1e-3), 0.5, places=2)

    def test_a_call_s_seconds_are_those_of_the_best(self):
        self.assertAlmostEqual(worth.seconds_of(self.history([], [1.0, 0.5])), 0.5e-3)

    def test_what_is_saved_is_the_difference_to_the_default_in_all_calls(self):
        self.assertAlmostEqual(worth.saved_by_best(self.history([], [1.0, 0.8]), 5), 1e-3)
        self.assertEqual(worth.saved_by_best(self.history([], [1.0, 1.2]), 5), 0)
        self.assertEqual(worth.saved_by_best(self.history([], []), 5), 0)

    def test_without_time_for_the_last_comparison_nothing_is_decided(self):
        for measured, others, text in (([1.0, 0.8, 2.0], 1, "might be x=1"),
                                       ([1.0], 0, "nothing else was measured"),
                                       ([], 0, "nothing else was measured")):
            found = final.not_raced(self.history([], measured), 60)
            self.assertEqual((found.chosen, found.kind), ({"x": 0}, "undecided"))
            self.assertEqual(len(found.tie_set), 1 + others)
            self.assertIn(text, final.describe(found, {"x": 0}))


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
        return ["--shape", SHAPE, "-v", "fake-tunable", "--timeout", "4", *words]

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

    def test_several_problems_share_their_evaluations(self):
        done = self.tune(*self.fake("--shape", "softmax:rows=4,cols=9", "--strategy", "random",
                                    "--budget", "9", "--no-store", "--json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)["tuned"]
        self.assertEqual([one["shape"] for one in told], [SHAPE, "softmax:rows=4,cols=9"])
        evaluations = [one["evaluations"] for one in told]
        self.assertLessEqual(sum(evaluations), 18)
        self.assertGreaterEqual(min(evaluations), 4)

    def test_nothing_is_measured_when_the_time_is_over(self):
        done = self.tune(*self.fake("--shape", "softmax:rows=4,cols=9", "--max-time", "1e-6",
                                    "--no-store", "--json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told["tuned"], [])
        self.assertEqual(told["unreached"], [SHAPE, "softmax:rows=4,cols=9"])
        self.assertIn("before 2 of 2 problems were begun", done.stderr)

    def test_nothing_else_measured_is_no_victory_of_the_default(self):
        file = self.folder / "tuned.json"
        done = self.tune(*self.fake("--strategy", "default", "--budget", "1", "--export", str(file),
                                    "--json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told, = json.loads(done.stdout)["tuned"]
        self.assertEqual((told["kind"], told["evaluations"]), ("undecided", 1))
        self.assertEqual(json.loads(file.read_text(encoding="utf-8"))["entries"], [])

    def test_resume_reports_what_was_decided_and_searches_the_rest(self):
        words = self.fake("--strategy", "random", "--budget", "6", "--no-store", "--json")
        first, = json.loads(self.tune(*words).stdout)["tuned"]
        done = self.tune(*words, "--shape", "softmax:rows=4,cols=9", "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        again, other = json.loads(done.stdout)["tuned"]
        self.assertEqual({**again, "time": ""}, {**first, "time": ""})
        self.assertEqual((other["run"], other["shape"]), (2, "softmax:rows=4,cols=9"))

    def test_the_model_alone_keeps_the_default(self):
        done = self.tune(*self.fake("--strategy", "default", "--budget", "1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the default", done.stdout)
        for store in (self.folder / "cache" / "rooflane").glob("tuned-*.json"):
            self.assertNotIn("fake", store.read_text(encoding="utf-8"))

    def test_spaces_are_printed_with_predictions(self):
        done = self.tune("--space", "--json", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        space, = json.loads(done.stdout)["spaces"]
        self.assertEqual(space["candidates"][0]["tuning"], space["default"])
        self.assertGreater(space["candidates"][0]["predicted_ns"], 0)
        text = self.tune("--space", "--shape", "gemm:m=8,n=8,k=8", "--threads", "1").stdout
        self.assertIn("ns predicted", text)

    def test_a_model_s_problems_are_those_that_have_tunables(self):
        done = self.tune("--space", "--json", "--model", "block", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([space["shape"].partition(":")[0]
                          for space in json.loads(done.stdout)["spaces"]],
                         ["gemm", "softmax", "layernorm"])

    def test_wrong_arguments_are_refused_with_2_and_impossible_ones_with_3(self):
        for status, reason, words in (
                (2, "--shape, --preset or --model", []),
                (2, "nearest is 'softmax'", ["--shape", "sofmax:rows=1,cols=1"]),
                (2, "no variant 'hwi'", ["--shape", SHAPE, "-v", "hwi"]),
                (2, "--strategy", ["--shape", SHAPE, "--strategy", "tpee"]),
                (2, "--budget", ["--shape", SHAPE, "--budget", "0"]),
                (2, "--threads", ["--shape", SHAPE, "--threads", "none"]),
                (2, "unknown model 'blok'", ["--model", "blok"]),
                (3, "has no tunables", ["--shape", SHAPE, "-v", "scalar"]),
                (3, "logical CPUs", ["--shape", SHAPE, "--threads", "9999"])):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                try:
                    found: object = command.main(words)
                except SystemExit as ended:
                    found = ended.code
            self.assertEqual(found, status, (words, said.getvalue()))
            self.assertIn(reason, said.getvalue())


class Export(unittest.TestCase):
    """The file of tuned schedules."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "tuned.json"
        self.machine = {"key": "a cpu", "cpu": "a", "cores": 2}

    def keep(self, shape: str, chosen: dict[str, int], cache: str = "warm") -> list[dict]:
        space = Space("gemm", "hwy", shape, "fp32", 2, "AVX3", "", (), {"x": 0}, (), None,
                      {"cache": cache, "usual_cache": "cold"})
        export.keep(self.path, self.machine, space, Verdict(chosen, Ratio(0.9, 0.8, 1)), {})
        return json.loads(self.path.read_text(encoding="utf-8"))["entries"]

    def test_a_case_has_one_entry_and_the_default_none(self):
        self.keep("gemm:m=1", {"x": 1})
        self.keep("gemm:m=2", {"x": 2})
        self.assertEqual([entry["tuning"] for entry in self.keep("gemm:m=1", {"x": 3})],
                         ["x=2", "x=3"])
        self.assertEqual([entry["tuning"] for entry in self.keep("gemm:m=2", {"x": 0})], ["x=3"])

    def test_each_state_of_the_caches_has_an_entry_and_one_that_names_none_has_the_usual(self):
        self.keep("gemm:m=1", {"x": 1}, "cold")
        entries = self.keep("gemm:m=1", {"x": 2}, "warm")
        self.assertEqual([(one["tuning"], one["cache"]) for one in entries],
                         [("x=1", "cold"), ("x=2", "warm")])
        self.assertEqual([one["tuning"] for one in self.keep("gemm:m=1", {"x": 0}, "cold")],
                         ["x=2"])
        document = json.loads(self.path.read_text(encoding="utf-8"))
        del document["entries"][0]["cache"]
        self.path.write_text(json.dumps(document), encoding="utf-8")
        self.assertEqual([one["tuning"] for one in self.keep("gemm:m=1", {"x": 3}, "warm")],
                         ["x=2", "x=3"])
        self.assertEqual([one["tuning"] for one in self.keep("gemm:m=1", {"x": 4}, "cold")],
                         ["x=3", "x=4"])

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
