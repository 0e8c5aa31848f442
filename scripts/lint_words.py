"""The linter `words`: plain English in pages, help texts, messages and comments, the field's terms
in names.

Each rule is a pattern and what to write instead. A rule is narrow if the word has a proper meaning
too: `strip` of Python's strings, a block that `stands for` another, `turns into`.
"""
from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rule:
    pattern: str  # found in a text, or matching one word of a name
    instead: str


TEXTS = [
    Rule(r"\banew\b", "again"),
    Rule(r"\bmend(?:s|ed|ing)?\b", "fix"),
    Rule(r"\bstands?\b(?! for\b|-)", "is, is listed, holds"),
    Rule(r"\bwants\b", "needs, requires"),
    Rule(r"\bof (?:which|what|whom)\b|\bto whom\b", "a second sentence"),
    Rule(r"\bwhose\b", "a second sentence, or `with`"),
    Rule(r"(?:^|[.!?:|] |- )(?-i:Of)\b", "the subject first"),
    Rule(r"\bLooked for is\b", "It looks for"),
    Rule(r"\bwhere (?:it|they) lies?\b", "in place"),
    Rule(r"\bas (?:\S+ and )?\S+ ha(?:ve|s) it\b", "like ..., as in ..."),
    Rule(r"\bgo(?:es)? by\b", "uses"),
    Rule(r"\bwent about\b|\bgo(?:es)? round\b", "cycles around"),
    Rule(r"\bnobody (?:else's|listed)\b", "only; random"),
    Rule(r"\bother people's\b", "third-party"),
    Rule(r"\bbelieved?\b", "trust"),
    Rule(r"\bwithout further ado\b", "automatically"),
    Rule(r"\b(?:are|is) for people\b", "informational only"),
    Rule(r"\b(?:bought|buys?)\b", "gains, gained"),
    Rule(r"\bhonest floor\b", "baseline"),
    Rule(r"\btells?\b(?! you\b|(?: \w+){0,3} apart\b)", "says, shows"),
    Rule(r"(?<!here )\bis no (?!longer\b|more\b)", "is not a"),
    Rule(r"\bfor ever\b", "forever"),
    Rule(r"\bturned\b(?! (?:into|off|on)\b)", "transposed"),
    Rule(r"\bturns?\b(?! (?:\w+ ){0,4}(?:into|off|on|out)\b)", "slot (of a round); transpose"),
    Rule(r"(?<!-)\bstrips?\b", "B micro-panel"),  # not auditwheel's --strip
    Rule(r"(?<!micro-)\bpanels?\b", "A or B micro-panel"),
    Rule(r"\bflip(?:s|ped)?\b", "problem transposed (operands swapped)"),
    Rule(r"\bsweeps?\b", "loop order"),
    Rule(r"\broads?\b", "code path"),
    Rule(r"\bsoften(?:s|ed)?\b", "online-softmax rescale"),
    Rule(r"\bseams?\b", "carried-over vector"),
    Rule(r"\bdirect path\b", "unpacked path"),
]
NAMES = [
    Rule("turns?|turned|turning", "slot (of a round), transpose (of a matrix)"),
    Rule("strips?", "b_micro_panel"),
    Rule("seams?", "carry"),
    Rule("soften(?:ed|ing)?", "rescale"),
    Rule("roads?", "code_path"),
    Rule("flip(?:s|ped)?", "transposed"),
    Rule("sweeps?", "order"),
]
# Texts: all pages, and in these folders the strings of programs and whole shell scripts.
TEXTS_IN = ("src/cli/", "src/io/", "scripts/", "python/")
NAMES_IN = ("bench/", "kernels/", "python/", "scripts/", "src/", "tests/")
# Prefixes of files that are not read yet; an entry goes when its files are clean.
NO_NAMES_YET = ("kernels/", "src/backends/", "src/generate/", "src/jail/", "src/model/",
                # They use names of those folders.
                "src/cli/model.cpp", "src/cli/model_resume.cpp", "src/core/variant.hpp",
                "src/measure/calibrate.cpp", "src/measure/local_worker.cpp",
                "tests/model_chain_test.cpp", "tests/opencl_limits_test.cpp")
NO_COMMENTS_YET = (
    "kernels/gemm/avx512.cpp", "kernels/gemm/hwy_few",
    "kernels/gemm/hwy_floats.cpp", "kernels/gemm/hwy_job.hpp", "kernels/gemm/hwy_loops",
    "kernels/gemm/hwy_schedule", "kernels/gemm/scalar.cpp",
    "kernels/gemm/unit", "python/rooflane/tuning.py", "src/jail/jail",
    "src/jail/runner_process", "src/judge/judge.cpp", "tests/judge_test.cpp")
C_FAMILY = (".cpp", ".hpp", ".h", ".c")
COMMENTS_OF_C = (*C_FAMILY, ".cl")
SCRIPTS = (".py", "meson.build")

Text = tuple[int, str]  # its first line, and itself


