#!/usr/bin/env python3
"""`tune --strategy source`, with a judge that believes what a source says of itself
(fake_judge.py): tune_source_test.py ROOFLANE_WITH_FAKES [NAME...]. Proposers that climb and
proposers that fail, and servers that fail.
"""
from __future__ import annotations

import tune_environment

if __name__ == "__main__":
    tune_environment.enter()

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import jsonschema
from rooflane import judging, program
from rooflane.archive.store import Archive
from rooflane.evaluator import Evaluator, Target
from rooflane.judging import Judge, Request
from rooflane.language_model import prompt
from rooflane.source_search import request
from rooflane.source_search.asking import sources_of
from rooflane.source_search.evaluator import SourceEvaluator
from rooflane.source_search.sources import FLAGS, TEMPLATE, Sources
from rooflane.tuner.command import main
from rooflane.tuning import History, text_of

import language_model_fakes as fakes
import skip
from language_model_fakes import fails, says

PROGRAM = ""
TESTS = Path(__file__).resolve().parent
PROPOSER = tune_environment.ROOT / "examples/proposer/sources.py"
SHAPE = "softmax:rows=4,cols=8"
FUNCTION = "void softmax(const float* x, float* y, int64_t rows, int64_t cols) {}\n"


def source(text: str) -> str:
    """A source that says this of itself."""
    return f"/* fake: {text} */\n{FUNCTION}"


def answer(*texts: str) -> str:
    """A model's answer with sources in code blocks."""
    return "Sure!\n" + "\n".join(f"```c\n{source(text)}```" for text in texts)


class Searches(unittest.TestCase):
    """What the tests share: a folder, the fake judge, an archive."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {
            "PYTHONPATH": str(tune_environment.ROOT / "python"), "FAKE_PROGRAM": PROGRAM,
            "ROOFLANE_PROGRAM": str(TESTS / "fake_judge.py"), "ROOFLANE_TUNED": "none",
            "FAKE_ARCHIVE": str(self.folder / "attempts"), "OPENAI_API_KEY": "none",
            "ROOFLANE_LLM_MODEL": "fake"}
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        kept = dict(os.environ)
        os.environ.update(self.environment)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))

    def command(self, *words: str, budget: int = 8) -> list[str]:
        return [sys.executable, "-m", "rooflane.verbs", "tune", "--strategy", "source", "--shape",
                SHAPE, "--threads", "1", "--budget", str(budget), "--archive",
                str(self.folder / "tune.sqlite"), *words]

    def tune(self, *words: str, status: int = 0, budget: int = 8) -> str:
        """Runs it, in this process; what it prints."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                found: object = main(self.command(*words, budget=budget)[4:])
            except SystemExit as ended:
                found = ended.code
        self.assertEqual(found, status, said.getvalue())
        return said.getvalue()

    def files(self, *texts: str) -> str:
        """A proposer of sources that say this of themselves."""
        names = []
        for number, text in enumerate(texts):
            names.append(f"{number}.c")
            (self.folder / names[-1]).write_text(source(text))
        return f"{sys.executable} {PROPOSER} {' '.join(names)}"

    def archive(self) -> Archive:
        archive = Archive(str(self.folder / "tune.sqlite"))
        self.addCleanup(archive.close)
        return archive

    def trials(self, run: int = 1) -> list[tuple[str, str, str]]:
        """Configuration, outcome, and who proposed it."""
        return [(text_of(trial.configuration), trial.outcome.value, trial.source)
                for trial in self.archive().record_of(run).trials]


