"""The searches: what they propose on made-up spaces, that they find something, and what becomes of
programs that fail."""
from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import skip
import tune_environment

tune_environment.enter()

from rooflane import strategies  # noqa: E402
from rooflane.strategies import proposer, simple  # noqa: E402
from rooflane.strategies.asked import Asked  # noqa: E402
from rooflane.strategies.base import Grid  # noqa: E402
from rooflane.strategies.local import Local  # noqa: E402
from rooflane.tuning import (  # noqa: E402
    Configuration,
    Exhausted,
    History,
    Proposal,
    Strategy,
    text_of,
)

from synthetic_space import SyntheticSpace, refusal  # noqa: E402

SEARCHES = ("default", "all", "random", "local", "cmaes", "proposer")
THOROUGH = tuple(name for name in SEARCHES if name != "default")  # that go on beyond the seeds
ONE = {"path": (1,), "mr": (4,), "nr": (16,), "mc": (48,), "kc": (128,), "pack": (0,)}
FEW = {**ONE, "mr": (2, 4, 8), "kc": (64, 128), "pack": (0, 1)}
HILL_CLIMB = tune_environment.ROOT / "examples/proposer/hill_climb.py"

# What the programs of these tests begin with: `told` is the first line, `asks()` are the others.
# Each leaves its process's number in the file that is its first argument.
PROGRAM = """
import json, os, sys, time
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
sys.stderr = open(os.devnull, "w")
def asks():
    for line in sys.stdin: yield json.loads(line)["ask"]
def say(*configurations, **more):
    print(json.dumps({"configurations": configurations, **more}), flush=True)
"""
READS = PROGRAM + "told = json.loads(sys.stdin.readline())\n"
# Every value of mr and kc, one after the other, the rest at their default, which is left out.
WALK = READS + """
lists = {each["name"]: each["values"] for each in told["space"]["tunables"]}
order = [{"mr": mr, "kc": kc} for mr in lists["mr"] for kc in lists["kc"]]
order = [each for each in order if not each.items() <= told["space"]["default"].items()]
for ask in asks(): say(order.pop(0) if order else {}, note="walk")
"""


def search(strategy: Strategy, made: SyntheticSpace, budget: int, seed: int = 1,
           start: list[Configuration] | None = None) -> History:
    """The seeds and the proposals up to the budget, each evaluated."""
    history, noise = History(made.space, trials_left=budget), random.Random(f"noise {seed}")
    todo = list(strategies.seeds(made.space) if start is None else start)[::-1]
    while history.trials_left:
        try:
            proposal = Proposal(todo.pop()) if todo else strategy.propose(history)
        except Exhausted:
            break
        trial = made.evaluate(proposal.configuration, noise)
        trial.number, trial.source = len(history.trials), proposal.source
        trial.strategy, trial.note = strategy.name, proposal.note
        history.trials.append(trial)
        history.trials_left -= 1
        strategy.observe(trial)
    return history


def make(name: str, made: SyntheticSpace, seed: int = 1) -> Strategy:
    """By name, with the program of examples/."""
    return strategies.make(name, made.space, seed, strategies.Options(
        proposer=f"{sys.executable} {HILL_CLIMB}" if name == "proposer" else ""))


def run(name: str, made: SyntheticSpace, budget: int, seed: int = 1) -> History:
    """A whole search."""
    strategy = make(name, made, seed)
    try:
        return search(strategy, made, budget, seed)
    finally:
        strategy.close()


def texts(history: History) -> list[str]:
    """The configurations of a run, in order."""
    return [text_of(trial.configuration) for trial in history.trials]


def has_ended(process: int) -> bool:
    """Whether soon there is no such process, or one that nobody has waited for. A busy machine
    needs time for that."""
    for _ in range(3000):
        try:
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except OSError:
            return True
        if status.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.02)
    return False


