#!/usr/bin/env python3
"""The language model's client and strategy, against a server that fails in every way and with
recorded answers of a real model. Requests and answers as texts: tune_language_model_text_test.py.
"""
from __future__ import annotations

import tune_environment

if __name__ == "__main__":
    tune_environment.enter()

import dataclasses
import json
import logging
import os
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rooflane.archive.redaction import redact
from rooflane.language_model import client as client_module
from rooflane.language_model import endpoint
from rooflane.language_model.asking import Asker
from rooflane.language_model.client import BudgetSpent, Client, tokens_of
from rooflane.language_model.endpoint import Endpoint, Reply, seconds_of
from rooflane.strategies import Options
from rooflane.strategies.asked import Asked
from rooflane.strategies.local import Local
from rooflane.tuning import Exchange, History, text_of

import language_model_fakes as fakes
import skip
from language_model_fakes import DEFAULT, completion, fails, says

RECORDED = Path(__file__).parent / "data" / "language_model.json"
KEY = "sk-Very/Secret+0123456789"
HELLO = [{"role": "user", "content": "hello"}]
GOOD = '{"mc": 192, "kc": 384}'


class Clients(unittest.TestCase):
    """What the tests of servers share: nothing sleeps, exchanges are kept."""

    def setUp(self) -> None:
        self.exchanges: dict[int, Exchange] = {}
        self.slept: list[float] = []
        self.time = SimpleNamespace(monotonic=time.monotonic, sleep=self.slept.append)
        patch = mock.patch.object(client_module, "time", self.time)
        patch.start()
        self.addCleanup(patch.stop)

    def serve(self, *answers: fakes.Answer) -> fakes.Server:
        """A server for this test."""
        server = fakes.Server(*answers)
        self.addCleanup(server.__exit__)
        return server

    def client(self, server: fakes.Server | None, key: str = "none", **more: Any) -> Client:
        """One that asks it."""
        url = server.url if server else "http://127.0.0.1:9/v1"
        client = Client(Endpoint(url, "fake", key), self.options(**more))
        self.addCleanup(client.close)
        return client

    def options(self, **more: Any) -> Options:
        """Those of the tests."""
        return Options(**{"facts": fakes.FACTS, "source": lambda length: "",
                          "on_exchange": self.keep, **more})

    def keep(self, exchange: Exchange) -> None:
        """As an archive: the later replaces the earlier."""
        self.exchanges[exchange.number] = dataclasses.replace(
            exchange, trials=list(exchange.trials))

    def strategy(self, client: Client, *generations: int) -> Asked:
        """The strategy in our space."""
        space = fakes.space()
        return Asked("llm", Asker(space, client), Local("local", space, 1), *generations)

    def failures(self) -> list[str]:
        """The failures of all exchanges, in order."""
        return [self.exchanges[number].failure for number in sorted(self.exchanges)]


def sources(history: History) -> list[str]:
    """Who proposed what came after the default."""
    return [trial.source for trial in history.trials[1:]]


