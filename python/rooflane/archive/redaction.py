"""Keeps API keys out of the archive and of reports: every text passes `redact` on its way there."""
from __future__ import annotations

import html
import json
import os
import re

REDACTED = "[redacted]"
# The forms of providers' keys: OpenAI and those that copy it, Groq, Hugging Face, xAI, Google,
# GitHub, GitLab; and the value of any authorisation header.
_SHAPES = re.compile(
    r"\b(?:sk-|sk_|gsk_|hf_|xai-|AIza|gh[pousr]_|glpat-)[A-Za-z0-9_\-]{16,}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/=\-]{8,}")
_WHOLE = 8  # a shorter value is replaced only as a whole word: local servers take any word


def _values() -> list[str]:
    """The values of variables that hold keys, the longest first, since one may hold another."""
    found = {value for name, value in os.environ.items()
             if name.endswith("_API_KEY") and len(value) > 2}
    # In the forms that JSON and a page use.
    found |= {form for value in found for form in (json.dumps(value)[1:-1], html.escape(value))}
    return sorted(found, key=len, reverse=True)


def redact(text: str) -> str:
    """The text without the value of OPENAI_API_KEY (and of other variables that end in _API_KEY),
    and without what looks like a key."""
    for value in _values():
        if len(value) >= _WHOLE:
            text = text.replace(value, REDACTED)
        elif value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", REDACTED, text)
    return _SHAPES.sub(REDACTED, text)
