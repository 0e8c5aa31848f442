"""The part of a kernel's source that explains its tunables best, for a language model.

Sources are taken apart at blank lines; a part counts by the tunables that it names, and the best
parts that fit are shown in the files' order.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SUFFIXES = (".hpp", ".cpp", ".h", ".cl")
# A file with such a name, or more of it, belongs to these variants; the others serve all.
OWN = ("scalar", "blas", "hwy", "opencl", "onednn", "clblast", "blis", "reference", "avx512", "amx")
SHARED = ("driver", "few", "packed", "product", "store", "unit")
OWNERS = {**{name: (name,) for name in OWN}, **dict.fromkeys(SHARED, ("hwy", "avx512", "amx"))}
# Words of parts that decide about tunables. A list of tunables is in the request anyway; a record
# of them all comes first.
DECIDING = re.compile(r"\b(?:Tunable|tunables|Schedule|defect_of|schedule_of|Tuning|candidates)\b")
RECORD = re.compile(r"^struct \w*Schedule\b", re.MULTILINE)
LISTED = re.compile(r"\b(?:Tunable|Field) \w+\[\]")
LARGEST_FILE = 200_000
LARGEST_PART = 2500  # characters


def excerpt(kernel: str, variant: str, tunables: Sequence[str], length: int = 6000,
            root: Path = ROOT) -> str:
    """At most `length` characters; empty where there is no source: plugins, installed programs."""
    parts = [(str(file.relative_to(root)), part.strip("\n")[:LARGEST_PART])
             for file in sources(kernel, variant, root)
             for part in re.split(r"\n\s*\n", file.read_text(encoding="utf-8", errors="replace"))]
    value = {part: _value(part[1], tunables) / (len(part[1]) + 200) for part in parts}
    chosen, left = set[tuple[str, str]](), length
    for part in sorted((one for one in parts if value[one] > 0), key=lambda one: -value[one]):
        cost = len(part[0]) + len(part[1]) + 20
        if cost <= left:
            chosen.add(part)
            left -= cost
    lines, last = list[str](), ""
    for file, text in parts:
        if (file, text) in chosen:
            lines += [f"// {file}" if file != last else "// ...", text]
            last = file
    return "\n".join(lines)


def sources(kernel: str, variant: str, root: Path = ROOT) -> list[Path]:
    """Files that may describe the variant, those with a schedule in their name first."""
    base = re.split(r"[-@]", variant)[0]

    def serves(file: Path) -> bool:
        if (file.suffix not in SUFFIXES or "ladder" in file.name or not file.is_file()
                or file.stat().st_size > LARGEST_FILE):
            return False
        owners = next((who for name, who in OWNERS.items() if file.name.startswith(name)), None)
        return base in owners if owners else (file.suffix == ".cl") == (base == "opencl")

    folders = [root / "kernels" / name for name in (kernel, "common")
               if re.fullmatch(r"\w+", kernel)]
    return [file for folder in folders if folder.is_dir()
            for file in sorted(folder.iterdir(), key=lambda one: (
                "schedule" not in one.name, one.suffix != ".hpp", one.name)) if serves(file)]


def _value(part: str, tunables: Sequence[str]) -> float:
    named = len(set(re.findall(r"[A-Za-z_]\w*", part)) & set(tunables))
    if named == 0 or LISTED.search(part):
        return 0
    return (named ** 1.5 + 3 * len(set(DECIDING.findall(part))) + min(part.count("//"), 6)
            + 20 * bool(RECORD.search(part)))
