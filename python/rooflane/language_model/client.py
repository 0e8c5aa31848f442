"""Asks a language model within budgets: retries if that can help, records every exchange, and
answers from a record.

A Client uses a transport: an Endpoint, or a Replay of an Endpoint's earlier answers, with the same
retries.
"""
from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rooflane.language_model.endpoint import Reply, Request
from rooflane.tuning import Exchange

Record = Callable[[Exchange], None]

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


class ReplayDiffers(Exception):
    """A request is not the recorded one, or there is no further record."""


@dataclass(frozen=True)
class Budget:
    """What may be spent; None is without limit. Seconds are of waiting for answers."""
    requests: int | None = None
    tokens: int | None = None
    seconds: float | None = None


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
    """`on_exchange` is called with each exchange, and by record() again when more is known of it:
    the later replaces the earlier of the same number. `earlier`: the exchanges of an interrupted
    run, which count. `structured`: one of FORMATS to begin with; what the server does not know is
    left out from then on."""

    def __init__(self, transport: Any, *, budget: Budget = Budget(),  # noqa: B008
                 timeout: float = 60.0, answer_tokens: int = 1024,
                 temperature: float | None = None, structured: str = FORMATS[0],
                 on_exchange: Record = lambda exchange: None, earlier: Sequence[Exchange] = (),
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep):
        self.transport, self.budget, self.timeout = transport, budget, timeout
        self.answer_tokens, self.temperature = answer_tokens, temperature
        self.spent = Spent()
        self.waited = 0.0  # seconds between attempts
        self._on_exchange, self._clock, self._sleep = on_exchange, clock, sleep
        self._formats = list(FORMATS[FORMATS.index(structured):])
        self._limit_names = ["max_tokens", "max_completion_tokens"]
        for exchange in earlier:
            self.spent.add(exchange)
        self._next = 1 + max((exchange.number for exchange in earlier), default=-1)

    @property
    def model(self) -> str:
        """Its name."""
        return self.transport.model

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
            self._sleep(pause)
            self.waited += pause
            wait *= 2

    def record(self, exchange: Exchange) -> None:
        """Records an exchange again with later facts."""
        self._on_exchange(exchange)

    def close(self) -> None:
        """Ends the connections."""
        self.transport.close()

    def _attempt(self, messages: list[dict[str, str]], schema: dict[str, Any] | None,
                 prompt_tokens: int) -> tuple[Exchange, Reply]:
        timeout = self._allowed(prompt_tokens)
        request = Request(messages, self._options(schema, prompt_tokens))
        begin = self._clock()
        reply = self.transport.send(request, timeout)
        seconds = self._clock() - begin if reply.seconds is None else reply.seconds
        exchange = Exchange(self._next, self.model, request.text, reply.text, reply.failure,
                            seconds, reply.tokens_in, reply.tokens_out)
        if not reply.failure and not exchange.tokens_in:  # a server that does not count
            exchange.tokens_in, exchange.tokens_out = prompt_tokens, tokens_of(reply.text)
        self._next += 1
        self.spent.add(exchange)
        self._on_exchange(exchange)
        return exchange, reply

    def _allowed(self, prompt_tokens: int) -> float:
        """The time-out of the next attempt. Raises BudgetSpent."""
        budget, spent = self.budget, self.spent
        if budget.requests is not None and spent.requests >= budget.requests:
            raise BudgetSpent(f"{budget.requests} requests were made")
        if budget.tokens is not None and spent.tokens + prompt_tokens >= budget.tokens:
            raise BudgetSpent(f"{spent.tokens} of {budget.tokens} tokens were used")
        if budget.seconds is None:
            return self.timeout
        left = budget.seconds - spent.seconds - self.waited
        if left <= 0:
            raise BudgetSpent(f"{budget.seconds:g} s of waiting are over")
        return min(self.timeout, left)

    def _options(self, schema: dict[str, Any] | None, prompt_tokens: int) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._limit_names:
            left = self.answer_tokens
            if self.budget.tokens is not None:
                left = min(left, self.budget.tokens - self.spent.tokens - prompt_tokens)
            options[self._limit_names[0]] = left
        if self.temperature is not None:
            options["temperature"] = self.temperature
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
        if "temperature" in said and self.temperature is not None:
            self.temperature = None
            return True
        return False

    def _pause(self, reply: Reply, wait: float) -> float | None:
        """Seconds until the next attempt; nothing where there should be none."""
        if reply.failure not in PASSING and (reply.failure != "http 429"
                                             or reply.retry_after is None):
            return None
        pause = wait if reply.retry_after is None else reply.retry_after
        left = (math.inf if self.budget.seconds is None
                else self.budget.seconds - self.spent.seconds - self.waited)
        return pause if pause <= LONGEST_WAIT and pause < left else None


class Replay:
    """A transport that answers from recorded exchanges by their order. A request that is not the
    recorded one is complained of: an exception, or an entry in `differences` where not `strict`.
    A record may hold "sha256:…" in the place of its request."""

    def __init__(self, exchanges: Iterable[Exchange], strict: bool = True):
        self._left = sorted(exchanges, key=lambda exchange: exchange.number)
        self.model = self._left[0].model if self._left else ""
        self.strict, self.differences = strict, list[str]()

    def send(self, request: Request, timeout: float) -> Reply:
        """What was answered then, as long as it took. Raises ReplayDiffers."""
        del timeout
        if not self._left:
            if self.strict:
                raise ReplayDiffers("there is no further recorded exchange")
            return Reply(failure="no key", detail="there is no further recorded exchange")
        exchange = self._left.pop(0)
        recorded = self._hash(exchange)
        if recorded != hash_of(request.text):
            words = f"request {exchange.number} is not the recorded one"
            if self.strict:
                raise ReplayDiffers(words)
            self.differences.append(words)
        # What was asked again then is asked again now, and at once.
        again = bool(self._left) and self._hash(self._left[0]) == recorded
        return Reply(exchange.answer, exchange.failure, "recorded", exchange.tokens_in,
                     exchange.tokens_out, seconds=exchange.seconds,
                     retry_after=0 if again else float("inf"))

    @staticmethod
    def _hash(exchange: Exchange) -> str:
        recorded = exchange.request
        return recorded if recorded.startswith("sha256:") else hash_of(recorded)

    def close(self) -> None:
        """Nothing is open."""


def hash_of(request: str) -> str:
    """As a record may hold it in the place of the request."""
    return "sha256:" + hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()


def tokens_of(text: str) -> int:
    """An estimate, rather too many: digits and signs one by one, as many tokenizers take them, and
    words by four letters."""
    pieces = len(TOKENS.findall(text))
    return pieces + sum(not character.isascii() for character in text)