class AllTest(unittest.TestCase):
    """What holds for every search."""

    def check(self, history: History, made: SyntheticSpace) -> None:
        """Legal, complete, in order, never repeated."""
        for trial in history.trials:
            self.assertEqual(list(trial.configuration), list(made.space.default))
            self.assertEqual(refusal(trial.configuration), "")
        self.assertEqual(len(set(texts(history))), len(history.trials))

    def test_every_search_holds_what_is_promised(self) -> None:
        """Proposals are legal, complete and never repeated; a seed decides everything; a space is
        searched to its end, also where everything fails and where a run goes on."""
        one = SyntheticSpace(seed=1, values=ONE)
        for name in SEARCHES:
            with self.subTest(name):
                history = run(name, SyntheticSpace(seed=1), 40)
                self.check(history, SyntheticSpace(seed=1))
                self.assertEqual(len(history.trials), 4 if name == "default" else 40)
                self.assertEqual(texts(run(name, one, 10)), [text_of(one.space.default)])
        for name in THOROUGH:
            with self.subTest(name):
                made = SyntheticSpace(seed=2)
                first, second, other = (texts(run(name, made, 24, seed)) for seed in (5, 5, 6))
                self.assertEqual(first, second)
                self.assertNotEqual(first, other)
                self.assertEqual(first[:4], other[:4])
                for values in (FEW, {**ONE, "kc": (64, 128)}, {**ONE, "path": (0, 1)}):
                    made = SyntheticSpace(seed=3, values=values)
                    history = run(name, made, 100)
                    self.check(history, made)
                    self.assertEqual(len(history.trials), len(made.legal))
                made = SyntheticSpace(seed=4, all_fail=True)
                history = run(name, made, 24)
                self.check(history, made)
                self.assertEqual((len(history.trials), history.best), (24, None))
                made = SyntheticSpace(seed=5, values=FEW)
                earlier = [trial.configuration for trial in run(name, made, 7).trials]
                strategy = make(name, made, seed=2)
                history = search(strategy, made, 100, start=earlier)
                strategy.close()
                self.check(history, made)
                self.assertEqual(len(history.trials), len(made.legal))


class FindingTest(unittest.TestCase):
    """That they are worth their time."""

    def losses(self, name: str) -> list[float]:
        """How far the best is from the optimum, over spaces and seeds; without noise."""
        found = []
        for number in range(6):
            made = SyntheticSpace(seed=10 + number, noise=0)
            least = made.truth(made.optimum)
            found += [made.truth(run(name, made, 40, seed).best.configuration) / least - 1
                      for seed in range(3)]
        return found

    def test_local_and_cmaes_find_at_least_what_random_finds(self) -> None:
        chance = statistics.mean(self.losses("random"))
        for name in ("local", "cmaes"):
            with self.subTest(name):
                self.assertLessEqual(statistics.mean(self.losses(name)), chance)

    def test_the_whole_space_holds_the_optimum(self) -> None:
        made = SyntheticSpace(seed=6, noise=0, values={"path": (1,), "nr": (8, 16)})
        history = run("all", made, 10_000)
        self.assertEqual(len(history.trials), len(made.legal))
        self.assertEqual(history.best.configuration, made.optimum)

    def test_of_a_large_space_all_takes_the_candidates_and_their_neighbours(self) -> None:
        made = SyntheticSpace(seed=7)
        with mock.patch.object(simple, "ENUMERABLE", 10):
            found = texts(run("all", made, 10_000))
        known = {text_of(each.configuration) for each in made.space.candidates}
        self.assertLessEqual(known, set(found))
        self.assertLess(len(found), len(made.legal) / 4)
        grid = Grid(made.space)
        steps = [step for step in grid.neighbours(made.space.default) if not refusal(step)]
        self.assertLessEqual({text_of(step) for step in steps}, set(found))

    def test_local_takes_one_step_from_the_best(self) -> None:
        made = SyntheticSpace(seed=8, noise=0)
        history = search(make("local", made), made, 12, start=[made.space.default])
        for trial in history.trials[1:]:
            best = min((each for each in history.trials[:trial.number] if each.correct),
                       key=lambda each: each.ratio.value).configuration
            changed = sum(trial.configuration[name] != best[name] for name in best)
            self.assertLessEqual(changed, 2)  # a second one where the step had to be corrected
            self.assertEqual(trial.note.count("->"), changed)


class NamesTest(unittest.TestCase):
    def test_seeds_start_with_the_default_and_are_legal_and_distinct(self) -> None:
        made = SyntheticSpace(seed=1)
        for count in (1, 4, 12):
            found = strategies.seeds(made.space, count)
            self.assertEqual(len(found), count)
            self.assertEqual(found[0], made.space.default)
            self.assertTrue(all(each in made.legal for each in found))
            self.assertEqual(len({text_of(each) for each in found}), count)
            self.assertEqual(found, strategies.seeds(SyntheticSpace(seed=1).space, count))
        paths = {each.configuration["path"] for each in made.space.candidates}
        self.assertEqual({each["path"] for each in strategies.seeds(made.space)}, paths)

    def test_seeds_are_as_many_as_there_are(self) -> None:
        for values, count in ((ONE, 1), ({**ONE, "kc": (64, 128)}, 2)):
            self.assertEqual(len(strategies.seeds(SyntheticSpace(seed=1, values=values).space)),
                             count)

    def test_an_unknown_name_is_told_the_nearest(self) -> None:
        for name in strategies.DESCRIPTIONS:
            self.assertEqual(strategies.check_name(name), name)
        for wrong, near in (("Random", "random"), ("cma-es", "cmaes"), ("", "source")):
            with self.assertRaisesRegex(ValueError, f"unknown strategy '{wrong}'; nearest is "
                                                    f"'{near}'; valid: default"):
                strategies.make(wrong, SyntheticSpace(seed=1).space, 1)