class ServersThatFail(Clients):
    """One request each, and what the client makes of the failure."""

    def test_what_comes_back_becomes_an_exchange(self) -> None:
        """The server's answers in order; the answer, the failures of all exchanges, the pauses."""
        for answers, text, failures, slept in (
                ([says(GOOD)], GOOD, [""], []),
                ([fails(429, retry_after="7"), says(GOOD)], GOOD, ["http 429", ""], [7.0]),
                ([fails(429), says(GOOD)], None, ["http 429"], []),
                ([fails(429, retry_after="3600"), says(GOOD)], None, ["http 429"], []),
                ([fails(429, retry_after="soon"), says(GOOD)], None, ["http 429"], []),
                ([fails(500)], None, ["http 5xx"] * 3, [1.0, 2.0]),
                *(([fails(status)], None, ["http 4xx"], []) for status in (400, 401, 404, 413)),
                ([fakes.resets, says(GOOD)], GOOD, ["connection", ""], [1.0]),
                ([fakes.resets], None, ["connection"] * 3, [1.0, 2.0]),
                ([fakes.floods], "", ["too long"], []),
                ([says(None, message={"refusal": "I will not"})], None, ["refusal"], []),
                ([says("", finish_reason="content_filter")], None, ["refusal"], []),
                *(([says(nothing)], None, ["empty"], []) for nothing in ("", None, " \n")),
                *(([fakes.raw(body, kind)], None, ["no JSON"], [])
                  for body in ("<html>504</html>", "", "null", "[]", '{"choices": []}',
                               "{" * 100_000, '{"choices": [{"message": 3}]}')
                  for kind in ("text/html", "application/json")),
                ([says("a\0b\ud800c")], "a\ufffdb?c", [""], [])):
            self.setUp()
            exchange, reply = self.client(self.serve(*answers)).ask(HELLO)
            self.assertEqual((self.failures(), self.slept), (failures, slept))
            if text is not None:
                self.assertEqual(exchange.answer, text)
            self.assertEqual(reply.hopeless, reply.status in (401, 403, 404))
            self.assertEqual(json.loads(exchange.request), HELLO)
        self.assertEqual((exchange.tokens_in, exchange.tokens_out), (900, 20))

    def test_retry_after_may_be_a_date(self) -> None:
        for text, seconds in (("Thu, 01 Jan 1970 00:01:40 GMT", 30.0), ("-3", None), ("x", None),
                              ("Thu, 01 Jan 1970 00:00:40 GMT", 0.0), ("9" * 400, None),
                              ("", None), (None, None)):
            self.assertEqual(seconds_of(text, now=70.0), seconds, text)

    def test_a_hanging_server_and_a_dripping_one_run_into_the_timeout(self) -> None:
        for kind in (fakes.hangs, fakes.drips):
            server = self.serve(kind)
            exchange, _ = self.client(server, answer_timeout=2).ask(HELLO)
            self.assertEqual((exchange.failure, len(server.requests)), ("timeout", 1))
            self.assertGreater(exchange.seconds, 1.9)
            self.assertLess(exchange.seconds, fakes.HANGS_S)

    def test_no_key_no_model_and_nobody_there(self) -> None:
        server = self.serve(says(GOOD))
        for key, model, failure in (("", "fake", "no key"), (" \n", "fake", "no key"),
                                    ("a\nb", "fake", "no key"), ("schlüssel", "fake", "no key"),
                                    ("none", "", "no model")):
            reply = Endpoint(server.url, model, key).send(endpoint.Request(HELLO), 5)
            self.assertEqual((reply.failure, reply.hopeless), (failure, True))
        self.assertEqual(server.requests, [])
        self.assertEqual(self.client(None).ask(HELLO)[0].failure, "connection")

    def test_options_that_a_server_does_not_know_are_left_out(self) -> None:
        server = self.serve(
            fails(400, "response_format json_schema is unavailable"),
            fails(500, "response_format.type: Input should be 'text'"),
            fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            says(GOOD))
        client = self.client(server)
        for _ in range(2):
            self.assertEqual(client.ask(HELLO, {"type": "object"})[0].answer, GOOD)
        kinds = [request.get("response_format", {}).get("type") for request in server.requests]
        self.assertEqual(kinds, ["json_schema", "json_object", None, None, None])
        self.assertEqual(sorted(server.requests[-1]),
                         ["max_completion_tokens", "messages", "model"])
        self.assertEqual(self.slept, [])

    def test_the_environment_says_where(self) -> None:
        server = self.serve(says(GOOD))
        given = {"ROOFLANE_LLM_URL": server.url, "ROOFLANE_LLM_MODEL": "m", "OPENAI_API_KEY": "k k"}
        for environment, failure in (({}, "no key"), (given, "no key"),
                                     ({**given, "OPENAI_API_KEY": KEY + "\n"}, "")):
            reply = Endpoint.from_environment(environment).send(endpoint.Request(HELLO), 5)
            self.assertEqual(reply.failure, failure)
        self.assertEqual(server.headers[0]["Authorization"], f"Bearer {KEY}")


