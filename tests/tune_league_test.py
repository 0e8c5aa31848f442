"""The league of searches: recorded spaces, replay, the score against cases calculated by hand and
by brute force, standings, and its command line."""
from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import skip
import tune_environment

tune_environment.enter()

import numpy as np  # noqa: E402
from rooflane.league import command, contest, replay, score, spaces, standings  # noqa: E402
from rooflane.tuning import (  # noqa: E402
    Candidate,
    Configuration,
    Cost,
    Exhausted,
    History,
    Outcome,
    Proposal,
    Ratio,
    Space,
    Trial,
    Tunable,
    text_of,
)

SEED = 3
DEFAULT = {"path": 0, "mr": 4, "kc": 64}


def truth_of(configuration: Configuration) -> float:
    """A bowl with its best at path 1, mr 8, kc 128; the default is worth 1."""
    def height(one: Configuration) -> float:
        return (math.log2(one["mr"] / 8) ** 2 + 0.5 * math.log2(one["kc"] / 128) ** 2
                + (0 if one["path"] else 0.7))
    return (2 + height(configuration)) / (2 + height(DEFAULT))


def trials_of(noise: float, rounds: int = 9) -> list[Trial]:
    """All of a made-up space: mr=16 with path=0 is refused, mr=2 with path=1 is wrong."""
    chance = random.Random(SEED)
    values = itertools.product((0, 1), (2, 4, 8, 16), (32, 64, 128, 256, 512, 1024))
    trials = []
    for number, row in enumerate([tuple(DEFAULT.values()), *values]):
        configuration = dict(zip(DEFAULT, row))
        trial = Trial(number, configuration, Outcome.CORRECT, "all",
                      cost=Cost(build=0.2, verify=0.1 + 0.01 * number, time=0.5))
        if configuration["path"] == 0 and configuration["mr"] == 16:
            trial.outcome, trial.reason, trial.cost = Outcome.REFUSED, "mr=16: path 0", Cost()
        elif configuration["path"] == 1 and configuration["mr"] == 2:
            trial.outcome, trial.reason = Outcome.INCORRECT, "error 3 at [0, 1]"
        else:
            for _ in range(rounds):
                drift = 1e5 * (1 + 0.1 * number / 48)  # of the machine: no ratio has it
                trial.default_ns.append(drift * math.exp(chance.gauss(0, noise)))
                trial.ns.append(drift * truth_of(configuration) * math.exp(chance.gauss(0, noise)))
            trial.ratio = Ratio(1, 1, 1)
        trials.append(trial)
    return trials


def made_space(noise: float = 0.02, shape: str = "gemm:m=64,n=64,k=64") -> spaces.Record:
    """The record of it."""
    tunables = (Tunable("path", "0 or 1", 0, 1, (0, 1), True),
                Tunable("mr", "rows", 1, 16, (2, 4, 8, 16)),
                Tunable("kc", "depth", 16, 4096, (32, 64, 128, 256, 512, 1024)))
    space = Space("gemm", "hwy", shape, "fp32", 1, "AVX3", "", tunables, DEFAULT,
                  (Candidate(DEFAULT, 1e5), Candidate({"path": 1, "mr": 8, "kc": 256})),
                  constraints=None, problem={"m": 64}, roof_ns=2e4)
    return spaces.record(space, {"key": "made up"}, trials_of(noise))


class Scripted:
    """A strategy that proposes a list."""

    def __init__(self, name: str, order: list[Configuration]) -> None:
        self.name, self.order, self.observed, self.closed = name, list(order), [], False

    def propose(self, history: History) -> Proposal:
        if not self.order:
            raise Exhausted("the end of the list")
        return Proposal(self.order.pop(0), source="list")

    def observe(self, trial: Trial) -> None:
        self.observed.append(trial)

    def close(self) -> None:
        self.closed = True