class Proposers(Searches):
    def test_a_program_climbs_and_wins(self) -> None:
        proposer = self.files("verdict=LOSER ratio=2", "verdict=BUILD", "verdict=FAILED",
                              "verdict=WINNER ratio=0.6")
        said = self.tune("--proposer", proposer, "--export", "best.c", budget=5)
        self.assertIn("source 5 takes 0.600 times as long as hwy [0.594, 0.606]", said)
        self.assertIn("5 evaluations, 3 correct", said)
        self.assertIn(f"compiled with {FLAGS[0]}; written to best.c", said)
        self.assertEqual((self.folder / "best.c").read_text(), source("verdict=WINNER ratio=0.6"))
        self.assertEqual(self.trials(), [
            ("source=1,flags=0", "correct", ""), ("source=2,flags=0", "correct", "proposer"),
            ("source=3,flags=0", "build error", "proposer"),
            ("source=4,flags=0", "incorrect", "proposer"),
            ("source=5,flags=0", "correct", "proposer")])
        reasons = [trial.reason for trial in self.archive().record_of(1).trials]
        self.assertIn("error: expected ';' (attempt 3)", reasons[2])

    def test_a_source_that_is_wrong_on_unseen_shapes_does_not_win(self) -> None:
        proposer = self.files("verdict=WINNER ratio=0.5 unseen=FAILED", "verdict=LOSER ratio=1.2")
        said = self.tune("--proposer", proposer, budget=3)
        self.assertIn("source 3 takes 1.200 times as long as hwy [1.188, 1.212]: hwy stays", said)
        self.assertIn("[0.995", self.tune("--proposer", self.files("verdict=TIE ratio=1.005"),
                                          budget=2))
        (self.folder / "0.c").write_text(source("verdict=WINNER unseen=CRASH"))
        self.assertIn("4.000 times", self.tune("--proposer", f"{sys.executable} {PROPOSER} 0.c",
                                               budget=2))

    def test_programs_that_fail_leave_the_trials_to_other_flags(self) -> None:
        for command in ("false", "/nonexistent/program", "echo '[1, 2'", "echo '{}'", "yes",
                        f"echo '{json.dumps({'source': 'int x;'})}'"):
            with self.subTest(command):
                run = len(self.archive().stored({})) + 1
                said = self.tune("--proposer", command, budget=3)
                self.assertIn("3 evaluations, 3 correct", said)
                self.assertEqual([who for _, _, who in self.trials(run)], ["", "flags", "flags"])
                failures = {each.failure for each in self.archive().record_of(run).exchanges}
                self.assertLessEqual(failures, {"program", "no source"})

    def test_what_a_program_is_told(self) -> None:
        log = self.folder / "told"
        program_text = ("import sys\nfor line in sys.stdin:\n"
                        f"  open({str(log)!r}, 'a').write(line)\n"
                        f"  print({json.dumps({'source': source('verdict=FAILED')})!r}, "
                        "flush=True)\n")
        (self.folder / "p.py").write_text(program_text)
        self.tune("--proposer", f"{sys.executable} p.py", budget=3)
        first, second = (json.loads(line) for line in log.read_text().splitlines()[:2])
        self.assertEqual((first["rooflane_source"], first["kernel"], first["to_beat"]),
                         (1, "softmax", "hwy"))
        self.assertIn("const float* x", first["signature"])
        self.assertIn("cpu", first["machine"]["machine"])
        self.assertEqual(first["best"]["hot_loop"]["width_bits"], 512)
        self.assertIn("The template", first["best"]["source"])
        self.assertIsNone(first["last"])
        self.assertEqual(first["budget"]["trials_left"], 2)
        self.assertEqual(second["last"]["first_wrong"]["expected"], 0.25)
        self.assertEqual([each["outcome"] for each in second["attempts"]],
                         ["correct", "incorrect"])

    def test_limits_end_it(self) -> None:
        proposer = self.files(*(f"verdict=LOSER ratio={ratio}" for ratio in (3, 2, 1.5, 1.4, 1.3)))
        self.assertIn("3 evaluations", self.tune("--proposer", proposer, "--stop-at", "0.5x"))
        slow = self.files(*(f"verdict=LOSER ratio={ratio}" for ratio in (5, 6, 7, 8, 9)))
        self.assertIn("4 evaluations", self.tune("--proposer", slow, "--patience", "3"))

    def test_a_killed_search_goes_on_with_the_same_numbers(self) -> None:
        never = self.folder / "never"
        proposer = self.files("verdict=LOSER ratio=3", f"verdict=LOSER ratio=2 until={never}",
                              "verdict=WINNER ratio=0.5")
        with subprocess.Popen(self.command("--proposer", proposer, budget=4), cwd=self.folder,
                              stderr=subprocess.DEVNULL, start_new_session=True) as process:
            end = time.monotonic() + 400
            while time.monotonic() < end and not Path(f"{never}.judged").exists():
                time.sleep(0.05)  # until the second source is judged
            os.killpg(process.pid, signal.SIGKILL)
        self.assertEqual(len(self.trials()), 2)
        (self.folder / "0.c").write_text(source("verdict=LOSER ratio=2.5"))
        (self.folder / "1.c").write_text(source("verdict=WINNER ratio=0.5"))
        said = self.tune("--proposer", proposer, "--resume", budget=4)
        self.assertIn("takes 0.500 times", said)
        self.assertEqual([text for text, _, _ in self.trials()],
                         [f"source={number},flags=0" for number in (1, 2, 4, 5)])

    def test_no_jail_is_told_and_ends_with_3(self) -> None:
        said = self.tune("--proposer", self.files("refuse=3"), status=3)
        self.assertIn("no jail is possible here", said)

    def test_what_does_not_go_together(self) -> None:
        for words, says_it in ((["--report", "r"], "--report"), (["--space"], "--space"),
                               (["--cache", "cold"], "--cache"),
                               (["--cluster", "tcp://127.0.0.1:1"], "--cluster")):
            self.assertIn(says_it, self.tune(*words, status=2))
        self.assertIn("keeps one source", self.tune("--export", "best.c", "--shape",
                                                    "softmax:rows=5,cols=8", status=2))
        self.assertIn("cannot be written",
                      self.tune("--export", "/nonexistent/best.c", status=3))


