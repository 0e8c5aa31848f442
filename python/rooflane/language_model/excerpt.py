"""The part of a kernel's source that explains its tunables best, for a language model.

Sources are taken apart at blank lines; a part counts by the tunables that it names, and the best
parts that fit are shown in the files' order.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SUFFIXES = (".hpp", ".cpp", ".h", ".cl")
# Files of these names belong to a variant each; the others serve several.
VARIANTS = ("scalar", "blas", "hwy", "opencl", "onednn", "clblast", "blis", "reference", "avx512",
            "amx")
# Those of these to several.
SHARED = dict.fromkeys(("driver", "few", "packed", "product", "store", "unit", "units"),
                       ("hwy", "avx512", "amx"))
# Parts that decide about tunables, and those that do not.
DECIDING = re.compile(r"\b(?:Tunable|tunables|Schedule|defect_of|schedule_of|Tuning|candidates)\b")
RECORD = re.compile(r"^struct \w*Schedule\b", re.MULTILINE)  # of all tunables: first of all
LISTED = re.compile(r"\b(?:Tunable|Field) \w+\[\]")  # the request lists them anyway
IDLE = re.compile(r"^\s*(?:#include|#pragma|namespace|using|}  // namespace)", re.MULTILINE)
LARGEST_FILE = 200_000
LARGEST_PART = 2500  # characters


@dataclass(frozen=True)
class Part:
    """Lines of a file without a blank one among them."""
    file: str
    line: int
    text: str


def excerpt(kernel: str, variant: str, tunables: Sequence[str], length: int = 6000,
            root: Path = ROOT) -> str:
    """At most `length` characters; empty where there is no source: plugins, installed programs."""
    parts = [part for file in sources(kernel, variant, root) for part in parts_of(file, root)]
    value = {part: _value(part, tunables) for part in parts}
    best = sorted((part for part in parts if value[part] > 0),
                  key=lambda part: -value[part] / (len(part.text) + 200))
    chosen, left = set[Part](), length
    for part in best:
        cost = len(part.text) + len(part.file) + 20
        if cost <= left:
            chosen.add(part)
            left -= cost
    lines, last = list[str](), ""
    for part in parts:
        if part in chosen:
            lines.append(f"// {part.file}:{part.line}" if part.file != last else "// ...")
            lines.append(part.text)
            last = part.file
    return "\n".join(lines)


def sources(kernel: str, variant: str, root: Path = ROOT) -> list[Path]:
    """Files that may describe the variant, those with a schedule in their name first."""
    base = re.split(r"[-@]", variant)[0]

    def serves(file: Path) -> bool:
        if (file.suffix not in SUFFIXES or "ladder" in file.name
                or file.stat().st_size > LARGEST_FILE):
            return False
        owner = next((name for name in (*VARIANTS, *SHARED) if file.name.startswith(name)), None)
        if owner is None:
            return (file.suffix == ".cl") == (base == "opencl")
        return base in SHARED.get(owner, (owner,))

    def order(file: Path) -> tuple[bool, bool, str]:
        return "schedule" not in file.name, file.suffix != ".hpp", file.name

    if not re.fullmatch(r"\w+", kernel):
        return []
    folders = [root / "kernels" / name for name in (kernel, "common")]
    return [file for folder in folders if folder.is_dir()
            for file in sorted(folder.iterdir(), key=order) if file.is_file() and serves(file)]


def parts_of(file: Path, root: Path = ROOT) -> Iterable[Part]:
    """The parts of one file; what only includes is none."""
    text = file.read_text(encoding="utf-8", errors="replace")
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        body = block.strip("\n")
        if body.strip() and not all(IDLE.match(each) for each in body.splitlines()):
            yield Part(str(file.relative_to(root)), line + len(block) - len(block.lstrip("\n")),
                       body[:LARGEST_PART])
        line += block.count("\n")


def _value(part: Part, tunables: Sequence[str]) -> float:
    words = set(re.findall(r"[A-Za-z_]\w*", part.text))
    named = sum(name in words for name in tunables)
    if named == 0 or LISTED.search(part.text):
        return 0
    comments = len(re.findall(r"//[^\n]*", part.text))
    record = 20 if RECORD.search(part.text) else 0
    return (named ** 1.5 + 3 * len(set(DECIDING.findall(part.text))) + min(comments, 6) + record)
