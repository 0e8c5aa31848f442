"""The chat template of a GGUF file: Jinja, as transformers runs it, in Jinja's sandbox."""
from __future__ import annotations

from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rooflane.generate.vocabulary import Unsupported, Vocabulary

KEY = "tokenizer.chat_template"


def _raise(message: str) -> None:
    raise TemplateError(message)


def chat_text(metadata: dict[str, Any], vocabulary: Vocabulary, prompt: str) -> str:
    """The prompt as a user's only message, up to where the answer begins. Raises Unsupported."""
    source = metadata.get(KEY)
    if not isinstance(source, str):
        raise Unsupported(f"--chat: the file has no {KEY}")
    # Blocks leave neither the line's end behind them nor the blanks before them: templates are
    # written for that.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source).render(
            messages=[{"role": "user", "content": prompt}], add_generation_prompt=True,
            bos_token=vocabulary.text_of(vocabulary.begin),
            eos_token=vocabulary.text_of(vocabulary.end))
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError,
            RecursionError) as error:
        raise Unsupported(f"{KEY}: " + " ".join(str(error).split())) from error
