#!/usr/bin/env python3
"""The tuner's archive, on SQLite and on PostgreSQL: tune_archive_test.py [CLASS...].

PostgreSQL is Debian's, started by this program in a temporary folder; the tests on it are skipped
where it is not installed. What others read of ours is read by Kernel Tuner itself.
"""
from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta
from pathlib import Path
from unittest import mock

import postgresql
import skip
import tune_environment

ROOT = tune_environment.ROOT
KEY = "sk-proj-0123456789abcdefABCDEF"
MACHINE = {"key": "amd-epyc", "cpu": "AMD EPYC", "cores": 2, "isa": "AVX3",
           "caches": [32768, 1048576], "traits": {"fma_flops_s": 1.5e11}}
BUILD = {"commit": "abc123", "dirty": True, "compiler": "GCC 12"}
VALUES = {"mc": (48, 96, 192), "kc": (64, 128, 256), "order": (0, 1)}
DEFAULT = {"mc": 96, "kc": 128, "order": 0}
SETTINGS = {"seed": 7, "budget": 30, "patience": None}
KERNEL_TUNER = ["kernel-tuner==1.5.0"]

# A process that writes PER trials of RUN and says each number when it is committed.
WRITER = """
import sys
from rooflane.archive.store import Archive
from rooflane.tuning import Cost, Outcome, Ratio, Trial
url, run, begin, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
archive = Archive(url)
for number in range(begin, begin + count):
    configuration = {"mc": 48 + number % 5, "kc": 128, "order": 0}
    archive.record(run, Trial(number, configuration, Outcome.CORRECT, "random", note=sys.argv[3],
                              ratio=Ratio(1, 1, 1), ns=[float(number)] * 30))
    print(number, flush=True)
"""
# One that makes an archive where there is none, at the same time as others.
OPENER = "import sys; from rooflane.archive.store import Archive; Archive(sys.argv[1]).stored({})"


def space_of(shape: str = "gemm:m=64,n=64,k=64", default: dict[str, int] | None = None, **more):
    tunables = tuple(Tunable(name, f"what {name} means", 1, 4096, values, name == "order")
                     for name, values in VALUES.items())
    default = default or DEFAULT
    return Space(**{"kernel": shape.split(":")[0], "variant": "hwy", "math": "fp32", "threads": 1,
                    "isa": "AVX3", "device": "", "problem": {"m": 64}, **more}, shape=shape,
                 tunables=tunables,
                 default=default, candidates=(Candidate(default, 1234.5),),
                 constraints=None, roof_ns=900.25)


def correct(number: int, ratio: float, samples: int = 4, strategy: str = "random", **tunables):
    """A correct trial; what is not told of its configuration is the default's."""
    default_ns = [1000.0 + slot for slot in range(samples)]
    return Trial(number, {**DEFAULT, **tunables}, Outcome.CORRECT, strategy,
                 ratio=Ratio(ratio, ratio * 0.99, ratio * 1.01),
                 ns=[round(ratio * ns, 3) for ns in default_ns], default_ns=default_ns, error=1e-7,
                 threshold=1e-5, cost=Cost(0.25, 0.5, 0.125, 1.0))


def failed(number: int, outcome, reason: str = "because", **tunables):
    return Trial(number, {**DEFAULT, **tunables}, outcome, "random", source="model",
                 note="corrected", reason=reason, cost=Cost(0.25, 0.5, 0, 0))


def some_trials() -> list:
    """One of each outcome, the default first."""
    outcomes = [outcome for outcome in Outcome if outcome is not Outcome.CORRECT]
    return [correct(0, 1, strategy="seed"), correct(1, 0.8, mc=192), correct(2, 1.25, kc=64),
            *(failed(number, outcome, mc=48, kc=64 * (number % 3 + 1), order=number % 2)
              for number, outcome in enumerate(outcomes, 3))]


