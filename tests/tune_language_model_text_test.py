#!/usr/bin/env python3
"""What a language model is asked and what is made of its answers, texts only: no server, no time.
The rest is in tune_language_model_test.py."""
from __future__ import annotations

import tune_environment

if __name__ == "__main__":
    tune_environment.enter()

import json
import random
import re
import sys
import unittest
from collections.abc import Sequence
from typing import Any

from rooflane.language_model import answer, excerpt, prompt
from rooflane.language_model.asking import rules_of
from rooflane.tuning import History, Proposal, text_of

import language_model_fakes as fakes
import skip
from language_model_fakes import DEFAULT

GOOD = '{"mc": 192, "kc": 384}'


class Answers(unittest.TestCase):
    """Pure functions."""

    def setUp(self) -> None:
        self.space = fakes.space()
        self.names = [tunable.name for tunable in self.space.tunables]

    def read(self, text: str, tried: Sequence[str] = ()) -> list[Proposal | str]:
        return answer.judge(answer.objects_in(text, self.names), self.space, DEFAULT,
                            lambda each: text_of(each) in tried)

    def one(self, text: str) -> Proposal:
        proposal, = self.read(text)
        assert isinstance(proposal, Proposal), proposal
        return proposal

    def test_json_is_found_wherever_it_stands(self) -> None:
        for text in (GOOD, f"```json\n{GOOD}\n```", f"Sure! Here:\n```\n{GOOD}```\nIt is fast.",
                     f"I take {GOOD} since {{}} is empty", f'<think>{{"mc": 1}}</think>{GOOD}',
                     f"[1, 2] no, {GOOD}", f"```python\nx = 1\n```\n{GOOD}", f"```json\n{GOOD}",
                     f"[{GOOD}]", f'{{"configurations": [{GOOD}]}}', f'{{"configuration": {GOOD}}}',
                     f'[{{"configuration": {GOOD}}}]', f'{{"answer": {{"configuration": {GOOD}}}}}',
                     f'{{"why": "memory", "configuration": {GOOD}}}'):
            self.assertEqual(self.one(text).configuration, {**DEFAULT, "mc": 192, "kc": 384}, text)

    def test_broken_json_is_repaired(self) -> None:
        for text in ('{"mc": 192, "kc": 384', "{'mc': 192, 'kc': 384}", '{"mc": 192, "kc": 384,}',
                     "{mc: 192, kc: 384}", '{"mc": 192 "kc": 384}',
                     '{"mc": 192, // rows\n "kc": 384}', '```json\n{"mc": 192,\n "kc": 384\n```'):
            self.assertEqual(self.one(text).configuration, {**DEFAULT, "mc": 192, "kc": 384}, text)

    def test_no_json(self) -> None:
        for text in ("", " ", "no", "mc=192", "{}", "[]", "[1, 2]", '"mc"', "192", "null",
                     "```\n```", "<think>" + GOOD, "{" * 50_000, "[" * 50_000, "[[" * 3000 + GOOD,
                     '{"a":' * 9000):
            with self.assertRaises(answer.NoJson, msg=text[:30]):
                answer.objects_in(text, self.names)

    def test_refusals_are_told_from_nonsense(self) -> None:
        for text, refuses in (("I'm sorry, but I can't help with that.", True), ("", False),
                              ("As an AI model I will not.", True), ("The best is mc=3", False)):
            self.assertEqual(answer.is_refusal(text), refuses)

    def test_numbers_in_other_clothes_are_read_and_noted(self) -> None:
        proposal = self.one('{"mc": "192", "kc": 384.0, "nc": "3_84", "order": false, '
                            '"pack_a": "true", "mr": 7.6, "m_parts": " 4 "}')
        self.assertEqual(proposal.configuration, {
            **DEFAULT, "mc": 192, "kc": 384, "nc": 384, "order": 0, "pack_a": 1, "m_parts": 4})
        self.assertEqual(proposal.note, 'mc: "192" read as 192; nc: "3_84" read as 384; '
                         'order: false read as 0; pack_a: "true" read as 1; mr: 7.6 read as 8; '
                         'm_parts: " 4 " read as 4')

    def test_values_are_clamped_to_the_nearest_legal_one_and_noted(self) -> None:
        proposal = self.one('{"nr": 5000, "mr": -3, "mc": 100}')
        self.assertEqual((proposal.configuration["nr"], proposal.configuration["mr"]), (64, 2))
        self.assertIn("nr: 5000 clamped to 1024; mr: -3 clamped to 1", proposal.note)
        self.assertIn("corrected (nr must be a multiple of 16 up to 64): mr=2, nr=64",
                      proposal.note)
        # Made whole micro-tiles by the variant.
        self.assertEqual(self.one('{"mc": 101}').note, "corrected: mc=104")

    def test_unknown_tunables_and_what_is_no_number_refuse_a_configuration(self) -> None:
        judged = self.read('[{"mc": 128, "tile": 3}, {"mc": "big"}, {"mc": [1]}, {"mc": null}, '
                           '{"mc": NaN}, {"mc": "1e400"}, {"kc": 384}]')
        self.assertEqual(judged[:-1], [
            'unknown tunable "tile"', 'mc: "big" is not a number', "mc: [1] is not a number",
            "mc: null is not a number", "mc: NaN is not a number",
            'mc: "1e400" is not a number'])
        self.assertEqual(judged[-1].configuration["kc"], 384)

    def test_repeats_are_skipped(self) -> None:
        judged = self.read('[{"mc": 96}, {"mc": 192}, {"mc": 192}, {"mc": "192"}, {"kc": 128}]',
                           [text_of(DEFAULT), text_of({**DEFAULT, "kc": 128})])
        self.assertEqual([each == "repeated" for each in judged], [True, False, True, True, True])

    def test_what_is_left_out_is_as_in_the_base(self) -> None:
        base = {**DEFAULT, "kc": 512}
        self.assertEqual(answer.completed({"mc": 64}, base, self.space.tunables),
                         {**base, "mc": 64})
        self.assertEqual(answer.completed({"path": 3, "mc": 64}, base, self.space.tunables),
                         {**base, "mc": 64})
        # Another path gives the rest another meaning: the variant completes it.
        self.assertEqual(answer.completed({"path": 4, "mc": 64}, base, self.space.tunables),
                         {"path": 4, "mc": 64})

    def test_mutated_answers_raise_nothing_but_no_json(self) -> None:
        chance = random.Random(37)
        whole = json.dumps({name: DEFAULT[name] for name in self.names})
        seeds = [GOOD, whole, f"```json\n{whole}\n```", f'{{"configurations": [{whole}, {GOOD}]}}',
                 f"Sure:\n```\n[{GOOD}, {GOOD}]\n```", '{"mc": "192", "kc": true, "x": null}',
                 '{"configuration": {"mc": 1e3}, "reason": "a \\"quoted\\" one"}']
        pieces = ["", *'{}[]"\':,\\\n-\0é𝟙', "```", "```json\n", "1e999", "NaN", "null", "\\u0000",
                  "\\ud800", "\ud800", "//", "/*", "9" * 99, "1" + "0" * 5000, '"mc"', "<think>",
                  "</think>", "{" * 60, '{"configurations":', *seeds]
        usable = 0
        for _ in range(1500):
            text = chance.choice(seeds)
            for _ in range(chance.choice((1, 1, 2, 3, 8))):  # something in the place of something
                at = chance.randrange(len(text) + 1)
                end = at + chance.choice((0, 0, chance.randrange(6), len(text)))
                text = text[:at] + chance.choice(pieces) + text[end:]
            try:
                judged = self.read(text)
            except answer.NoJson:
                continue
            except Exception as error:
                self.fail(f"seed 37: {error!r} of {text!r}")
            for each in judged:
                told = each if isinstance(each, str) else each.note
                self.assertLess(len(told.encode()), 3000)
                if isinstance(each, str):
                    continue
                usable += 1
                self.assertEqual(list(each.configuration), list(DEFAULT))
                legal = self.space.constraints.check([each.configuration])[0]
                self.assertEqual(legal.configuration, each.configuration, text)
        self.assertGreater(usable, 200)