class ProposerTest(unittest.TestCase):
    """Programs that behave, and that do not."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.made = SyntheticSpace(seed=1)

    def command(self, source: str) -> str:
        program = self.folder / "program.py"
        program.write_text(source, encoding="utf-8")
        return f"{sys.executable} -I -S {program} {self.folder / 'processes'}"

    def processes(self) -> list[int]:
        """The processes of the programs that were started."""
        return [int(line) for line in (self.folder / "processes").read_text().split()]

    def search(self, command: str, budget: int = 16, timeout: float = 10,
               start: list[Configuration] | None = None
               ) -> tuple[History, proposer.Proposer]:
        """A whole run; nothing that it started is left."""
        asker = proposer.Proposer(self.made.space, command, 1, timeout)
        strategy = Asked("proposer", asker, Local("local", self.made.space, 1))
        try:
            history = search(strategy, self.made, budget, start=start)
        finally:
            strategy.close()
        self.assertEqual(len(history.trials), budget)
        self.assertEqual(len(set(texts(history))), budget)
        if (self.folder / "processes").exists():
            for process in self.processes():
                self.assertTrue(has_ended(process), f"process {process} runs on")
        return history, asker

    def sources(self, history: History) -> list[str]:
        """Who proposed what came after the seeds."""
        return [trial.source for trial in history.trials[4:]]

    def test_a_program_that_behaves_proposes_everything(self) -> None:
        # An unknown tunable beside it is passed over.
        history, strategy = self.search(self.command(WALK.replace(
            "say(order", "say({'nb': 8}, order")))
        self.assertEqual(set(self.sources(history)), {"proposer"})
        self.assertEqual(len(self.processes()), 1)
        self.assertFalse(strategy.failures)
        default = self.made.space.default
        for trial in history.trials[4:]:
            self.assertTrue(trial.note.startswith("walk"))
            if "corrected" not in trial.note:
                self.assertEqual({**default, "mr": 0, "kc": 0},
                                 {**trial.configuration, "mr": 0, "kc": 0})

    def test_it_is_told_the_space_and_what_is_new(self) -> None:
        told = self.folder / "told"
        self.search(self.command(READS + f"""
file = open({str(told)!r}, "w")
print(json.dumps(told), file=file)
for count, ask in enumerate(asks()):
    print(json.dumps(ask), file=file, flush=True)
    say({{"mr": 2, "kc": [64, 128, 256, 512, 1024][count % 5]}}, {{"mr": 8}}, note=None)
"""), budget=8)
        first, *asks = (json.loads(line) for line in told.read_text().splitlines())
        self.assertEqual((first["rooflane_proposer"], first["seed"]), (1, 1))
        self.assertEqual(first["space"]["default"], self.made.space.default)
        self.assertEqual([each["name"] for each in first["space"]["tunables"]],
                         list(self.made.space.default))
        self.assertEqual(len(asks[0]["history"]), 4)
        self.assertEqual(asks[0]["budget"], {"trials_left": 4, "seconds_left": None})
        self.assertEqual(asks[0]["history"][0], {
            "configuration": self.made.space.default, "outcome": "correct", "reason": "",
            "speed_up": asks[0]["history"][0]["speed_up"]})
        self.assertEqual(len(asks[1]["history"]), 2)  # it had answered with two

    def test_programs_that_fail_for_good_leave_the_trials_to_local(self) -> None:
        """Three failures, after which `local` is alone."""
        prints = """
for _ in sys.stdin: os.write(1, {line!r} + b"\\n")
"""
        cases = [(PROGRAM, "^it ended$"), (READS, "^it ended$"),
                 ("/no/such/program", "^it cannot be started: .*such file"),
                 ("'", "^it cannot be started: No closing quotation")]
        for line in ("hello", "[[[" * 100_000, "[]", '{"configurations": 3}',
                     '{"configurations": [3]}', '{"configurations": []}',
                     *(f'{{"configurations": [{{"mr": {value}}}]}}' for value in
                       ('"many"', "1e999", "[8]")), "\xff\xfe"):
            cases.append((PROGRAM + prints.format(line=line.encode("latin-1")),
                          "^no JSON: |^no configurations|^mr: .* is not a number$"))
        cases += [(PROGRAM + """