class Secrecy(Clients):
    """The key reaches the server and nothing else."""

    def test_the_key_is_in_no_exchange_log_or_exception(self) -> None:
        records: list[str] = []

        class Keeping(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                records.append(record.getMessage() + repr(record.args))

        root, level = logging.getLogger(), logging.getLogger().level
        handler = Keeping()
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        self.addCleanup(root.removeHandler, handler)
        self.addCleanup(root.setLevel, level)
        answers = [fakes.echoes(status) for status in (200, 400, 401, 403, 404, 429, 500)]
        answers += [fakes.resets, fakes.raw(f"<html>{KEY}</html>"), says(KEY), says(None),
                    says(None, message={"refusal": KEY}), says(json.dumps({"mc": KEY})),
                    says(json.dumps({KEY: 1})), says(json.dumps(KEY).replace("/", "\\/"))]
        with mock.patch.dict(os.environ, {"OPENAI_ADMIN_KEY": "admin-secret"}):
            for said in answers:
                server = self.serve(said)
                client = self.client(server, KEY)
                history = fakes.tune(self.strategy(client), 2)
                for text in (repr(client), repr(client.transport), repr(history), *records,
                             json.dumps([dataclasses.asdict(each)
                                         for each in self.exchanges.values()])):
                    self.assertNotIn("Very", text)
                self.assertEqual(server.headers[0]["Authorization"], f"Bearer {KEY}")
                self.assertNotIn("admin-secret", json.dumps(server.headers))
        self.assertIn("[redacted]", json.dumps([each.answer for each in self.exchanges.values()]))
        logging.getLogger("rooflane").debug("what is logged is seen here")
        self.assertEqual(len(records), 1)

    def test_parts_and_passwords(self) -> None:
        server = self.serve(fails(401, f"Incorrect API key provided: {KEY[:8]}*****{KEY[-4:]}"))
        exchange, reply = self.client(server, KEY).ask(HELLO)
        self.assertEqual((exchange.answer, reply.detail), ("", "HTTP 401"))
        transport = Endpoint("http://me:pass%2Fword@127.0.0.1:9/v1?token=t0ken", "m", "none")
        reply = transport.send(endpoint.Request(HELLO), 1)
        self.assertEqual(reply.failure, "connection")
        for secret in ("pass", "t0ken"):
            self.assertNotIn(secret, reply.detail + repr(transport))

    def test_spellings(self) -> None:
        for text in ('a/b"c', "a%2Fb%22c", 'a/b\\"c', 'a\\/b\\\\\\"c', "\\u0061\\u002Fb\\u0022c",
                     "a/b&quot;c", "a&#x2f;b&#34;c"):
            self.assertEqual(redact(text + " none", ['a/b"c']), "[redacted] none")
        self.assertEqual(redact('a/b c"', ['a/b"c']), 'a/b c"')


class Budgets(Clients):
    """What may be spent."""

    def test_requests_retries_among_them(self) -> None:
        client = self.client(self.serve(fails(500)), requests=2)
        with self.assertRaises(BudgetSpent):
            client.ask(HELLO)
        self.assertEqual(len(self.exchanges), 2)

    def test_tokens_are_counted_before_they_are_spent(self) -> None:
        server = self.serve(says(GOOD))
        client = self.client(server, tokens=2000, answer_tokens=5000)
        for left in (1100, 180):
            client.ask(HELLO, prompt_tokens=900)
            self.assertEqual(server.requests[-1]["max_tokens"], left)
        with self.assertRaises(BudgetSpent):
            client.ask(HELLO, prompt_tokens=900)
        self.assertEqual((client.spent.requests, client.spent.tokens), (2, 1840))

    def test_tokens_are_estimated_where_the_server_does_not_count(self) -> None:
        uncounted = completion(GOOD)
        del uncounted["usage"]
        server = self.serve(lambda handler: handler.reply(200, uncounted))
        exchange, _ = self.client(server).ask(HELLO, prompt_tokens=77)
        self.assertEqual((exchange.tokens_in, exchange.tokens_out), (77, tokens_of(GOOD)))

    def test_seconds_and_pauses_count_and_shorten_the_timeout(self) -> None:
        server = self.serve(fails(429, retry_after="30"), says(GOOD))
        client = self.client(server, seconds=100, answer_timeout=5)
        self.time.monotonic = fakes.ticking(25)
        client.ask(HELLO)  # twice 25 s, and 30 s of waiting
        self.assertEqual((client.spent.seconds, client.waited), (50, 30))
        self.assertEqual(client._allowed(0), 5)
        client.options.answer_timeout = 60
        self.assertEqual(client._allowed(0), 20)
        client.ask(HELLO)
        with self.assertRaises(BudgetSpent):
            client.ask(HELLO)

    def test_an_interrupted_run_has_spent_what_it_spent(self) -> None:
        earlier = [Exchange(3, "fake", "[]", "", seconds=5, tokens_in=10, tokens_out=2)]
        client = self.client(self.serve(says(GOOD)), requests=2, earlier=tuple(earlier))
        self.assertEqual(client.ask(HELLO)[0].number, 4)
        with self.assertRaises(BudgetSpent):
            client.ask(HELLO)

    def test_a_run_whose_budget_is_spent_goes_on_with_the_stand_in(self) -> None:
        client = self.client(self.serve(says('{"mc": 128}'), says('{"mc": 256}')),
                             requests=2)
        self.assertEqual(sources(fakes.tune(self.strategy(client), 5)),
                         ["llm", "llm", "local", "local", "local"])


class Recorded:
    """A transport that gives recorded answers."""
    model = "SmolLM2-135M-Instruct"

    def __init__(self, answers: list[str]):
        self.answers = answers

    def send(self, request: endpoint.Request, timeout: float) -> Reply:
        """The next."""
        return Reply(self.answers.pop(0)) if self.answers else Reply(failure="no key")


class Strategies(Clients):
    """Whole runs."""

    def test_recorded_answers_of_a_small_model(self) -> None:
        """What SmolLM2-135M-Instruct answered leads to the same trials today, whatever the wording
        of the request has become."""
        for run in json.loads(RECORDED.read_text(encoding="utf-8")):
            with self.subTest(run["name"]):
                options = self.options(context=run["context"], most_failures=100)
                client = Client(Recorded(run["answers"]), options)
                strategy = self.strategy(client, *run["generations"])
                history = fakes.tune(strategy, run["trials"])
                self.assertEqual([f"{trial.source}: {text_of(trial.configuration)}"
                                  for trial in history.trials], run["found"])

    def test_one_by_one(self) -> None:
        server = self.serve(says('{"mc": 192}'), says('{"kc": 384}'), says('{"order": 0}'))
        strategy = self.strategy(self.client(server))
        history = fakes.tune(strategy, 3)
        self.assertEqual(sources(history), ["llm"] * 3)
        # Each builds on the best so far.
        self.assertEqual(history.trials[3].configuration,
                         {**DEFAULT, "mc": 192, "kc": 384, "order": 0})
        self.assertEqual([self.exchanges[number].trials for number in range(3)], [[1], [2], [3]])

    def test_generations(self) -> None:
        lists = [[{"mc": 64}, {"mc": 128}, {"mc": 192}, {"mc": 256}],  # one more than asked for
                 [{"mc": 64}, {"kc": 384}],  # one is known
                 [{"nc": 384, "tile": 1}, {"nc": 48}, {"nc": 96}]]  # one is refused
        server = self.serve(*(says(json.dumps({"configurations": each})) for each in lists))
        strategy = self.strategy(self.client(server), 3)
        self.assertEqual(sources(fakes.tune(strategy, 9)), ["llm"] * 6 + ["local"] * 3)
        self.assertEqual([self.exchanges[number].trials for number in sorted(self.exchanges)],
                         [[1, 2, 3], [4], [5, 6]])
        self.assertEqual(len(server.requests), 3)

    def test_after_failures_in_a_row_the_stand_in_takes_the_trials(self) -> None:
        for failure, said in (
                ("timeout", fakes.hangs), ("http 429", fails(429)), ("http 5xx", fails(500)),
                ("http 4xx", fails(400)), ("refusal", says("I'm sorry, I can't do that.")),
                ("empty", says("")), ("no JSON", says("mc should be larger")),
                ("unusable", says('{"tile": 3}')), ("unusable", says(json.dumps(DEFAULT))),
                ("too long", fakes.floods), ("connection", fakes.resets)):
            with self.subTest(failure):
                self.setUp()
                strategy = self.strategy(self.client(
                    self.serve(said), answer_timeout=1 if said is fakes.hangs else 60,
                    most_failures=2))
                self.assertEqual(sources(fakes.tune(strategy, 3)), ["local"] * 3)
                self.assertEqual(set(self.failures()), {failure})
                self.assertEqual(strategy.asker.stopped,
                                 f"2 failures in a row, the last: {failure}")
                self.assertEqual(len(strategy.stand_in.seen), 4)

    def test_what_no_further_request_can_correct_ends_the_asking_at_once(self) -> None:
        for said, key, failure in ((fails(401), "wrong", "http 4xx"), (fails(404), "k", "http 4xx"),
                                   (says(GOOD), "", "no key")):
            server = self.serve(said)
            strategy = self.strategy(self.client(server, key))
            fakes.tune(strategy, 6)
            self.assertEqual(strategy.asker.stopped, failure)
            self.assertEqual(len(server.requests), 1 if key else 0)

    def test_a_context_that_was_taken_too_large_is_shortened(self) -> None:
        said = fails(400, "This model's maximum context length is 2048 tokens")
        server = self.serve(said, said, says('{"mc": 192}'))
        strategy = self.strategy(self.client(
            server, context=6000, source=lambda length: "kc = 256;\n" * (length // 10)))
        fakes.tune(strategy, 3)
        lengths = [len(request["messages"][1]["content"]) for request in server.requests]
        self.assertLess(lengths[2], lengths[0])
        hopeless = self.strategy(self.client(server, context=200))
        fakes.tune(hopeless, 6)
        self.assertEqual(hopeless.asker.stopped, "5 failures in a row, the last: context")

    def test_a_run_that_was_interrupted_goes_on(self) -> None:
        server = self.serve(says('{"mc": 192}'), says('{"mc": 192}'), says('{"kc": 384}'))
        history = fakes.tune(self.strategy(self.client(server)), 1)
        earlier = list(self.exchanges.values())
        fakes.tune(self.strategy(self.client(server, earlier=tuple(earlier))), 2, history)
        self.assertEqual(sources(history), ["llm", "local", "llm"])
        self.assertEqual(sorted(self.exchanges), [0, 1, 2])

    def test_wrong_arguments(self) -> None:
        client = self.client(None)
        for generations in ((-1,), (5, 0)):
            with self.assertRaises(ValueError):
                self.strategy(client, *generations)


if __name__ == "__main__":
    skip.main(sys.argv)
