"""From a language model's answer to configurations. Functions of their arguments only; whatever the
text is, they raise nothing but NoJson.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import json_repair

from rooflane.tuning import Configuration, Proposal, Space, Tunable, text_of

# Limits for an answer: a configuration takes some hundred characters; repairing takes a time that
# grows with the square of the length.
MOST_CHARACTERS = 40_000
MOST_REPAIRED = 8_000
MOST_CONFIGURATIONS = 64
MOST_NESTED = 50
THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[ \t]*([A-Za-z0-9]*)[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
REFUSING = re.compile(
    r"\b(?:I['’]?m sorry|I am sorry|I apologi[sz]e|I can(?:['’]?t|not| not)|I['’]?m (?:not able|un"
    r"able)|I am (?:not able|unable)|as an AI)\b", re.IGNORECASE)


class NoJson(Exception):
    """An answer holds no JSON object or list of objects, and none can be made of it."""


def is_refusal(text: str) -> bool:
    """Whether an answer without JSON declines the task in words."""
    return REFUSING.search(text[:MOST_CHARACTERS]) is not None


def objects_in(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of an answer that may be configurations, by the package json_repair: of the first
    code fence or else of the text that has any; a model's thoughts do not count. Raises NoJson."""
    text = THOUGHTS.sub("", text[:MOST_CHARACTERS])
    fences = [fence.group(2) for fence in FENCE.finditer(text)]
    for part in (*fences, FENCE.sub(" ", text) if fences else text):
        start = re.search(r"[{\[]", part)
        part = part[start.start():start.start() + MOST_REPAIRED] if start else ""
        depths = accumulate((each in "{[") - (each in "}]") for each in part)
        if max(depths, default=MOST_NESTED + 1) > MOST_NESTED:
            continue
        try:
            value = json_repair.loads(part)
        except Exception:  # the package promises none, and it is not ours
            continue
        if found := list(_objects(value, names)):
            return found[:MOST_CONFIGURATIONS]
    raise NoJson("no JSON object" if text.strip() else "nothing")


def _objects(value: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Those that name a tunable or hold no other ones, wherever they are."""
    if isinstance(value, dict) and value:
        inner = [each for each in value.values() if isinstance(each, dict | list)]
        if any(name in value for name in names) or not inner:
            yield value
            return
        value = inner
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict | list):
            yield from _objects(each, names)


def integer(value: Any) -> tuple[int, str] | str:
    """An integer and how it was read, empty where it was one; or why it is none."""
    try:
        word = str(value).strip().replace("_", "").lower()
        number = {"true": 1, "false": 0}.get(word)
        if number is None:
            number = int(word) if re.fullmatch(r"[+-]?\d{1,30}", word) else round(float(word))
        if abs(number) > 1e30:
            raise OverflowError
    except (ValueError, OverflowError):
        return f"{_short(value)} is not a number"
    same = type(value) in (int, float) and value == number
    return number, "" if same else f"{_short(value)} read as {number}"


def correct(raw: Mapping[str, Any], tunables: Sequence[Tunable]
            ) -> tuple[Configuration, list[str]] | str:
    """One object read as a configuration, perhaps of a part of the tunables: values are read as
    integers and clamped between least and most, with a note of each change; or why it is none:
    unknown keys, values that are no numbers."""
    known = {tunable.name: tunable for tunable in tunables}
    if unknown := [str(key) for key in raw if key not in known]:
        return ("unknown tunable " + ", ".join(map(_short, unknown[:3]))
                + (" and more" if len(unknown) > 3 else ""))
    if not raw:
        return "nothing in it"
    configuration, notes = {}, []
    for name, value in raw.items():
        read = integer(value)
        if isinstance(read, str):
            return f"{name}: {read}"
        number, note = read
        if note:
            notes.append(f"{name}: {note}")
        configuration[name] = min(max(number, known[name].least), known[name].most)
        if configuration[name] != number:
            notes.append(f"{name}: {number} clamped to {configuration[name]}")
    return configuration, notes


def completed(part: Configuration, base: Configuration, tunables: Sequence[Tunable]
              ) -> Configuration:
    """What a configuration leaves out is as in `base`; but where a tunable that decides what the
    others mean has another value, it is left to the variant."""
    selecting = [tunable.name for tunable in tunables if tunable.selects]
    if any(part.get(name, base.get(name)) != base.get(name) for name in selecting):
        return dict(part)
    return {**base, **part}


def judge(objects: Sequence[Mapping[str, Any]], space: Space, base: Configuration,
          tried: Callable[[Configuration], bool]) -> list[Proposal | str]:
    """For each object a legal, complete proposal that was not tried before and is not earlier in
    the list, or why there is none. A configuration that the constraints refuse is replaced by the
    nearest legal one."""
    judged: list[Proposal | str] = []
    seen: set[str] = set()
    for each in objects:
        read = correct(each, space.tunables)
        if isinstance(read, str):
            judged.append(read)
            continue
        part, notes = read
        asked = completed(part, base, space.tunables)
        legal, = space.constraints.check([asked])
        why = "" if legal.configuration else _short(legal.reason, 120, quote=False)
        if why:
            legal, = space.constraints.nearest([asked])
        configuration = legal.configuration
        changed = [f"{name}={configuration[name]}" for name in legal.changed
                   if name in configuration]
        if why or changed:
            notes.append(f"corrected{f' ({why})' if why else ''}: "
                         + (", ".join(changed) or "completed"))
        if tried(configuration) or text_of(configuration) in seen:
            judged.append("repeated")
            continue
        seen.add(text_of(configuration))
        judged.append(Proposal(configuration, note="; ".join(notes)))
    return judged


def _short(value: Any, length: int = 40, quote: bool = True) -> str:
    """A value as a note holds it."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a huge number"
    try:
        text = json.dumps(value, ensure_ascii=False) if quote else str(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    text = re.sub(r"\s+", " ", text).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= length else text[:length - 1] + "…"
