"""The linter `words`: plain English in pages, help texts and messages, the field's terms in names.

Each rule is a pattern and what to write instead. A rule is narrow where the word has a proper
meaning beside ours: `strip` of Python's strings, `stream` of non-temporal stores.
"""
from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rule:
    pattern: str  # of a text, or of one word of a name
    instead: str


TEXT = [
    Rule(r"\banew\b", "again"),
    Rule(r"\bmend(?:s|ed|ing)?\b", "fix"),
    Rule(r"\bstands?\b(?! for\b|-)", "is, is listed, holds"),
    Rule(r"\bwants\b", "needs, requires"),
    Rule(r"\b(?:[Oo]f|[Tt]o) (?:which|what|whom)\b", "a second sentence"),
    Rule(r"\bwhose\b", "a second sentence, or `with`"),
    Rule(r"(?:^|[.!?:|] |- )Of\b", "the subject first"),
    Rule(r"\bLooked for is\b", "It looks for"),
    Rule(r"\bwhere (?:it|they) lies?\b", "in place"),
    Rule(r"\bas (?:\S+ and )?\S+ ha(?:ve|s) it\b", "like ..."),
    Rule(r"\bgo(?:es)? by\b", "uses"),
    Rule(r"\bnobody (?:else's|listed)\b", "only; random"),
    Rule(r"\b[Oo]ther people's\b", "third-party"),
    Rule(r"\bbelieve\b", "trust"),
    Rule(r"\bwithout further ado\b", "automatically"),
    Rule(r"\b(?:are|is) for people\b", "informational only"),
    Rule(r"\b(?:bought|buys?)\b", "gains, gained"),
    Rule(r"\bhonest floor\b", "baseline"),
    Rule(r"\btells?\b", "says, shows"),
    Rule(r"\bturned\b(?! (?:into|off|on)\b)", "transposed"),
    Rule(r"\bturns?\b(?! (?:into|off|on|out)\b)", "slot; transpose"),
    Rule(r"\bstrips?\b", "B micro-panel"),
    Rule(r"(?<!micro-)\bpanels?\b", "A or B micro-panel"),
    Rule(r"\bflip(?:s|ped)?\b", "problem transposed (operands swapped)"),
    Rule(r"\bsweeps?\b", "loop order"),
    Rule(r"\broads?\b", "code path"),
    Rule(r"\bsoften(?:s|ed)?\b", "online-softmax rescale"),
    Rule(r"\bseams?\b", "carried-over vector"),
    Rule(r"\bdirect path\b", "unpacked path"),
]
NAMES = [
    Rule("turn|turns|turned|turning", "slot (of a round); transpose (of a matrix)"),
    Rule("strips?", "b_micro_panel"),
    Rule("seams?", "carry"),
    Rule("soften(?:ed|ing)?", "rescale"),
    Rule("roads?", "code_path"),
    Rule("flip(?:s|ped)?", "transposed"),
    Rule("sweeps?", "order"),
]
# Texts of programs: their messages and help.
TEXTS_IN = ("src/cli/", "src/io/", "scripts/", "python/")
NAMES_IN = ("src/", "bench/", "scripts/", "python/", "tests/")
# Not read yet: an entry goes when its files are clean.
NOT_YET = ("docs/generate.md", "docs/judge.md", "kernels/", "src/backends/", "src/generate/", "src/jail/",
           "src/model/")


def words_of(name: str) -> list[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def markdown(source: str) -> Iterator[tuple[int, str]]:
    """Paragraphs without code, each with its line."""
    def blank(text: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", text[0])

    source = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->|`[^`\n]+`", blank, source)
    for number, line in enumerate(source.splitlines(), 1):
        yield number, line


def c_strings(source: str) -> Iterator[tuple[int, str]]:
    """String literals; neighbours are one."""
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|((?:"(?:\\.|[^"\\\n])*"\s*)+)', source, re.DOTALL):
        if match[1]:
            yield source.count("\n", 0, match.start()) + 1, re.sub(r'"\s*"', "", match[1])


def python_strings(source: str) -> Iterator[tuple[int, str]]:
    """Strings that a program may print: constants, and the docstring of the file."""
    tree = ast.parse(source)
    quiet = {id(node.body[0].value) for node in ast.walk(tree)
             if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
             and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
            yield node.lineno, node.value