class Requests(unittest.TestCase):
    """What the model is told, and that it fits."""

    def history(self, trials: int = 30) -> History:
        history = History(fakes.space(), trials_left=7, seconds_left=93.0)
        history.trials.append(fakes.evaluate(0, Proposal(DEFAULT), "seed"))
        chance = random.Random(1)
        while len(history.trials) <= trials:
            values = {tunable.name: chance.choice(tunable.values) for tunable in fakes.TUNABLES}
            legal = history.space.constraints.nearest([values])[0].configuration
            assert legal
            if not history.tried(legal):
                history.trials.append(fakes.evaluate(len(history.trials), Proposal(legal), "x"))
        return history

    def briefing(self, context: int, **more: Any) -> prompt.Briefing:
        space = fakes.space()
        source = "int kc = 256;  // depth, fits L1\n" * 300
        return prompt.Briefing(space, fakes.FACTS, lambda length: source[:length],
                               rules_of(space), context, context // 4, **more)

    def text(self, history: History, context: int = 16384, **question: Any) -> str:
        asked = prompt.ask(history, self.briefing(context), prompt.Question(**question))
        return asked.messages[1]["content"]

    def test_everything_is_told(self) -> None:
        text = self.text(self.history(), requests_left=3)
        for part in ("gemm:m=512,n=512,k=512 hwy fp32 threads=2 AVX3", '"flops": 268435456',
                     "L2: 1 MiB", "memory read: 27.3 GB/s", "depth of a block along k",
                     "mc=192,kc=512", "from 1; worth trying: 64, 128, 192, 256, 384, 512",
                     "path=4 needs nr=48",
                     "int kc = 256;", '"kc":256', "The default takes 533.8 µs", "465 µs at best",
                     "87% of the roof", "Best so far: #", "error 3.1 times the bound",
                     "7 trials, 93 s", "3 requests to you", "JSON Schema",
                     "decides what the others mean",
                     "Not for you to choose: threads=2"):
            self.assertIn(part, text)
        self.assertEqual(len(re.findall(r"(?m)^#\d+ ", text)), 12)

    def test_generations_see_the_five_best_and_the_last_five_failures(self) -> None:
        history = self.history()
        text = self.text(history, count=3)
        fast = sorted((trial for trial in history.trials[1:] if trial.correct),
                      key=lambda trial: -trial.speed_up)[:5]
        failed = [trial for trial in history.trials if not trial.correct][-5:]
        shown = [int(number) for number in re.findall(r"(?m)^#(\d+) ", text)]
        self.assertEqual(shown, [trial.number for trial in fast + failed])
        self.assertIn("list of 3 different configurations", text)

    def test_the_history_is_shortened_first_then_the_source(self) -> None:
        history, seen = self.history(), []
        for context in range(16000, 4096, -100):
            briefing = self.briefing(context)
            asked = prompt.ask(history, briefing, prompt.Question())
            self.assertLessEqual(asked.tokens + briefing.answer_tokens, context)
            text = asked.messages[1]["content"]
            shape = (len(re.findall(r"(?m)^#\d+ ", text)), text.count("int kc"))
            if not seen or seen[-1] != shape:
                seen.append(shape)
        self.assertEqual(seen, sorted(seen, reverse=True))
        self.assertGreater(len(seen), 5)
        full = seen[0][1]
        self.assertEqual([entries for entries, source in seen if source == full], [12, 8, 5, 3])

    def test_small_contexts_get_a_short_request_and_tiny_ones_none(self) -> None:
        history = self.history()
        for context in (4096, 2048, 1024, 700):
            briefing = self.briefing(context)
            asked = prompt.ask(history, briefing, prompt.Question())
            self.assertLessEqual(asked.tokens + briefing.answer_tokens, context)
            self.assertNotIn("## ", asked.messages[1]["content"])
            self.assertEqual(asked.schema["properties"]["kc"],
                             {"enum": [64, 128, 192, 256, 384, 512]})
        with self.assertRaises(prompt.TooLong):
            prompt.ask(history, self.briefing(256), prompt.Question())

    def test_a_history_of_nothing_but_the_default(self) -> None:
        self.assertIn("Best so far: #0 1.000x", self.text(self.history(0)))
        self.assertIn("Nothing but the default was tried", self.text(History(fakes.space())))

    def test_the_answer_has_a_schema(self) -> None:
        import jsonschema
        space = fakes.space()
        for count, good, bad in ((1, {"mc": 64}, {"tile": 1}), (3, {"configurations": [{"mc": 64}]},
                                                              {"mc": 64})):
            schema = prompt.schema_of(space, count)
            jsonschema.Draft202012Validator.check_schema(schema)
            jsonschema.validate(good, schema)
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(bad, schema)

    def test_the_constraints_words_are_learnt_once(self) -> None:
        space = fakes.space()
        self.assertEqual(set(rules_of(space)), {
            "mr × nr takes more than 28 registers", "path=4 needs nr=48",
            "path=4 has no pack_b and no k_parts"})
        self.assertLess(space.constraints.asked, 100)  # type: ignore[attr-defined]

    def test_every_kernel_that_is_tuned_has_an_excerpt(self) -> None:
        for kernel, variant, names, part in (
                ("gemm", "hwy", ("mc", "kc", "nc", "path"), "struct Schedule"),
                ("gemm", "opencl", ("bk", "wm", "wn", "mt"), "struct Shape"),
                ("softmax", "hwy", ("stream", "split", "fetch"), "fetch"),
                ("layernorm", "opencl", ("items", "code_path"), "code_path"),
                ("attention", "hwy@base", ("q_block", "kv_block"), "kv_block")):
            text = excerpt.excerpt(kernel, variant, names, 4000)
            self.assertIn(part, text)
            self.assertTrue(500 < len(text) <= 4000, (kernel, len(text)))
        for kernel in ("no_such", "../scripts", ""):
            self.assertEqual(excerpt.excerpt(kernel, "hwy", ("mc",), 4000)[:0], "")
        self.assertEqual(excerpt.sources("../kernels", "hwy"), [])


if __name__ == "__main__":
    skip.main(sys.argv)