def markdown(source: str) -> Iterator[Text]:
    """The lines of a page without its code."""
    def blank(code: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", code[0])

    source = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->|`[^`\n]+`", blank, source)
    return enumerate(source.splitlines(), 1)


def without_code(comment: str) -> str:
    return re.sub(r"`[^`]+`", lambda code: "\n" * code[0].count("\n"), comment)


def comments(source: str, literals: str, marks: str) -> Iterator[Text]:
    """Each block of comments is one text, without its marks."""
    for found in re.finditer(rf"{literals}|(?P<block>{marks})", source, re.DOTALL):
        if block := found["block"]:
            text = re.sub(r"(?m)^[ \t]*(?://+|#+|/?\*+/?)[ \t]*", "", block)
            yield source.count("\n", 0, found.start()) + 1, without_code(text)


def c_comments(source: str) -> Iterator[Text]:
    """Not the name of an argument, /*name=*/."""
    literals = (r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
                r"|(?<!\w)'(?:\\.|[^'\\\n])+'|/\*\w+=\*/")
    return comments(source, literals, r"//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/")


def script_comments(source: str) -> Iterator[Text]:
    """Comments of Python or Meson."""
    literals = r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"'
    literals += "|" + literals.replace('"', "'")
    return comments(source, literals, r"#[^\n]*(?:\n[ \t]*#[^\n]*)*")


def c_strings(source: str) -> Iterator[Text]:
    """String literals; neighbours are one."""
    pattern = r'//[^\n]*|/\*.*?\*/|((?:"(?:\\.|[^"\\\n])*"\s*)+)'
    for found in re.finditer(pattern, source, re.DOTALL):
        if found[1] and " " in found[1].strip():  # else a key, not a text
            yield source.count("\n", 0, found.start()) + 1, re.sub(r'"\s*"', "", found[1])


def python_texts(source: str, of_docstrings: bool) -> Iterator[Text]:
    """The docstrings of functions and classes, which are comments; or what a program may print: the
    other constants, and the docstring of the file."""
    tree = ast.parse(source)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                  and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if (isinstance(node, ast.Constant) and isinstance(node.value, str)
                and " " in node.value and (id(node) in docstrings) == of_docstrings):
            text = re.sub(r"\n[ \t]+", "\n", node.value)
            yield node.lineno, without_code(text) if of_docstrings else text


def python_strings(source: str) -> Iterator[Text]:
    return python_texts(source, of_docstrings=False)


def python_docstrings(source: str) -> Iterator[Text]:
    return python_texts(source, of_docstrings=True)


def python_names(source: str) -> Iterator[Text]:
    """Names, but not those of str's methods."""
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        method = before == "." and token.string in ("strip", "lstrip", "rstrip")
        if token.type == tokenize.NAME and not method:
            yield token.start[0], token.string
        before = token.string


def words_of(name: str) -> list[str]:
    """Those of a name in snake_case or CamelCase, in lower case; none of a name that starts with
    two underscores, which is the compiler's."""
    return [] if name.startswith("__") else [
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def texts_of(file: str, source: str) -> Iterator[Text]:
    if file.endswith(".md"):
        yield from markdown(source)
    if Path(file).name == Path(__file__).name:
        return
    in_texts = file.startswith(TEXTS_IN)
    in_comments = not file.startswith(NO_COMMENTS_YET)
    readers: list[tuple[bool, tuple[str, ...], Callable[[str], Iterable[Text]]]] = [
        (in_texts, C_FAMILY, c_strings), (in_texts, (".py",), python_strings),
        (in_texts, (".sh",), lambda text: enumerate(text.splitlines(), 1)),
        (in_comments, COMMENTS_OF_C, c_comments), (in_comments, SCRIPTS, script_comments),
        (in_comments, (".py",), python_docstrings)]
    for is_read, ends, read in readers:
        if is_read and file.endswith(ends):
            yield from read(source)


def names_of(file: str, source: str, without_text: Callable[[str], str]) -> Iterator[Text]:
    if not file.startswith(NAMES_IN) or file.startswith(NO_NAMES_YET):
        return
    if file.endswith(".py"):
        yield from python_names(source)
    elif file.endswith(C_FAMILY):
        for number, line in enumerate(without_text(source).splitlines(), 1):
            yield from ((number, name) for name in re.findall(r"[A-Za-z_]\w*", line))


def wrong_words(file: str, source: str, without_text: Callable[[str], str]) -> list[str]:
    """The file's words that style forbids, each with what to write; `without_text` blanks comments
    and literals of C++."""
    found = []
    for line, text in texts_of(file, source):
        for rule in TEXTS:
            pattern = rule.pattern.replace(" ", r"\s")  # words may be on two lines
            for hit in re.finditer(pattern, text, re.MULTILINE | re.IGNORECASE):
                at = line + text.count("\n", 0, hit.start())
                word = " ".join(hit[0].strip(" .:|-").split())
                found.append(f"{file}:{at}: '{word}': write: {rule.instead}")
    names = {(line, name) for line, name in names_of(file, source, without_text)}
    found += [f"{file}:{line}: name '{name}': say: {rule.instead}" for line, name in sorted(names)
              for rule in NAMES if any(re.fullmatch(rule.pattern, word) for word in words_of(name))]
    return found
