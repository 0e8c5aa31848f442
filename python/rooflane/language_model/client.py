"""Asks a language model within budgets, by a transport (an Endpoint): retries if that can help, and
records every exchange.
"""
from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import Any

from rooflane.language_model.endpoint import Reply, Request
from rooflane.strategies import Options
from rooflane.tuning import Exchange

# Failures that may pass within seconds; a 429 only where the server says when.
PASSING = ("http 5xx", "connection")
ATTEMPTS = 3  # of one question
FIRST_WAIT = 1.0  # seconds, doubled each time
LONGEST_WAIT = 60.0  # a server that asks for more is not waited for

TOKENS = re.compile(r"\d|[A-Za-z]{1,4}|[^\sA-Za-z\d]|\n+")
# How an endpoint is made to answer with JSON, the strictest first; not every server knows them.
FORMATS = ("json_schema", "json_object", "")


class BudgetSpent(Exception):
    """No further request is allowed; the text says by which budget."""


@dataclass
class Spent:
    """What was spent."""
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0

    @property
    def tokens(self) -> int:
        """Both ways."""
        return self.tokens_in + self.tokens_out

    def add(self, exchange: Exchange) -> None:
        """One more request."""
        self.requests += 1
        self.tokens_in += exchange.tokens_in
        self.tokens_out += exchange.tokens_out
        self.seconds += exchange.seconds


class Client:
    """The options' on_exchange is called with each exchange, and by record() again when more is
    known of it: the later replaces the earlier of the same number. Their `earlier`, the exchanges
    of an interrupted run, count. Seconds of the budget are of waiting for answers."""

    def __init__(self, transport: Any, options: Options):
        self.transport, self.options, self.record = transport, options, options.on_exchange
        self.answer_tokens = min(options.answer_tokens or min(options.context // 4, 4096),
                                 options.context // 2)
        self.spent = Spent()
        self.waited = 0.0  # seconds between attempts
        # What the server does not know is left out, or named otherwise, from then on.
        self._formats = list(FORMATS)
        self._limit_names = ["max_tokens", "max_completion_tokens"]
        for exchange in options.earlier:
            self.spent.add(exchange)
        self._next = 1 + max((exchange.number for exchange in options.earlier), default=-1)

    def ask(self, messages: list[dict[str, str]], schema: dict[str, Any] | None = None,
            prompt_tokens: int = 0) -> tuple[Exchange, Reply]:
        """The last exchange of one question. `prompt_tokens`: an estimate of the request's size.
        Raises BudgetSpent."""
        attempts, wait = ATTEMPTS, FIRST_WAIT
        while True:
            exchange, reply = self._attempt(messages, schema, prompt_tokens)
            if not reply.failure:
                return exchange, reply
            if self._do_without(reply):
                continue
            attempts -= 1
            pause = self._pause(reply, wait)
            if attempts == 0 or pause is None:
                return exchange, reply
            time.sleep(pause)
            self.waited += pause
            wait *= 2

    def close(self) -> None:
        """Ends the connections."""
        self.transport.close()

    def _attempt(self, messages: list[dict[str, str]], schema: dict[str, Any] | None,
                 prompt_tokens: int) -> tuple[Exchange, Reply]:
        timeout = self._allowed(prompt_tokens)
        request = Request(messages, self._options(schema, prompt_tokens))
        begin = time.monotonic()
        reply = self.transport.send(request, timeout)
        exchange = Exchange(self._next, self.transport.model, request.text, reply.text,
                            reply.failure, time.monotonic() - begin, reply.tokens_in,
                            reply.tokens_out)
        if not reply.failure and not exchange.tokens_in:  # a server that does not count
            exchange.tokens_in, exchange.tokens_out = prompt_tokens, tokens_of(reply.text)
        self._next += 1
        self.spent.add(exchange)
        self.record(exchange)
        return exchange, reply

    def _allowed(self, prompt_tokens: int) -> float:
        """The time-out of the next attempt. Raises BudgetSpent."""
        budget, spent = self.options, self.spent
        if budget.requests is not None and spent.requests >= budget.requests:
            raise BudgetSpent(f"{budget.requests} requests were made")
        if budget.tokens is not None and spent.tokens + prompt_tokens >= budget.tokens:
            raise BudgetSpent(f"{spent.tokens} of {budget.tokens} tokens were used")
        if budget.seconds is None:
            return budget.answer_timeout
        left = budget.seconds - spent.seconds - self.waited
        if left <= 0:
            raise BudgetSpent(f"{budget.seconds:g} s of waiting are over")
        return min(budget.answer_timeout, left)

    def _options(self, schema: dict[str, Any] | None, prompt_tokens: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._limit_names:
            left = self.answer_tokens
            if self.options.tokens is not None:
                left = min(left, self.options.tokens - self.spent.tokens - prompt_tokens)
            options[self._limit_names[0]] = left
        if schema and self._formats[0] == "json_schema":
            options["response_format"] = {"type": "json_schema", "json_schema": {
                "name": "answer", "schema": schema}}
        elif schema and self._formats[0]:
            options["response_format"] = {"type": "json_object", "schema": schema}
        return options

    def _do_without(self, reply: Reply) -> bool:
        """Whether the server refused an option that is left out, or named otherwise, from now on.
        Ends, since each option is given up once."""
        if not reply.failure.startswith("http") or reply.failure == "http 429":
            return False
        said = reply.text
        if re.search(r"response_format|json_schema|json_object", said) and len(self._formats) > 1:
            self._formats.pop(0)
            return True
        if not re.search(r"(?i)unsupported|unknown|unrecogni[sz]ed|not (supported|permitted)|"
                         r"does not support", said):
            return False
        if self._limit_names and self._limit_names[0] in said:
            self._limit_names.pop(0)
            return True
        return False

    def _pause(self, reply: Reply, wait: float) -> float | None:
        """Seconds until the next attempt; nothing where there should be none."""
        if reply.failure not in PASSING and (reply.failure != "http 429"
                                             or reply.retry_after is None):
            return None
        pause = wait if reply.retry_after is None else reply.retry_after
        left = (math.inf if self.options.seconds is None
                else self.options.seconds - self.spent.seconds - self.waited)
        return pause if pause <= LONGEST_WAIT and pause < left else None


def tokens_of(text: str) -> int:
    """An estimate, rather too many: digits and signs one by one, as many tokenizers take them, and
    words by four letters."""
    pieces = len(TOKENS.findall(text))
    return pieces + sum(not character.isascii() for character in text)
