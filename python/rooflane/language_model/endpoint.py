"""One HTTP request to an OpenAI-compatible endpoint; what came of it is data, nothing is raised.

The key is known to this file only. What leaves it, texts of errors among it, is scrubbed.
"""
from __future__ import annotations

import email.utils
import json
import logging
import os
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

URL, MODEL, KEY = "ROOFLANE_LLM_URL", "ROOFLANE_LLM_MODEL", "OPENAI_API_KEY"
NO_KEY = "none"  # in place of a key, where a local server needs none
# An answer's body: a thousand times the size asked for. An error's text: enough to read.
MOST_BYTES = 1 << 20
MOST_ERROR = 500
LOCATED = (401, 403, 404)  # a wrong key, model or address: asking again does not help


@dataclass(frozen=True)
class Request:
    """What is asked. `options` go into the request's body as they are."""
    messages: list[dict[str, str]]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The messages as an Exchange holds them."""
        return json.dumps(self.messages, ensure_ascii=False)


@dataclass
class Reply:
    """What came back. `failure` is a class of failures, `detail` its words, scrubbed."""
    text: str = ""
    failure: str = ""
    detail: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    status: int = 0  # of HTTP
    retry_after: float | None = None  # seconds that the server asks for
    seconds: float | None = None  # what it took, where that is not for the caller to measure

    @property
    def hopeless(self) -> bool:
        """Whether every further request would end the same way."""
        return self.failure in ("no key", "no model") or self.status in LOCATED


class Scrubber:
    """Blanks secrets in texts, and makes them text that any archive takes."""

    def __init__(self, *secrets: str):
        longest_first = sorted({secret for secret in secrets if secret and secret != NO_KEY},
                               key=len, reverse=True)
        spellings = ["".join(map(_spellings, secret)) for secret in longest_first]
        self._pattern = re.compile("|".join(spellings)) if spellings else None

    def __call__(self, text: str) -> str:
        # An archive holds text: neither half a surrogate pair nor a zero.
        text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
        return self._pattern.sub("***", text) if self._pattern else text

    def __repr__(self) -> str:
        return "Scrubber()"


def _spellings(character: str) -> str:
    """A pattern of a character, escaped as in JSON or in a URL or not at all."""
    code = ord(character)
    unicode = "".join(f"[{digit}{digit.upper()}]" for digit in f"{code:04x}")
    url = "".join(f"[{digit}{digit.upper()}]" for digit in f"{code:02x}")
    plain = re.escape(character) if character.isalnum() else r"\\*" + re.escape(character)
    return rf"(?:{plain}|\\+u{unicode}|%{url})"


class Endpoint:
    """Speaks to a server by the openai package."""

    def __init__(self, url: str | None, model: str, key: str):
        key = key.strip()
        parts = urllib.parse.urlsplit(url or "")
        values = [value for _, value in urllib.parse.parse_qsl(parts.query)]
        self.scrub = Scrubber(key, urllib.parse.unquote(parts.password or ""),
                              parts.password or "", *values)
        self.model = self.scrub(model.strip())
        self._url, self._key, self._client = url or None, key, None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Endpoint:
        """As the variables say. Without a URL: the openai package's own."""
        return cls(environment.get(URL), environment.get(MODEL, ""), environment.get(KEY, ""))

    def __repr__(self) -> str:
        return f"Endpoint(model={self.model!r})"

    def send(self, request: Request, timeout: float) -> Reply:
        """One attempt, of `timeout` seconds at most."""
        if not self._key:
            return Reply(failure="no key", detail=f"{KEY} is not set; {NO_KEY}: the server needs "
                                                  "no key")
        if not re.fullmatch(r"[!-~]+", self._key):
            return Reply(failure="no key", detail=f"{KEY} has characters that no header can hold")
        if not self.model:
            return Reply(failure="no model", detail=f"{MODEL} is not set")
        import openai
        try:
            raw = self._opened().chat.completions.with_raw_response.create(
                model=self.model, messages=request.messages, timeout=timeout, **request.options)
            return self._read(raw.http_response.text, raw.status_code)
        except openai.APITimeoutError:
            return Reply(failure="timeout", detail=f"no answer within {timeout:.3g} s")
        except openai.APIStatusError as error:
            return self._refused(error)
        except Exception as error:  # the package's own kinds, and what a strange body leads to
            cause = error.__cause__
            if isinstance(cause, _too_long()):
                return Reply(failure="too long", detail=f"more than {MOST_BYTES} bytes")
            words = f"{type(cause or error).__name__}: {cause or error}"
            return Reply(failure="connection", detail=self.scrub(words)[:MOST_ERROR])

    def close(self) -> None:
        """Ends the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> Any:
        if self._client is None:
            import openai
            # At the level of debugging they log headers of answers, and a server may echo a key.
            for name in ("openai", "httpx2", "httpcore2"):
                logging.getLogger(name).setLevel(logging.WARNING)
            self._client = openai.OpenAI(
                base_url=self._url, api_key=self._key, max_retries=0,
                default_headers={"Accept-Encoding": "identity"},
                http_client=openai.DefaultHttpxClient(transport=_bounded()))
        return self._client

    def _read(self, body: str, status: int) -> Reply:
        try:
            answer = json.loads(body)
            choice = answer["choices"][0]
            message = choice["message"]
            usage = answer.get("usage") or {}
            reply = Reply(tokens_in=int(usage.get("prompt_tokens") or 0),
                          tokens_out=int(usage.get("completion_tokens") or 0), status=status)
            text, refusal = message.get("content") or "", message.get("refusal") or ""
            if isinstance(text, list):  # parts
                text = "".join(part.get("text", "") for part in text)
            reply.text = self.scrub(str(text))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Reply(text=self.scrub(body)[:MOST_ERROR], failure="no JSON", status=status,
                         detail="the server's answer is not one of this API")
        if refusal or choice.get("finish_reason") == "content_filter":
            reply.failure = "refusal"
            reply.detail = self.scrub(str(refusal))[:MOST_ERROR] or "content filter"
            reply.text = reply.text or reply.detail
        elif not reply.text.strip():
            reply.failure = "empty"
            reply.detail = f"finish reason: {self.scrub(str(choice.get('finish_reason')))[:50]}"
        return reply

    def _refused(self, error: Any) -> Reply:
        status = int(error.status_code)
        failure = {429: "http 429"}.get(status, "http 5xx" if status >= 500 else "http 4xx")
        # Who refuses a key may quote a part of it, which no scrubber knows.
        said = "" if status in (401, 403) else self.scrub(str(error))[:MOST_ERROR]
        return Reply(text=said, failure=failure, status=status,
                     detail=f"HTTP {status}" + (f": {said}" if said else ""),
                     retry_after=seconds_of(error.response.headers.get("retry-after")))


def seconds_of(retry_after: str | None, now: float | None = None) -> float | None:
    """What the header asks for: seconds or a date."""
    if not retry_after:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", retry_after.strip()):
        return float(retry_after)
    try:
        date = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
    return max(0.0, date - (time.time() if now is None else now))


def _too_long() -> type[Exception]:
    _bounded_types()
    return _bounded_types.too_long


def _bounded() -> Any:
    return _bounded_types()()


def _bounded_types() -> Any:
    """A transport that bounds how long and how large an answer's body may be: the package's own
    time-out starts again with every byte. Made late, since importing the package takes a second."""
    if hasattr(_bounded_types, "transport"):
        return _bounded_types.transport
    import httpx2

    class TooLong(httpx2.ReadError):
        """The body exceeds MOST_BYTES."""

    class Body(httpx2.SyncByteStream):
        """The bytes of an answer."""

        def __init__(self, inner: Any, deadline: float):
            self._inner, self._deadline = inner, deadline

        def __iter__(self) -> Iterator[bytes]:
            left = MOST_BYTES
            for chunk in self._inner:
                left -= len(chunk)
                if left < 0:
                    raise TooLong("the answer is too long")
                if time.monotonic() > self._deadline:
                    raise httpx2.ReadTimeout("the answer takes too long")
                yield chunk

        def close(self) -> None:
            self._inner.close()

    class Transport(httpx2.HTTPTransport):
        """With bounded bodies, and a connection for each request: between two lie evaluations, and
        a server may have closed it meanwhile."""

        def __init__(self) -> None:
            super().__init__(limits=httpx2.Limits(max_keepalive_connections=0))

        def handle_request(self, request: Any) -> Any:
            limit = (request.extensions.get("timeout") or {}).get("read") or float("inf")
            deadline = time.monotonic() + limit
            response = super().handle_request(request)
            response.stream = Body(response.stream, deadline)
            return response

    _bounded_types.transport, _bounded_types.too_long = Transport, TooLong
    return Transport
