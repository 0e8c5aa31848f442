"""One HTTP request to an OpenAI-compatible endpoint; what came of it is data, nothing is raised.

The key is known to this file only. What leaves it, texts of errors among it, is redacted.
"""
from __future__ import annotations

import email.utils
import json
import logging
import os
import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflane.archive.redaction import redact

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
    """What came back. `failure` is a class of failures, `detail` its words, redacted."""
    text: str = ""
    failure: str = ""
    detail: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    status: int = 0  # of HTTP
    retry_after: float | None = None  # seconds that the server asks for

    @property
    def hopeless(self) -> bool:
        """Whether every further request would end the same way."""
        return self.failure in ("no key", "no model") or self.status in LOCATED


class Endpoint:
    """Speaks to a server by the openai package."""

    def __init__(self, url: str | None, model: str, key: str):
        key = key.strip()
        parts = urllib.parse.urlsplit(url or "")
        values = [value for _, value in urllib.parse.parse_qsl(parts.query)]
        password = parts.password or ""
        self._secrets = [secret for secret in (key, password, urllib.parse.unquote(password),
                                               *values) if secret and secret != NO_KEY]
        self.model = self.redacted(model.strip())
        self._url, self._key, self._client = url or None, key, None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Endpoint:
        """As the variables say. Without a URL: the openai package's own."""
        return cls(environment.get(URL), environment.get(MODEL, ""), environment.get(KEY, ""))

    def __repr__(self) -> str:
        return f"Endpoint(model={self.model!r})"

    def redacted(self, text: str) -> str:
        """Without secrets, and as any archive takes it: neither half a surrogate pair nor a
        zero."""
        return redact(text.encode("utf-8", "replace").decode().replace("\0", "\ufffd"),
                      self._secrets)

    def send(self, request: Request, timeout: float) -> Reply:
        """One attempt, of `timeout` seconds at most: the package's own time-out starts again with
        every byte."""
        if not re.fullmatch(r"[!-~]+", self._key):
            return Reply(failure="no key", detail=f"{KEY} has characters that no header can hold"
                         if self._key else f"{KEY} is not set; {NO_KEY}: the server needs no key")
        if not self.model:
            return Reply(failure="no model", detail=f"{MODEL} is not set")
        import openai
        deadline, body = time.monotonic() + timeout, b""
        try:
            with self._opened().chat.completions.with_streaming_response.create(
                    model=self.model, messages=request.messages, timeout=timeout,
                    **request.options) as response:
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        return Reply(failure="too long", detail=f"more than {MOST_BYTES} bytes")
                    if time.monotonic() > deadline:
                        return _late(timeout)
            return self._read(body.decode("utf-8", "replace"), response.status_code)
        except openai.APIStatusError as error:
            return self._refused(error)
        except Exception as error:  # the packages' own kinds, and what a strange body leads to
            cause = error.__cause__ or error
            if any("Timeout" in type(one).__name__ for one in (error, cause)):
                return _late(timeout)
            words = f"{type(cause).__name__}: {cause}"
            return Reply(failure="connection", detail=self.redacted(words)[:MOST_ERROR])

    def close(self) -> None:
        """Ends the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> Any:
        if self._client is None:
            import httpx2
            import openai
            # At the level of debugging they log headers of answers, and a server may echo a key.
            for name in ("openai", "httpx2", "httpcore2"):
                logging.getLogger(name).setLevel(logging.WARNING)
            # A connection for each request: between two lie evaluations, and a server may have
            # closed it meanwhile.
            self._client = openai.OpenAI(
                base_url=self._url, api_key=self._key, max_retries=0,
                default_headers={"Accept-Encoding": "identity"},
                http_client=openai.DefaultHttpxClient(
                    limits=httpx2.Limits(max_keepalive_connections=0)))
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
            reply.text = self.redacted(str(text))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Reply(text=self.redacted(body)[:MOST_ERROR], failure="no JSON", status=status,
                         detail="the server's answer is not one of this API")
        if refusal or choice.get("finish_reason") == "content_filter":
            reply.failure = "refusal"
            reply.detail = self.redacted(str(refusal))[:MOST_ERROR] or "content filter"
            reply.text = reply.text or reply.detail
        elif not reply.text.strip():
            reply.failure = "empty"
            reply.detail = f"finish reason: {self.redacted(str(choice.get('finish_reason')))[:50]}"
        return reply

    def _refused(self, error: Any) -> Reply:
        status = int(error.status_code)
        failure = {429: "http 429"}.get(status, "http 5xx" if status >= 500 else "http 4xx")
        # Who refuses a key may quote a part of it, which nobody can find again.
        said = "" if status in (401, 403) else self.redacted(str(error))[:MOST_ERROR]
        return Reply(text=said, failure=failure, status=status,
                     detail=f"HTTP {status}" + (f": {said}" if said else ""),
                     retry_after=seconds_of(error.response.headers.get("retry-after")))


def _late(timeout: float) -> Reply:
    return Reply(failure="timeout", detail=f"no answer within {timeout:.3g} s")


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