class Models(Searches):
    def serve(self, *answers: fakes.Answer) -> fakes.Server:
        server = fakes.Server(*answers)
        self.addCleanup(server.__exit__)
        os.environ["ROOFLANE_LLM_URL"] = server.url
        return server

    def test_a_model_climbs(self) -> None:
        server = self.serve(says(answer("verdict=LOSER ratio=2")),
                            says("<think>```c\nsoftmax(\n```</think>" + answer("verdict=BUILD")),
                            says(answer("verdict=WINNER ratio=0.7")))
        said = self.tune(budget=4)
        self.assertIn("source 4 takes 0.700 times as long as hwy", said)
        self.assertEqual([who for _, _, who in self.trials()], ["", "llm", "llm", "llm"])
        asked = [each["messages"][1]["content"] for each in server.requests]
        self.assertNotIn("response_format", server.requests[0])
        self.assertIn("const float* x", asked[0])
        self.assertIn("takes 4.000 times as long as hwy", asked[0])
        self.assertIn("vmovups (%rdi,%rax), %zmm0", asked[0])
        self.assertIn("ratio=2", asked[1])
        self.assertIn("error: expected ';'", asked[2])
        self.assertEqual([each.trials for each in self.archive().record_of(1).exchanges],
                         [[1], [2], [3]])

    def test_generations_ask_for_several(self) -> None:
        server = self.serve(says(answer("ratio=3", "ratio=2.5")),
                            says(answer("ratio=2", "verdict=WINNER ratio=0.9", "ratio=8")))
        self.tune("--generations", "2", "--per-generation", "2", budget=6)
        self.assertEqual([who for _, _, who in self.trials()],
                         ["", "llm", "llm", "llm", "llm", "flags"])
        self.assertEqual(len(server.requests), 2)
        self.assertIn("2 different sources", server.requests[0]["messages"][1]["content"])

    def test_servers_that_fail_leave_the_trials_to_other_flags(self) -> None:
        self.serve(fails(400), fakes.resets, fails(404), says(answer("ratio=1")))
        said = self.tune(budget=3)
        self.assertIn("3 evaluations, 3 correct", said)
        self.assertEqual([who for _, _, who in self.trials()], ["", "flags", "flags"])
        self.serve(says("I'm sorry, I can't."), says(""), fakes.raw("<html>"),
                   says("```c\nint x;\n```"), says(answer("ratio=1.5")))
        self.tune(budget=6)
        self.assertEqual([who for _, _, who in self.trials(2)],
                         ["", "flags", "flags", "flags", "flags", "llm"])
        self.assertEqual([each.failure for each in self.archive().record_of(2).exchanges],
                         ["refusal", "empty", "no JSON", "no source", ""])

    def test_the_budget_of_requests_holds(self) -> None:
        server = self.serve(says(answer("ratio=1.5")))
        self.tune("--llm-requests", "1", budget=4)
        self.assertEqual(len(server.requests), 1)

    def test_a_source_that_was_tried_is_not_judged_again(self) -> None:
        self.serve(says(answer("ratio=1.5")))  # again and again
        self.tune(budget=4)
        self.assertEqual([text for text, _, who in self.trials() if who == "llm"],
                         ["source=2,flags=0"])
        self.assertIn("unusable", [each.failure for each in self.archive().record_of(1).exchanges])