while True: sys.stdout.write("x" * 65536)
""", "^its answer has no end$"), (READS + """
for ask in asks(): say({"nb": 8}, {"mr": 8, "unroll": 2})
""", '^unknown tunable "nb"$'),
                  (READS + "for ask in asks(): pass", "^it said nothing for 0.5 s$")]
        for source, reason in cases:
            with self.subTest(source[-60:]):
                command = self.command(source) if source.startswith("\n") else source
                silent = "said nothing" in reason
                history, strategy = self.search(command, timeout=0.5 if silent else 10)
                self.assertEqual(set(self.sources(history)), {"local"})
                self.assertEqual(sum(strategy.failures.values()), 3)
                for failure in strategy.failures:
                    self.assertRegex(failure, reason)

    def test_a_program_that_does_not_end_is_killed_with_what_it_started(self) -> None:
        child = ("import os, subprocess, sys\n"
                 "child = subprocess.Popen(['sleep', '600'])\n"
                 "with open(sys.argv[1], 'a') as file:\n"
                 "    print(os.getpid(), file=file)\n"
                 "    print(child.pid, file=file)\n"
                 "child.wait()\n")
        with mock.patch.object(proposer, "PATIENCE", 0.1):
            self.search(self.command(child), budget=6, timeout=0.3)

    def test_a_program_that_reads_nothing_does_not_block_the_run(self) -> None:
        """More than a pipe holds."""
        long = [{**each, "mc": each["mc"]} for each in self.made.legal[:400]]
        with mock.patch.object(proposer, "PATIENCE", 0.1):
            _, strategy = self.search(self.command(PROGRAM + "time.sleep(600)"), budget=404,
                                      timeout=0.2, start=long)
        self.assertEqual(sum(strategy.failures.values()), 3)

    def test_illegal_values_are_corrected_and_noted(self) -> None:
        history, _ = self.search(self.command(READS + """
order = [{"mr": 16, "nr": 64}, {"mr": 1 << 70}, {"kc": -5}, {"kc": "512"}, {"kc": 256.0}]
for ask in asks(): say(order.pop(0), note="as it is")
"""), budget=9)
        trials = history.trials[4:]
        self.assertTrue(all(refusal(trial.configuration) == "" for trial in trials))
        self.assertRegex(trials[0].note,
                         r"^as it is; corrected \(mr\*nr=1024: .*\): (mr|nr)=\d+$")
        self.assertIn(f"; mr: {1 << 70} clamped to 16", trials[1].note)
        self.assertEqual([trial.note for trial in trials[2:]], [
            "as it is; kc: -5 clamped to 64", 'as it is; kc: "512" read as 512', "as it is"])
        self.assertEqual([trial.configuration["kc"] for trial in trials[3:]], [512, 256])

    def test_repeats_are_passed_over(self) -> None:
        history, strategy = self.search(self.command(READS + """
for ask in asks(): say(told["space"]["default"], {"mr": 8}, {"mr": 8})
"""))
        self.assertEqual(self.sources(history).count("proposer"), 1)
        self.assertEqual((len(self.processes()), len(strategy.failures)), (1, 0))

    def test_a_program_that_fails_now_and_then_is_started_again(self) -> None:
        history, strategy = self.search(self.command(WALK.replace(
            "for ask in asks():", "order = order[len(open(sys.argv[1]).read().split()) * 3:]\n"
            "for ask, _ in zip(asks(), range(3)):")))
        self.assertEqual(strategy.failures["it ended"], self.sources(history).count("local"))
        self.assertGreaterEqual(strategy.failures["it ended"], 2)
        self.assertGreaterEqual(self.sources(history).count("proposer"), 8)

    def test_the_example_finds_more_than_the_default(self) -> None:
        self.assertLessEqual(len(HILL_CLIMB.read_text(encoding="utf-8").splitlines()), 30)
        history, strategy = self.search(f"{sys.executable} {HILL_CLIMB}", budget=60)
        self.assertFalse(strategy.failures)
        self.assertGreaterEqual(self.sources(history).count("proposer"), 50)
        self.assertGreater(history.best.speed_up, 1.02)


if __name__ == "__main__":
    skip.main(sys.argv)
