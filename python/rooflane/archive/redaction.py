"""Keeps API keys out of the archive, of reports and of errors: every text passes `redact` on its
way there."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable

REDACTED = "[redacted]"
# The forms of providers' keys: OpenAI and those that copy it, Groq, Hugging Face, xAI, Google,
# GitHub, GitLab; and the value of any authorisation header.
_SHAPES = re.compile(
    r"\b(?:sk-|sk_|gsk_|hf_|xai-|AIza|gh[pousr]_|glpat-)[A-Za-z0-9_\-]{16,}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/=\-]{8,}")
_WHOLE = 8  # a shorter value is replaced only as a whole word: local servers take any word


def _spelled(character: str) -> str:
    """A pattern of a character, escaped as in JSON, in a URL or on a page, or not at all."""
    code = ord(character)
    unicode, url = ("".join(f"[{digit}{digit.upper()}]" for digit in f"{code:0{width}x}")
                    for width in (4, 2))
    plain = re.escape(character) if character.isalnum() else r"\\*" + re.escape(character)
    page = rf"&#x?0*(?:{code}|{code:x});" + {"&": "|&amp;", "<": "|&lt;", ">": "|&gt;",
                                             '"': "|&quot;"}.get(character, "")
    return rf"(?:{page}|{plain}|\\+u{unicode}|%{url})"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets in whatever spelling, without the values of OPENAI_API_KEY and
    other variables that end in _API_KEY, and without what looks like a key."""
    found = {value for name, value in os.environ.items()
             if name.endswith("_API_KEY") and len(value) > 2} | set(secrets)
    for value in sorted(found, key=len, reverse=True):  # one may hold another
        pattern = "".join(map(_spelled, value))
        if len(value) < _WHOLE:
            pattern = rf"(?<!\w){pattern}(?!\w)"
        text = re.sub(pattern, REDACTED, text)
    return _SHAPES.sub(REDACTED, text)