class Answers(unittest.TestCase):
    """Texts of strangers; nothing is run."""

    def test_sources_are_found_where_they_are(self) -> None:
        for text in (FUNCTION, f"```c\n{FUNCTION}```", f"```\n{FUNCTION}",
                     f"x\n```cpp\n{FUNCTION}```", json.dumps({"source": FUNCTION}),
                     json.dumps({"sources": [FUNCTION]})):
            self.assertEqual(sources_of(text, "softmax"), [(FUNCTION, "")], text)
        self.assertEqual(sources_of(json.dumps({"source": FUNCTION, "note": "n" * 999}),
                                    "softmax"), [(FUNCTION, "n" * 500)])
        table = "const rooflane_plugin* rooflane_describe(void) { return 0; }\n"
        self.assertEqual(sources_of(f"```c\n{table}```", "gemm"), [(table, "")])

    def test_what_is_no_source_is_none(self) -> None:
        for text in ("", "no", FUNCTION.replace("{}", ";"), "softmax(x)", "[]", "{}", "null", "3",
                     '{"source": 3}', '{"sources": "x"}', '{"sources": [null]}', "```c\n```",
                     "[" * 100_000, '{"source": ' * 10_000, f"<think>{FUNCTION}</think>",
                     "softmax(" * 20_000):
            begin = time.monotonic()
            self.assertEqual(sources_of(text, "softmax"), [], text[:40])
            self.assertLess(time.monotonic() - begin, 20)

    def test_numbers_and_flags(self) -> None:
        sources = Sources("first")
        self.assertEqual((sources.add("/* flags: -fopenmp */\nsecond"), sources.add("first")),
                         (2, None))
        self.assertEqual(sources.flags({"source": 2, "flags": 1}), f"{FLAGS[1]} -fopenmp")
        self.assertEqual(sources.flags(TEMPLATE), FLAGS[0])
        third = sources.add("int x; /* about flags: none */")
        self.assertEqual(sources.flags({"source": third, "flags": 0}), FLAGS[0])
        legal = sources.check([{"source": 3}, {"source": 4}, {"source": 1, "flags": 9}])
        self.assertEqual([each.configuration for each in legal],
                         [{"source": 3, "flags": 0}, None, None])
        self.assertEqual(sources.nearest([{"source": 9, "flags": 9}])[0].configuration,
                         {"source": 3, "flags": len(FLAGS) - 1})


class Requests(Searches):
    """What is sent to a model."""

    def open(self, inner: Evaluator) -> tuple[SourceEvaluator, History]:
        evaluator = SourceEvaluator(inner, Judge(), 5)
        return evaluator, History(evaluator.open(Target(SHAPE, "hwy")))

    def test_the_judge_times_warm_whatever_is_usual(self) -> None:
        with Evaluator() as inner:
            target = Target("gemm:m=1,n=8,k=8,prepack=1", "hwy")
            self.assertEqual(inner.open(target).cache, "cold")
            self.assertEqual(SourceEvaluator(inner, Judge(), 5).open(target).cache, "warm")

    def test_requests_fit_the_context_or_are_not_sent(self) -> None:
        with Evaluator() as inner:
            evaluator, history = self.open(inner)
            document = request.document_of(history, evaluator, prompt.Question(),
                                           inner.facts["machine"])
            lengths = []
            for context in (8192, 2000, 1200):
                briefing = prompt.Briefing(history.space, context=context, answer_tokens=256)
                asked = request.ask_model(document, briefing)
                self.assertLessEqual(asked.tokens, briefing.room)
                lengths.append(len(asked.messages[1]["content"]))
            self.assertGreaterEqual(lengths[0], lengths[-1])
            with self.assertRaises(prompt.TooLong):
                request.ask_model(document, prompt.Briefing(history.space, context=500,
                                                            answer_tokens=256))

    def test_the_fake_answers_as_the_judge_does(self) -> None:
        schema = json.loads(subprocess.run([PROGRAM, "schema", "judge"], capture_output=True,
                                           text=True, check=True).stdout)
        for text in ("verdict=WINNER ratio=0.5", "verdict=FAILED", "verdict=BUILD"):
            document = Judge().judge(source(text), Request("softmax", (SHAPE,)))
            jsonschema.validate(document, schema)

    def test_the_judge_is_asked_with_words_that_it_knows(self) -> None:
        asked = Request("softmax", (SHAPE,), 2, ("hwy", "blas"), 3, 7, 2.5, "-O3 -fopenmp", True,
                        "a.sqlite")
        self.assertEqual(asked.words(), [
            "--kernel=softmax", f"--shape={SHAPE}", "--threads=2", "--hidden=3", "--seed=7",
            "--budget=2.5", "--against=hwy,blas", "--flags=-O3 -fopenmp",
            "--archive=a.sqlite", "--unsafe"])
        with self.assertRaises(judging.TooLarge):
            Judge().judge("x" * (judging.MOST_CHARACTERS + 1), asked)
        with self.assertRaises(program.Refused) as refused:
            Judge(Path("/nonexistent/rooflane")).judge(FUNCTION, asked)
        self.assertEqual(refused.exception.status, 3)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    skip.main(sys.argv[:1] + sys.argv[2:])