class Entrants:
    """random, oracle, and one that raises, in the place of rooflane.strategies."""

    def __enter__(self) -> None:
        self._patches = [mock.patch("rooflane.strategies.make", self.make),
                         mock.patch("rooflane.strategies.seeds", lambda space, count: [])]
        for patch in self._patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    @staticmethod
    def make(name: str, space: Space, seed: int) -> Scripted:
        order = [dict(zip(space.constraints.names, key)) for key in space.constraints.legal]
        if name == "broken":
            raise RuntimeError("no such model")
        random.Random(seed).shuffle(order)
        if name == "oracle":
            order = sorted(order, key=truth_of)
        return Scripted(name, order)


class SpacesTest(unittest.TestCase):
    def test_adding_takes_the_place_of_the_same_space_only(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "a.json.xz"
            spaces.add(path, [made_space()])
            spaces.add(path, [made_space(0.1), made_space(shape="gemm:m=1,n=2,k=3")])
            found = spaces.read(path)
            self.assertEqual([one["shape"] for one in found],
                             ["gemm:m=1,n=2,k=3", "gemm:m=64,n=64,k=64"])
            samples = found[1]["configurations"][0]["ns"]
            self.assertGreater(np.std(samples), 0.03 * np.mean(samples))
            with self.assertRaisesRegex(spaces.SpaceError, "twice"):
                spaces.write(path, [made_space(), made_space()])

    def test_a_record_has_five_digits_and_all_samples_of_what_never_failed(self) -> None:
        made = made_space()
        trials = trials_of(0.02)
        self.assertEqual(len(made["configurations"]), 48)
        entry = made["configurations"][0]
        self.assertEqual(len(entry["ns"]), 18)  # a seed and one of all
        np.testing.assert_allclose(entry["ns"][:9], trials[0].ns, rtol=5e-5)
        self.assertEqual(entry["cost"], {"build": 0.2, "verify": 0.1, "time": 0.5})
        trials.append(Trial(99, trials[0].configuration, Outcome.CRASH, "all", reason="signal 11"))
        with self.assertRaisesRegex(spaces.SpaceError, "default is not among the correct"):
            spaces.record(spaces.space_of(made, None), {}, trials)

    def test_damaged_files_are_told_of(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "a.json.xz"
            path.write_bytes(b"no xz")
            with self.assertRaisesRegex(spaces.SpaceError, "a.json.xz: not a file of spaces"):
                spaces.read(path)
            spaces.write(path, [made_space()])
            path.write_bytes(path.read_bytes()[:-40])
            with self.assertRaises(spaces.SpaceError):
                spaces.read(path)
        made = made_space()
        made["configurations"][3]["ns"][0] = 0
        with self.assertRaisesRegex(spaces.SpaceError, "path=0,mr=2,kc=128: a sample is not"):
            spaces.check(made)


class TableTest(unittest.TestCase):
    def setUp(self) -> None:
        self.table = replay.Table(made_space())

    def test_what_was_recorded_is_legal_and_what_is_missing_the_defaults_or_nearest(self) -> None:
        legal = self.table.check([{"path": 1, "mr": 8, "kc": 32}, {"mr": 8}, {}, {"mr": 16}])
        self.assertEqual([text_of(one.configuration) for one in legal],
                         ["path=1,mr=8,kc=32", "path=0,mr=8,kc=64", "path=0,mr=4,kc=64",
                          "path=1,mr=16,kc=64"])

    def test_refusals_have_the_recorded_reason_or_say_what_is_known(self) -> None:
        refused, strange, unknown = self.table.check(
            [{"path": 0, "mr": 16, "kc": 64}, {"path": 0, "mr": 5, "kc": 64}, {"nr": 3}])
        self.assertEqual(refused.reason, "mr=16: path 0")
        self.assertEqual(strange.reason, "not among the recorded configurations")
        self.assertEqual(unknown.reason, "no tunable nr; valid: path, mr, kc")
        self.assertEqual([one.configuration for one in (refused, strange, unknown)], [None] * 3)

    def test_nearest_is_the_same_as_looking_at_all(self) -> None:
        chance = random.Random(SEED)
        places = {"path": [0, 1], "mr": [2, 4, 8, 16], "kc": [32, 64, 128, 256, 512, 1024]}

        def distance(other: Configuration, wanted: Configuration) -> tuple[int, int]:
            differing = [name for name in wanted if other[name] != wanted[name]]
            return len(differing), sum(abs(places[name].index(other[name])
                                           - places[name].index(wanted[name]))
                                       for name in differing)

        # Few are left, so that the nearest one often differs in several values.
        made = made_space()
        made["configurations"] = [made["configurations"][0],
                                  *chance.sample(made["configurations"][1:], 9)]
        self.table = replay.Table(made)
        legal = [dict(zip(self.table.names, key)) for key in self.table.legal]
        for _ in range(100):
            wanted = {name: chance.choice(values) for name, values in places.items()
                      if chance.random() < 0.8}
            found = self.table.nearest([wanted])[0].configuration
            self.assertEqual(distance(found, wanted),
                             min(distance(other, wanted) for other in legal), wanted)


class ReplayTest(unittest.TestCase):
    def test_an_evaluation_draws_pairs_of_one_round(self) -> None:
        made = made_space()
        replayed = replay.ReplayedSpace(made, rounds=5)
        entry = made["configurations"][7]
        pairs = set(zip(entry["ns"], entry["default_ns"]))
        generator = np.random.default_rng(SEED)
        seen = set()
        for _ in range(40):
            trial = replayed.evaluate(0, entry["configuration"], "x", generator)
            self.assertEqual(len(trial.ns), 5)
            seen |= set(zip(trial.ns, trial.default_ns))
            self.assertAlmostEqual(trial.ratio.value,
                                   np.median([a / b for a, b in zip(trial.ns, trial.default_ns)]))
            self.assertLessEqual(trial.ratio.low, trial.ratio.value)
        self.assertEqual(seen, pairs)

    def test_the_interval_of_a_median_holds_it_in_at_least_95_per_cent(self) -> None:
        for count, ranks in ((1, (0, 0)), (7, (0, 6)), (9, (1, 7)), (20, (5, 14))):
            self.assertEqual(replay._interval_ranks(count), ranks, count)

    def test_costs_are_the_recorded_ones_and_timing_in_proportion_to_rounds(self) -> None:
        replayed = replay.ReplayedSpace(made_space(), rounds=3)
        self.assertAlmostEqual(replayed.cost("path=0,mr=2,kc=32").time, 0.5 / 3)
        self.assertAlmostEqual(replayed.cost(text_of(DEFAULT)).time, 0.5 / 6)
        failed = replayed.cost("path=1,mr=2,kc=32")
        self.assertAlmostEqual(failed.total, 0.2 + 0.1 + 0.25 + 0.5)

    def run_scripted(self, order: list[Configuration], rules: replay.Rules,
                     seeds: tuple[Configuration, ...] = ()) -> tuple[Scripted, replay.Run]:
        made: list[Scripted] = []

        def make(space: Space, seed: int) -> Scripted:
            made.append(Scripted("list", order))
            return made[0]

        return made, replay.replay(replay.ReplayedSpace(made_space(0)), make, seeds, 1, rules)

    def test_the_best_so_far_is_judged_by_the_truth_and_failures_cost_time(self) -> None:
        order = [{"path": 1, "mr": 2, "kc": 32}, {"path": 1, "mr": 8, "kc": 128},
                 {"path": 0, "mr": 16, "kc": 64}, {"path": 1, "mr": 16, "kc": 64}]
        made, run = self.run_scripted(order, replay.Rules(100, 2.0), (DEFAULT,))
        best = truth_of(order[1])
        np.testing.assert_allclose(run.named, [1, 1, best, best, best], rtol=1e-4)
        trials = made[0].observed
        self.assertEqual([trial.outcome.value for trial in trials],
                         ["correct", "incorrect", "correct", "refused", "correct"])
        self.assertEqual([trial.strategy for trial in trials], ["seed"] + ["list"] * 4)
        self.assertEqual([trial.number for trial in trials], [0, 1, 2, 3, 4])
        self.assertEqual([trial.cost.propose for trial in trials], [0, 2, 2, 2, 2])
        np.testing.assert_allclose(np.diff(run.times, prepend=0),
                                   [trial.cost.total for trial in trials])
        self.assertEqual(trials[3].cost.total, 2)  # refused: the thinking alone
        self.assertTrue(made[0].closed)

    def test_thinking_is_measured_where_it_is_not_given(self) -> None:
        seconds = itertools.count()  # each look at the clock is a second later
        made, run = self.run_scripted([{"path": 1, "mr": 8, "kc": 128}],
                                      replay.Rules(100, None, lambda: float(next(seconds))))
        self.assertEqual(made[0].observed[0].cost.propose, 2)  # proposing and observing
        self.assertAlmostEqual(run.times[0], 1 + made[0].observed[0].cost.total)  # and making it

    def test_the_budget_ends_a_search_after_the_evaluation_that_exceeds_it(self) -> None:
        order = [{"path": 1, "mr": 8, "kc": 128}] * 50
        cost = replay.ReplayedSpace(made_space(0)).cost("path=1,mr=8,kc=128").total
        made, run = self.run_scripted(order, replay.Rules(2.5 * cost, 0.0))
        self.assertEqual(run.evaluations, 3)


class ScoreTest(unittest.TestCase):
    def test_the_expected_best_of_draws_is_that_of_all_subsets(self) -> None:
        ranked = np.array([1.0, 1.5, 1.4, 3.0, 7.0, 7.0, 9.0])  # preferred by noise: not sorted
        expected = score.expected_best(ranked)
        for draws in range(1, 8):
            subsets = list(itertools.combinations(range(7), draws))
            by_force = np.mean([ranked[min(subset)] for subset in subsets])
            self.assertAlmostEqual(expected[draws - 1], by_force, msg=str(draws))
            formula = sum(ranked[i - 1] * math.comb(7 - i, draws - 1) for i in range(1, 8))
            self.assertAlmostEqual(expected[draws - 1], formula / math.comb(7, draws))

    def test_draws_that_fit_into_a_time_are_those_of_all_orders(self) -> None:
        costs = np.array([1, 2, 2, 3, 1, 1.5, 2, 1.0])
        times = np.array([2.0, 4, 6, 8, 12])
        generator = np.random.default_rng(SEED)
        sums = np.array([np.cumsum(generator.permutation(costs)) for _ in range(4000)])
        by_force = np.array([(sums <= time).mean(0) for time in times])
        self.assertLess(np.abs(score.draws_within(times, costs) - by_force).mean(), 0.03)

    def test_a_space_by_hand(self) -> None:
        """Four configurations of equal cost 1 without noise, worth 1, 2, 3 and 6; one more fails.
        Blind: 3. Draws of five, the failing one preferred last and worth blind: expected 3, then
        (4·1 + 3·2 + 2·3 + 6) / 10 = 2.2, (6·1 + 3·2 + 3) / 10 = 1.5, (4·1 + 2) / 5 = 1.2, 1.
        Cut: 1 + 0.05 · 1.5 = 1.075: the fifth draw, at 5."""
        worths = {1: 1, 2: 2, 4: 3, 8: 6, 16: None}
        trials = [Trial(at, {"a": a}, Outcome.CORRECT if worth else Outcome.CRASH, "all",
                        ns=[2.0 * worth] * 7 if worth else [], default_ns=[2.0] * 7 if worth
                        else [], cost=Cost(build=0.5, time=0.5))
                  for at, (a, worth) in enumerate(worths.items())]
        space = Space("gemm", "hwy", "s", "fp32", 1, "", "",
                      (Tunable("a", "", 1, 16, tuple(worths)),), {"a": 1}, (), None)
        made = spaces.record(space, {"key": ""}, trials)
        judge = score.Judge(replay.ReplayedSpace(made), points=10)
        self.assertEqual((judge.blind, judge.optimum), (3, 1))
        self.assertAlmostEqual(judge.cut, 1.075)
        self.assertAlmostEqual(judge.budget_s, 5)
        np.testing.assert_allclose(judge.baseline, [3, 3, 3, 2.2, 2.2, 1.5, 1.5, 1.2, 1.2, 1],
                                   atol=1e-9)
        np.testing.assert_allclose(judge.within, [0, .2, .2, .4, .4, .6, .6, .8, .8, 1],
                                   atol=1e-9)

    def test_random_search_scores_0_and_the_oracle_1_once_it_named_something(self) -> None:
        made = made_space()
        replayed = replay.ReplayedSpace(made)
        judge = score.Judge(replayed, SEED)
        results = {}
        settings = contest.Settings(repeats=300, seed=SEED,
                                    latency_s={"random": 0.0, "oracle": 0.0})
        for name in ("random", "oracle"):
            with Entrants():
                results[name] = contest.play(made, name, settings, judge)
            self.assertEqual(results[name].failure, "")
        scores = np.array(results["random"].scores)
        self.assertLess(abs(scores.mean()), 2.5 * scores.std() / math.sqrt(300), f"seed {SEED}")
        within = np.mean(results["random"].within["1"])
        self.assertAlmostEqual(within, results["random"].baseline_within["1"], delta=0.08)
        # Before its first evaluation has ended the oracle is as blind as the baseline.
        perfect = Entrants.make("oracle", replayed.space, 0)
        best = perfect.order[0]
        run = replay.Run([replayed.cost(text_of(best)).total], [judge.optimum])
        curve = judge.judge(run).curve
        self.assertEqual(set(np.round(curve[judge.times >= run.times[0]], 9)), {1.0})
        np.testing.assert_allclose(curve[judge.times < run.times[0]] <= 0, True)
        self.assertGreater(np.mean(results["oracle"].scores), 0.7)

    def test_a_space_in_which_all_are_equal_has_nothing_to_search_for(self) -> None:
        made = made_space(0.0)
        for entry in made["configurations"]:
            entry["ns"] = list(entry["default_ns"])
        with self.assertRaisesRegex(spaces.SpaceError, "nothing to search for"):
            score.Judge(replay.ReplayedSpace(made))

    def test_the_bootstrap_holds_the_mean_and_grows_with_the_spread_between_spaces(self) -> None:
        generator = np.random.default_rng(SEED)

        def width(centres: list[float]) -> float:
            rows = [centre + generator.normal(0, 0.1, 50) for centre in centres]
            resamples = score.resampled(rows, score.picks(len(rows), SEED), SEED)
            found = score.estimate(score.mean_of(rows), resamples)
            self.assertLess(found.low, found.value)
            self.assertGreater(found.high, found.value)
            return found.high - found.low

        alike, apart = width([0.5] * 8), width([0.1, 0.9] * 4)
        self.assertAlmostEqual(alike, 2 * 1.96 * 0.1 * math.sqrt(2) / math.sqrt(400), delta=0.01)
        self.assertAlmostEqual(apart, 2 * 1.96 * 0.4 / math.sqrt(8), delta=0.06)


class StandingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        settings = contest.Settings(repeats=12, seed=SEED,
                                    latency_s=dict.fromkeys(("random", "oracle"), 0.01))
        with Entrants():
            cls.results = [contest.play(made_space(0.02, shape), name, settings)
                           for shape in ("gemm:m=1,n=2,k=3", "gemm:m=4,n=5,k=6")
                           for name in ("random", "broken", "oracle")]

    def test_the_oracle_is_first_and_random_behind_by_a_paired_interval(self) -> None:
        league = standings.league_of(self.results)
        self.assertEqual([one.strategy for one in league.standings], ["oracle", "random"])
        self.assertEqual(len(league.spaces), 2)
        first, second = league.standings
        self.assertIsNone(first.behind)
        self.assertGreater(second.behind.low, 0)
        self.assertFalse(second.tied)
        self.assertAlmostEqual(second.behind.value, first.score.value - second.score.value)
        self.assertEqual(list(first.groups), ["gemm hwy"])

    def test_whoever_fails_is_named_and_takes_no_space_from_the_others(self) -> None:
        league = standings.league_of(self.results)
        self.assertEqual(league.left_out, [
            f"broken: gemm:m={m},n={n},k={k} hwy fp32 threads=1 AVX3 on made up: RuntimeError: "
            "no such model" for m, n, k in ((1, 2, 3), (4, 5, 6))])
        text = standings.markdown(league, [["a|b", "1", "2", "3", "4", "5"]])
        self.assertIn("- broken: gemm:m=1", text)
        self.assertIn("| a\\|b |", text)
        self.assertRegex(text, r"\| random \| −?0\.\d\d \[")
        json.dumps(standings.as_json(league, {}), allow_nan=False)
        none = standings.league_of([one for one in self.results if one.failure])
        self.assertIn("No figures.", standings.markdown(none, []))


class CommandTest(unittest.TestCase):
    def call(self, *words: object) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), Entrants():
            status = command.main([str(word) for word in words])
        return status, out.getvalue(), err.getvalue()

    def test_files_are_added_and_listed(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder, packed = Path(name), Path(name) / "s.json.xz"
            (folder / "one.json").write_text(json.dumps(made_space()))
            status, out, _ = self.call("add", folder / "one.json", "--spaces", packed)
            self.assertEqual(status, 0)
            self.assertRegex(out, r"s\.json\.xz: 1 spaces, \d+ bytes")
            status, out, _ = self.call("list", "--spaces", packed)
            self.assertRegex(out, "^gemm:m=64,n=64,k=64 hwy fp32 threads=1 AVX3 on made up: "
                             r"configurations 42, failing 14 %, default over optimum \d\.\d+, "
                             r"budget \(s\) [\d.]+, random draws in it \d+\n$")

    def test_a_run_writes_everything_and_goes_on_from_its_results(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            spaces.write(folder / "s.json.xz", [made_space()])
            words = ["run", "--spaces", folder / "s.json.xz", "--repeats", 4, "--latency",
                     "random=0", "--latency", "oracle=0", "--results", folder / "r.jsonl"]
            status, out, err = self.call(*words, "--strategies", "random")
            self.assertEqual(status, 0)
            self.assertIn("| random |", out)
            self.assertIn("1/1 random: gemm:m=64", err)
            with open(folder / "r.jsonl", "a") as file:
                file.write('\n{"strategy": "cut of')
            status, _, err = self.call(*words, "--strategies", "random,oracle", "--markdown",
                                       folder / "m.md", "--json", folder / "j.json")
            self.assertEqual(status, 0)
            self.assertIn("1 of 2 are in", err)
            self.assertNotIn("random: gemm", err)
            self.assertEqual(len(contest.kept(folder / "r.jsonl")), 2)
            told = json.loads((folder / "j.json").read_text())
            self.assertEqual([one["strategy"] for one in told["standings"]], ["oracle", "random"])
            self.assertIn("| oracle |", (folder / "m.md").read_text())
            # Another number of rounds makes other figures.
            _, _, err = self.call(*words, "--strategies", "random", "--rounds", 3)
            self.assertIn("1/1 random", err)

    def test_a_strategy_that_fails_and_wrong_input_have_their_exit_status(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "s.json.xz"
            spaces.write(path, [made_space()])
            status, out, _ = self.call("run", "--spaces", path, "--strategies", "broken",
                                       "--repeats", 2)
            self.assertEqual(status, 1)
            self.assertIn("RuntimeError: no such model", out)
            status, _, err = self.call("run", "--spaces", path, "--only", "softmax")
            self.assertEqual((status, "no space holds softmax" in err), (2, True))
            status, _, err = self.call("list", "--spaces", Path(name) / "none.json.xz")
            self.assertEqual(status, 2)
            self.assertIn("none.json.xz", err)
            status, _, err = self.call("run", "--spaces", path, "--latency", "llm")
            self.assertEqual(status, 2)


if __name__ == "__main__":
    skip.main(sys.argv)