def in_package(*words: str) -> subprocess.Popen:
    """A Python process that has the package."""
    return subprocess.Popen([sys.executable, *words], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


def command(*words: str) -> tuple[int, str, str]:
    """`rooflane archive WORDS`: exit status, output, errors."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(list(words))
    return status, output.getvalue(), errors.getvalue()


class OnBoth:
    """What holds on either database; a fresh archive for each test."""
    url: str

    def filled(self, trials: list | None = None, space=None, machine=None, settings=None,
               **more) -> tuple:
        """An archive with a run."""
        archive = Archive(self.url)
        run = archive.begin_run(space or space_of(), machine or MACHINE, BUILD,
                                more.get("strategy", "random"), settings or SETTINGS)
        for trial in some_trials() if trials is None else trials:
            archive.record(run, trial, more.get("at"))
        return archive, run

    def test_trials_come_back_as_they_were_but_for_what_databases_cannot_hold(self):
        trials = some_trials()
        archive, run = self.filled(trials)
        self.assertEqual(Archive(self.url).record_of(run).trials, trials)
        nasty = failed(0, Outcome.INCORRECT, "nul \0, half a pair \ud800, two\nlines, é, '; --")
        nasty.error, nasty.threshold = float("nan"), 1e-5
        archive, run = self.filled([nasty], machine={**MACHINE, "traits": {"x": float("inf")}})
        trial, = archive.record_of(run).trials
        self.assertEqual(trial.reason, "nul \N{REPLACEMENT CHARACTER}, half a pair ?, two\nlines, "
                                       "é, '; --")
        self.assertGreater(trial.error, 1e308)
        self.assertIsNone(archive.record_of(run).machine["traits"]["x"])

    def test_a_number_is_counted_once_and_its_first_trial_stays(self):
        archive, run = self.filled([])
        self.assertTrue(archive.record(run, correct(0, 0.5)))
        self.assertFalse(archive.record(run, correct(0, 0.7, mc=48)))
        self.assertEqual(archive.record_of(run).trials, [correct(0, 0.5)])
        exchange = Exchange(0, "m", "q", "a")
        self.assertTrue(archive.record_exchange(run, exchange))
        # An exchange is completed once its trials are known.
        later = Exchange(0, "m", "q", "a", trials=[3])
        self.assertFalse(archive.record_exchange(run, later))
        self.assertEqual(archive.record_of(run).exchanges, [later])

    def test_a_run_that_is_not_there_is_refused(self):
        archive, run = self.filled([])
        for work in (lambda: archive.record(run + 1, correct(0, 1)),
                     lambda: archive.record_of(run + 1)):
            with self.assertRaisesRegex(ArchiveError, f"no run {run + 1}"):
                work()
        with self.assertRaisesRegex(ValueError, "'ended'; valid: running, finished"):
            archive.finish_run(run, None, "ended")
        with self.assertRaisesRegex(ValueError, "machine: unknown 'host'"):
            self.filled([], machine={"host": "me"})

    def test_runs_come_back_whole(self):
        archive, run = self.filled()
        verdict = Verdict({**DEFAULT, "mc": 192}, Ratio(0.8, 0.79, 0.81),
                          [Finalist(DEFAULT, Ratio(1, 1, 1), 4096)],
                          [Neighbour("gemm:m=65,n=65,k=65", Outcome.CRASH, "signal 11")], True)
        exchange = Exchange(0, "smol", '[{"role": "user"}]', "mc=48", "http 429", 1.5, 100, 7, [1])
        archive.record_exchange(run, exchange)
        archive.finish_run(run, verdict)
        found = archive.record_of(run)
        self.assertEqual((found.verdict, found.exchanges), (verdict, [exchange]))
        self.assertEqual((found.machine["caches"], found.machine["driver"], found.build),
                         (MACHINE["caches"], "", BUILD))
        self.assertEqual((found.state, found.strategy, found.settings, found.space),
                         ("finished", "random", SETTINGS, space_of()))
        self.assertEqual(list(found.space.default), list(DEFAULT))  # the order too

    def test_no_key_is_stored(self):
        with mock.patch.dict(os.environ, {"OPENAI_API_KEY": 'my "own" key', "X_API_KEY": "none"}):
            archive, run = self.filled(
                [failed(0, Outcome.CRASH, f'my "own" key and {KEY}')],
                settings={"headers": {"auth": f"Bearer {KEY}"}, 'my "own" key': 1})
            archive.record_exchange(run, Exchange(
                0, "m", json.dumps([{"content": 'say my "own" key'}]), "a key none, nonesuch",
                'http 401: my "own" key'))
        exchange, = archive.record_of(run).exchanges
        self.assertEqual(exchange.answer, "a key [redacted], nonesuch")
        self.assertEqual(json.loads(exchange.request), [{"content": "say [redacted]"}])
        self.assertEqual(archive.record_of(run).trials[0].reason, "[redacted] and [redacted]")
        with sqlalchemy.create_engine(database.address_of(self.url)).connect() as connection:
            rows = [repr(row) for table in database.TABLES.sorted_tables
                    for row in connection.execute(sqlalchemy.text(f"SELECT * FROM {table.name}"))]
        self.assertGreater(len(rows), 3)
        for row in rows:
            self.assertNotIn(KEY, row)
            self.assertNotRegex(row, r'my \\*"own')

    def test_a_run_that_goes_on_or_finished_with_the_same_settings_is_found_again(self):
        archive, first = self.filled([])
        ask = space_of(), MACHINE, "random"
        self.assertEqual(archive.resumable(*ask, {**SETTINGS, "budget": 99}, BUILD), first)
        again = archive.begin_run(space_of(), MACHINE, BUILD, "random", SETTINGS)
        self.assertEqual(archive.resumable(*ask, SETTINGS, BUILD), again)
        for other in ((space_of("gemm:m=65,n=64,k=64"), MACHINE, "random", SETTINGS),
                      (space_of(default={**DEFAULT, "mc": 48}), MACHINE, "random", SETTINGS),
                      (space_of(), {**MACHINE, "cores": 4}, "random", SETTINGS),
                      (space_of(), MACHINE, "local", SETTINGS),
                      (space_of(), MACHINE, "random", {**SETTINGS, "seed": 8})):
            self.assertIsNone(archive.resumable(*other, BUILD))
        for state in ("interrupted", "undecided"):
            archive.finish_run(again, None, state)
            self.assertEqual(archive.resumable(*ask, SETTINGS, BUILD), again)
        archive.resume_run(again)
        self.assertEqual(archive.record_of(again).state, "running")
        archive.finish_run(again, None)
        archive.finish_run(first, None, "failed")
        self.assertEqual(archive.resumable(*ask, {**SETTINGS, "max_time": 9}, BUILD), again)
        archive.resume_run(again)
        self.assertEqual(archive.record_of(again).state, "finished")
        self.assertIsNone(archive.resumable(*ask, {**SETTINGS, "budget": 99}, BUILD))
        self.assertIsNone(archive.resumable(*ask, SETTINGS, {**BUILD, "commit": "of another"}))

    def test_a_space_is_of_one_machine_default_and_state_of_the_caches(self):
        archive, _ = self.filled([correct(0, 1), correct(1, 0.9, mc=48)])
        # Measured traits are no part of a machine.
        self.filled([correct(0, 0.95)], machine={**MACHINE, "traits": {"other": 1}})
        self.filled([correct(0, 0.1)], machine={**MACHINE, "cpu": "Intel"})
        self.filled([correct(0, 0.2)], space=space_of(threads=2))
        self.filled([correct(0, 0.3)], space=space_of(default={**DEFAULT, "mc": 48}))
        self.filled([correct(0, 0.4)], space=space_of(problem={"m": 64, "cache": "cold"}))
        self.assertEqual([one.space for one in archive.stored({})], [1, 1, 3, 4, 5, 6])

    def test_the_best_has_most_samples_and_was_never_wrong(self):
        archive, run = self.filled([
            correct(0, 1), correct(1, 0.5, mc=48), correct(2, 0.7, 2, mc=192),
            correct(3, 0.8, 30, mc=192), correct(4, 0.75, kc=64), correct(5, 0.76, kc=64)])
        self.filled([failed(0, Outcome.INCORRECT, mc=48), failed(1, Outcome.CRASH, kc=64)])
        best = queries.best(archive.stored({}), 9)
        self.assertEqual([(line["ratio"].value, line["samples"], line["is_default"])
                          for line in best], [(0.76, 4, False), (0.8, 30, False), (1, 4, True)])
        self.assertEqual((best[0]["evaluations"], best[0]["run"], best[0]["rank"]), (8, run, 1))
        self.assertEqual(len(queries.best(archive.stored({}), 1)), 1)
        self.assertEqual(archive.stored({"kernel": "softmax"}), [])
        self.assertIsNone(best[0]["verdict"])
        same = Ratio(1, 1, 1)
        archive.finish_run(run, Verdict(DEFAULT, same, [Finalist(DEFAULT, same)]))
        self.assertEqual(queries.best(archive.stored({}), 1)[0]["verdict"].chosen, DEFAULT)

    def test_statistics_are_those_of_known_trials(self):
        archive, run = self.filled([correct(0, 1, strategy="seed"), correct(1, 0.5, mc=48),
                                    correct(2, 2, kc=64), failed(3, Outcome.TIMEOUT, order=1)])
        archive.record_exchange(run, Exchange(0, "m", "q", "a", "", 1.5, 10, 20))
        found = queries.statistics(archive.stored({}))
        for name, value in {"attempts": 4, "correct": 3, "success_rate": 0.75, "runs": 1,
                            "configurations": 4, "spaces": 1, "mean_speed_up": 1,
                            "mean_speed_up_of_best": 2, "seconds": 3 * 1.875 + 0.75}.items():
            self.assertAlmostEqual(found[name], value, msg=name)
        self.assertEqual(found["outcomes"], {"correct": 3, "timeout": 1})
        self.assertEqual((found["strategies"]["random"]["attempts"],
                          found["strategies"]["random"]["best_speed_up"]), (3, 2))
        self.assertEqual(found["exchanges"], {"requests": 1, "seconds": 1.5, "tokens_in": 10,
                                              "tokens_out": 20})
        self.assertIsNone(queries.statistics([])["success_rate"])

    def test_prune_keeps_what_is_young_best_or_running(self):
        old = records.now() - timedelta(days=40)
        archive, first = self.filled(some_trials(), at=old)
        archive.record_exchange(first, Exchange(0, "m", "q", "a"))
        _, second = self.filled([correct(0, 0.9), failed(1, Outcome.CRASH, mc=48)])
        archive.finish_run(second, None)

        def pruned(**wanted) -> tuple[int, ...]:
            return tuple(archive.prune(**wanted).values())

        # The first goes on, and has the best.
        self.assertEqual(pruned(keep=1, dry_run=True), (2, 1, 0, 0))
        archive.finish_run(first, None)
        self.assertEqual(pruned(older_than=50), (0, 0, 0, 0))
        self.assertEqual(pruned(older_than=30, failed_only=True, dry_run=True)[0], 5)
        self.assertEqual(pruned(older_than=30, keep=1)[0], 7)
        self.assertEqual([trial.number for trial in archive.record_of(first).trials], [1])
        self.assertEqual(len(archive.record_of(second).trials), 2)
        self.assertEqual(pruned(older_than=30), (1, 1, 1, 0))
        self.assertEqual([one.id for one in archive.stored({})], [second])
        archive.prune(keep=0)
        self.assertEqual(archive.stored({}), [])

    def test_prune_makes_no_wrong_configuration_win(self):
        archive, run = self.filled([correct(0, 1), correct(1, 0.5, mc=48),
                                    failed(2, Outcome.INCORRECT, mc=48),
                                    failed(3, Outcome.INCORRECT, mc=192)])
        archive.finish_run(run, None)
        archive.prune(failed_only=True)
        self.assertEqual([trial.number for trial in archive.record_of(run).trials], [0, 1, 2])
        self.assertEqual(queries.best(archive.stored({}), 1)[0]["ratio"].value, 1)

    def test_several_processes_lose_nothing_and_write_nothing_twice(self):
        for process in [in_package("-c", OPENER, self.url) for _ in range(3)]:
            self.assertEqual(process.communicate()[1], "")  # one makes the tables, all see them
        archive, run = self.filled([])
        _, shared = self.filled([])
        processes = [in_package("-c", WRITER, self.url, str(run), str(50 * part), "50")
                     for part in range(2)]
        processes += [in_package("-c", WRITER, self.url, str(shared), "0", "20") for _ in range(2)]
        for process in processes:
            self.assertEqual(process.communicate()[1], "")
            self.assertEqual(process.returncode, 0)
        trials = archive.record_of(run).trials
        self.assertEqual([trial.number for trial in trials], list(range(100)))
        for trial in trials:
            self.assertEqual((trial.note, trial.ns), (str(trial.number // 50 * 50),
                                                      [float(trial.number)] * 30))
        self.assertEqual([trial.number for trial in archive.record_of(shared).trials],
                         list(range(20)))

    def test_kill_in_the_middle_leaves_a_readable_archive_with_all_that_was_committed(self):
        archive, run = self.filled([])
        begin = 0
        for told in (1, 7):
            process = in_package("-c", WRITER, self.url, str(run), str(begin), "1000")
            said = [int(process.stdout.readline()) for _ in range(told)]
            process.send_signal(signal.SIGKILL)
            said += [int(line) for line in process.stdout.read().split()]
            process.communicate()
            numbers = [trial.number for trial in archive.record_of(run).trials]
            self.assertEqual(numbers, list(range(len(numbers))))
            self.assertIn(len(numbers) - 1 - said[-1], (0, 1))
            begin = len(numbers)
        self.assertEqual(archive.resumable(space_of(), MACHINE, "random", SETTINGS, BUILD), run)
        self.assertTrue(archive.record(run, correct(begin, 1)))

    def test_an_archive_of_another_version_is_refused(self):
        archive, _ = self.filled()
        engine = sqlalchemy.create_engine(database.address_of(self.url))
        archive.close()
        for version, said in ((99, "has schema 99; this version knows 2: a newer"),
                              (1, "an older Rooflane")):
            with engine.begin() as connection:
                connection.execute(sqlalchemy.text(f"UPDATE archive_meta SET version = {version}"))
            status, output, errors = command("list", "--archive", self.url)
            self.assertEqual((status, output), (3, ""))
            self.assertIn(said, errors)
            self.assertEqual(len(errors.splitlines()), 1)

    def test_runs_move_between_archives_whole_and_once(self):
        archive, run = self.filled()
        archive.record_exchange(run, Exchange(0, "m", "q", "a", trials=[1]))
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/other.sqlite"
            for new in (8, 0):
                status, output, _ = command("import", self.url, "--json", "--archive", path)
                self.assertEqual((status, json.loads(output)["imported"]),
                                 (0, [{"run": 1, "evaluations": 8, "new": new}]))
            archive.record(run, correct(8, 0.6, order=1))
            archive.finish_run(run, Verdict(DEFAULT, Ratio(1, 1, 1)))
            other = Archive(path)
            self.assertEqual(other.add(archive.record_of(run)), (1, 1))  # what is missing
            ours, theirs = archive.record_of(run), other.record_of(1)
            self.assertEqual(records.plain(theirs), records.plain(ours))
            self.assertEqual(archive.add(theirs)[1], 0)  # and back

    def test_the_command_line_tells_what_is_there(self):
        archive, run = self.filled()
        archive.finish_run(run, Verdict({**DEFAULT, "mc": 192}, Ratio(0.8, 0.79, 0.81),
                                        [Finalist({**DEFAULT, "mc": 192}, Ratio(0.8, 0.79, 0.81))]))

        def told(*words: str) -> str:
            status, output, errors = command(*words, "--archive", self.url)
            self.assertEqual((status, errors), (0, ""), f"{words}: {errors}")
            return output

        line = told("list").splitlines()[1]
        for part in ("finished", "gemm:m=64,n=64,k=64", "hwy", "1 thread AVX3", "random", "8", "3",
                     "0.800 [0.792, 0.808]"):
            self.assertIn(part, line)
        line = told("best", "-k", "gemm").splitlines()[1]
        for part in ("0.800 [0.792, 0.808]", "1.250x", "winner: this, 0.800", "mc=192"):
            self.assertIn(part, line)
        # A problem's keys may be in any order.
        lines = told("history", "--shape", "gemm:k=64,m=64,n=64").splitlines()
        self.assertEqual(len(lines), 2 + 8)
        self.assertIn("the default", lines[2])
        self.assertRegex(lines[7], r"random \(model\) +build error .* because; corrected$|refused")
        self.assertEqual(lines, told("history", str(run)).splitlines())
        self.assertIn("3 correct (37.5 %)", told("statistics"))
        self.assertIn("would remove 5 evaluations", told("prune", "--failed", "--dry-run"))
        documents = {verb: json.loads(told(*verb.split(), "--json")) for verb in
                     ("list", "best --top 3", f"history {run}", "prune --keep 9")}
        self.assertEqual(documents["list"]["runs"][0]["best"]["value"], 0.8)
        self.assertEqual([one["rank"] for one in documents["best --top 3"]["best"]], [1, 2, 3])
        self.assertEqual(len(documents[f"history {run}"]["runs"][0]["evaluations"]), 8)
        self.assertEqual(documents["prune --keep 9"]["pruned"]["evaluations"], 5)


class Sqlite(OnBoth, unittest.TestCase):
    """In a file."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.url = str(self.folder / "new" / "tune.sqlite")

    def test_the_archive_lies_where_the_environment_says(self):
        for environment, path in (({"XDG_DATA_HOME": "/data"}, "/data/rooflane/tune.sqlite"),
                                  ({"XDG_DATA_HOME": "relative", "HOME": "/me"},
                                   "/me/.local/share/rooflane/tune.sqlite"),
                                  ({"ROOFLANE_ARCHIVE": "/x/y.sqlite"}, "/x/y.sqlite"),
                                  ({"ROOFLANE_ARCHIVE": "sqlite:////x/y.db"}, "/x/y.db")):
            with mock.patch.dict(os.environ, environment, clear=True):
                self.assertEqual(database.address_of(None).database, path)
        self.assertEqual(database.address_of("sqlite:////a/b").database, "/a/b")
        self.assertEqual(database.address_of("b.sqlite").database, str(Path.cwd() / "b.sqlite"))
        self.assertEqual(database.address_of("postgresql://u:p@h/d").drivername,
                         "postgresql+psycopg")

    def test_readers_do_not_wait_for_a_writer(self):
        archive, run = self.filled()
        with archive._engine.execution_options(writes=True).begin() as connection:
            connection.execute(sqlalchemy.text("DELETE FROM exchanges"))
            self.assertEqual(Archive(self.url).record_of(run).trials, some_trials())

    def test_what_is_no_archive_is_refused_in_one_line(self):
        text, foreign = self.folder / "text", self.folder / "foreign.sqlite"
        text.write_text("no database at all, but long enough to be looked at" * 30)
        with sqlite3.connect(foreign) as connection:
            connection.execute("CREATE TABLE cats (name TEXT)")
        blocked = self.folder / "text" / "below.sqlite"
        for url, status, said in (
                (str(text), 2, "is not an archive"), (str(foreign), 2, "'cats'"),
                (str(self.folder), 2, "is a folder"),
                (str(self.folder / "absent"), 2, "no archive"),
                (str(blocked), 2, "below.sqlite"), ("mysql://me@there/db", 2, "unknown database"),
                ("sqlite://", 2, "names no file"), ("://x", 2, "valid: a path"),
                (f"postgresql://me:{KEY}@/db?host={self.folder}", 3, "cannot be reached"),
                (f"postgresql://me:{KEY}@127.0.0.1:1/db", 3, "cannot be reached")):
            found, output, errors = command("list", "--archive", url)
            self.assertEqual((found, output), (status, ""), url)
            self.assertIn(said, errors)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            self.assertNotIn(KEY, errors)

    def test_wrong_arguments_are_named_with_what_is_nearest(self):
        self.filled()
        junk = self.folder / "junk.json"
        junk.write_text('{"results": [{"configuration": {}}]}')
        for words, said in (
                (["lst"], "invalid choice: 'lst' (choose from "), ([], "required: VERB"),
                (["best", "-k", "gem"], "nothing of 'gem'; nearest is 'gemm'; valid: gemm"),
                (["best", "--shape", "gemm:m=65,n=64,k=64"], "nearest is 'gemm:m=64,n=64,k=64'"),
                (["best", "--top", "0"], "a number of at least 1"),
                (["history"], "needs RUN or --shape"), (["history", "9"], "no run 9"),
                (["history", "x"], "'x'; valid: a number"), (["prune"], "needs --older-than"),
                (["prune", "--keep", "-1"], "at least 0"),
                (["export", "--format", "t5", "f"], "invalid choice: 't5' (choose from "),
                (["export", "--format", "t4", f"{self.folder}/no/f"], "cannot be written"),
                (["import", f"{self.folder}/none"], "cannot be read"),
                (["import", "--format", "kernel-tuner", str(junk)], "is not a kernel-tuner file"),
                (["import", str(junk)], "'invalidity' is missing")):
            status, output, errors = command(*words, *(["--archive", self.url] if words else []))
            self.assertEqual((status, output), (2, ""), (words, errors))
            self.assertIn(said, errors)
            self.assertEqual(len(errors.splitlines()), 1, errors)

    def test_without_an_archive_of_the_user_s_own_there_is_nothing(self):
        with mock.patch.dict(os.environ, {"XDG_DATA_HOME": str(self.folder)}):
            os.environ.pop("ROOFLANE_ARCHIVE", None)
            for words in (["list"], ["best"], ["statistics"], ["history", "1"],
                          ["prune", "--keep", "1"]):
                status, _, errors = command(*words)
                self.assertEqual(status, 0)
                self.assertIn("nothing was tuned yet", errors)
            self.assertEqual(json.loads(command("best", "--json")[1])["best"], [])
        self.assertEqual(list(self.folder.iterdir()), [])


class Postgresql(OnBoth, unittest.TestCase):
    """On a server; a database for each test."""
    server: postgresql.Server | None = None
    count = 0

    @classmethod
    def setUpClass(cls) -> None:
        if programs := postgresql.programs():
            cls.server = postgresql.Server(programs)
            cls.addClassCleanup(cls.server.stop)

    def setUp(self) -> None:
        if self.server is None:
            self.skipTest(skip.reason("no PostgreSQL", postgresql.PACKAGE))
        Postgresql.count += 1
        name = f"archive{self.count}"
        engine = sqlalchemy.create_engine(self.server.url(), isolation_level="AUTOCOMMIT",
                                          poolclass=sqlalchemy.pool.NullPool)
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
        self.url = self.server.url(name)

    def test_a_server_that_starts_again_loses_nothing(self):
        archive, run = self.filled()
        self.server.restart()
        self.assertTrue(archive.record(run, correct(8, 0.6, order=1)))
        self.assertEqual(archive.record_of(run).trials, [*some_trials(), correct(8, 0.6, order=1)])


class Formats(unittest.TestCase):
    """What goes out and comes in."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.archive = Archive(str(self.folder / "a.sqlite"))
        self.run_number = self.archive.begin_run(space_of(), MACHINE, BUILD, "random", SETTINGS)
        for trial in some_trials():
            self.archive.record(self.run_number, trial)
        self.record = self.archive.record_of(self.run_number)

    def read(self, text: str, name: str | None = None):
        path = self.folder / "theirs.json"
        path.write_text(text, encoding="utf-8")
        run, = formats.read(str(path), name)
        return run

    def test_formats_of_other_tuners_keep_times_outcomes_and_samples(self):
        path = str(self.folder / "out")
        for name in formats.FORMATS:
            for words in ([path], ["-"]):
                status, output, errors = command("export", "--format", name, "--space", "1", *words,
                                                 "--archive", self.archive.url)
                self.assertEqual(status, 0, errors)
            self.assertEqual(Path(path).read_text(encoding="utf-8"), output)
            run = self.read(output)
            theirs = {Outcome.TIMEOUT: Outcome.CRASH, Outcome.INCORRECT: Outcome.CRASH}
            for trial, ours in zip(run.trials, self.record.trials):
                outcome = theirs.get(ours.outcome, ours.outcome) if name != "t4" else ours.outcome
                self.assertEqual((trial.configuration, trial.outcome),
                                 (ours.configuration, outcome))
                self.assertEqual((trial.cost, trial.time), (ours.cost, ours.time))
                if ours.correct:
                    self.assertEqual(trial.ns, ours.ns)
                    self.assertAlmostEqual(trial.ratio.value, ours.ratio.value)
            self.assertEqual((len(run.trials), run.space.default), (8, DEFAULT))
            self.assertEqual(self.archive.add(run)[1], 8)

    def test_a_configuration_of_several_runs_stands_once_and_two_spaces_are_refused(self):
        other = self.archive.begin_run(space_of(), MACHINE, BUILD, "local", SETTINGS)
        self.archive.record(other, correct(0, 0.95, 40, mc=192))
        self.archive.record(other, failed(1, Outcome.INCORRECT, kc=64))
        third = self.archive.begin_run(space_of("gemm:m=8,n=8,k=8"), MACHINE, BUILD, "x", {})
        runs = [self.archive.record_of(number) for number in (self.run_number, other, third)]
        for name in formats.FORMATS:
            run = self.read(formats.write(runs[:2], name))
            self.assertEqual(len(run.trials), 8)
            self.assertEqual(len(run.trials[1].ns), 40)
            self.assertIsNot(run.trials[2].outcome, Outcome.CORRECT)
            with self.assertRaisesRegex(ArchiveError, "one space, not 2 .*--run or --space"):
                formats.write(runs, name)

    def test_the_time_of_other_formats_ranks_as_ratios_do(self):
        drifting = correct(8, 0.9, order=1)
        drifting.ns, drifting.default_ns = [9000.0] * 9, [10000.0] * 9  # the machine was slow
        self.archive.record(self.run_number, drifting)
        cache = json.loads(kernel_tuner.write([self.archive.record_of(self.run_number)]))["cache"]
        timed = {key: entry["time"] for key, entry in cache.items() if "__error__" not in entry}
        self.assertEqual(sorted(timed, key=timed.get), ["192,128,0", "96,128,1", "96,128,0",
                                                        "96,64,0"])

    def test_a_cache_of_kernel_tuner_is_read_even_without_its_end(self):
        entries = [
            {"a": 1, "b": 2, "time": "InvalidConfig", "__error__": "InvalidConfig"},
            {"a": 2, "b": 2, "time": 4.0, "times": [4.0, 4.1, 3.9], "compile_time": 500,
             "verification_time": 0, "benchmark_time": 12.0, "strategy_time": 1,
             "framework_time": 2, "timestamp": "2025-01-02 03:04:05.678901+00:00"},
            {"a": 2, "b": 4, "time": 2.0, "times": [2.0, 2.1, 1.9]},
            {"a": 4, "b": 2, "time": "RuntimeFailedConfig"},  # as older versions wrote it
            {"a": 4, "b": 4, "__error__": "CompilationFailedConfig"}]
        head = {"device_name": "NVIDIA A100", "kernel_name": "vector_add",
                "problem_size": [1024, 8], "tune_params_keys": ["a", "b"],
                "tune_params": {"a": [1, 2, 4], "b": [2, 4]}}
        text = (json.dumps(head)[:-1] + ', "cache": {'
                + "".join(f'\n"{one["a"]},{one["b"]}": {json.dumps(one)},' for one in entries))
        for whole in (text, text[:-1] + "}\n}"):
            run = self.read(whole)
            self.assertEqual([trial.outcome for trial in run.trials],
                             [Outcome.CORRECT, Outcome.REFUSED, Outcome.CORRECT, Outcome.CRASH,
                              Outcome.BUILD_ERROR])
            first, fast = run.trials[0], run.trials[2]
            self.assertEqual((first.configuration, first.ns, first.cost.build, first.cost.time),
                             ({"a": 2, "b": 2}, [4e6, 4.1e6, 3.9e6], 0.5, 0.012))
            self.assertEqual((first.ratio.value, fast.ratio.value), (1, 0.5))
            self.assertLess(fast.ratio.low, 0.5)
            self.assertEqual((run.space.kernel, run.space.shape, run.space.device),
                             ("vector_add", "vector_add:size=1024x8", "NVIDIA A100"))
            self.assertEqual(first.time.isoformat(), "2025-01-02T03:04:05.678901+00:00")

    def test_t4_of_others_is_read_in_its_unit(self):
        def result(value: float, invalidity: str = "correct", unit: str = "") -> dict:
            return {"configuration": {"x": value}, "invalidity": invalidity, "correctness": 1,
                    "times": {"compilation": 2, "runtimes": [value, value * 1.1]},
                    "measurements": [{"name": "time", "value": value, "unit": unit}],
                    "objectives": ["time"]}

        document = {"results": [result(4), result(2), result(3, "timeout"), result(8, unit="ms")],
                    "metadata": {"timeunit": "seconds"}}
        run = self.read(json.dumps(document))
        self.assertEqual([trial.ratio and trial.ratio.value for trial in run.trials],
                         [1, 0.5, None, 0.002])
        self.assertEqual((run.trials[0].ns[0], run.trials[0].cost.build), (4e9, 2))
        self.assertEqual(run.trials[2].outcome, Outcome.TIMEOUT)

    def test_what_cannot_be_kept_is_refused_by_name(self):
        cache = json.loads(kernel_tuner.write([self.record]))
        entry = next(iter(cache["cache"].values()))
        for change, said in (({"mc": 1.5}, "tunable 'mc' is 1.5; only whole numbers"),
                             ({"__error__": "Oops"}, "unknown error 'Oops'")):
            whole = {**cache, "cache": {"x": {**entry, **change}}}
            with self.assertRaisesRegex(ArchiveError, said):
                self.read(json.dumps(whole, indent=""))
        with self.assertRaisesRegex(ArchiveError, "neither an archive nor of the formats t4"):
            self.read("a,b\n1,2\n")


class KernelTuner(unittest.TestCase):
    """Kernel Tuner itself reads what we export, and its strategies find our best."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.python, cls.missing = None, ""
        try:
            cls.python = with_packages("kernel-tuner-tests", KERNEL_TUNER)
        except Unavailable as reason:
            if "PyPI cannot be reached" not in str(reason):
                raise
            cls.missing = skip.reason(str(reason), f"from PyPI: {' '.join(KERNEL_TUNER)}")

    def setUp(self) -> None:
        if self.python is None:
            self.skipTest(self.missing)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.archive = Archive(str(self.folder / "a.sqlite"))
        # The corner with mc * kc above 1536 is refused, some other points fail, and the best is
        # inside.
        run = self.archive.begin_run(space_of(), MACHINE, BUILD, "all", {})
        grid = [{"mc": mc, "kc": kc, "order": order} for mc in (8, 16, 24, 32, 48, 64)
                for kc in (8, 16, 32, 48, 64, 96) for order in (0, 1)]
        self.archive.record(run, correct(0, 1))
        for number, configuration in enumerate(grid, 1):
            mc, kc, order = configuration.values()
            ratio = 0.7 + ((mc - 24) / 60) ** 2 + ((kc - 48) / 90) ** 2 + 0.05 * (order != kc // 48)
            outcome = (Outcome.REFUSED if mc * kc > 1536 else
                       Outcome.INCORRECT if (mc + kc) % 7 == 3 else None)
            self.archive.record(run, failed(number, outcome, **configuration) if outcome else
                                correct(number, ratio, **configuration))
        (self.folder / "space.json").write_text(
            formats.write([self.archive.record_of(run)], "kernel-tuner"), encoding="utf-8")

    def ask(self, *words: str) -> str:
        done = subprocess.run([str(self.python), *words], text=True, capture_output=True,
                              check=False, cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_its_tune_cache_finds_our_best_and_what_it_writes_is_read(self):
        run = self.archive.record_of(1)
        (self.folder / "t4.json").write_text(formats.write([run], "t4"), encoding="utf-8")
        # Its own file from our cache, and its schema on both.
        best, count, device = json.loads(self.ask("-c", """
import contextlib, io, json
import jsonschema
from kernel_tuner import file_utils, util
from kernel_tuner.interface import tune_cache
with contextlib.redirect_stdout(io.StringIO()):
    results, environment = tune_cache("space.json", strategy="brute_force", quiet=True)
file_utils.store_output_file("theirs.json", results,
                             json.load(open("space.json"))["tune_params"])
_, schema = file_utils.output_file_schema("results")
for name in ("t4.json", "theirs.json"):
    jsonschema.validate(json.load(open(name)), schema)
best = environment["best_config"]
print(json.dumps([{name: int(best[name]) for name in ("mc", "kc", "order")}, len(results),
                  environment["device_name"]]))"""))
        self.assertEqual(best, {"mc": 24, "kc": 48, "order": 1})
        self.assertEqual((count, device), (sum(trial.correct for trial in run.trials), "AMD EPYC"))
        theirs, = formats.read(str(self.folder / "theirs.json"), None)

        def ratios(trials) -> dict[str, float]:  # to the best: theirs knows no default
            found = {text_of(trial.configuration): trial.ratio.value
                     for trial in trials if trial.correct}
            return {text: round(ratio / min(found.values()), 6) for text, ratio in found.items()}

        self.assertEqual(ratios(theirs.trials), ratios(run.trials))


if __name__ == "__main__":
    tune_environment.enter()
    import sqlite3

    import sqlalchemy
    from rooflane.archive import database, formats, kernel_tuner, queries, records
    from rooflane.archive.command import main
    from rooflane.archive.database import ArchiveError
    from rooflane.archive.store import Archive
    from rooflane.tuning import (
        Candidate,
        Cost,
        Exchange,
        Finalist,
        Neighbour,
        Outcome,
        Ratio,
        Space,
        Trial,
        Tunable,
        Verdict,
        text_of,
    )

    from python_environment import Unavailable, with_packages
    skip.main(sys.argv)
