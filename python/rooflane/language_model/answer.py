"""From a language model's answer to configurations. Functions of their arguments only; whatever the
text is, they raise nothing but NoJson.

  texts     find_json      the first JSON of an answer, repaired if it can be
  JSON      configurations objects that may be configurations
  objects   correct           values read as integers and clamped, or the reason for the refusal
  judge     all that, with the space's constraints, and without what was tried before
"""
from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import json_repair

from rooflane.tuning import Configuration, Legal, Proposal, Space, Tunable, text_of

# Limits for an answer: a configuration takes some hundred characters; repairing takes a time that
# grows with the square of the length.
MOST_CHARACTERS = 40_000
MOST_REPAIRED = 8_000
MOST_STARTS = 100
MOST_CONFIGURATIONS = 64
MOST_NESTED = 50
WRAPPERS = ("configurations", "configuration", "proposals", "tunables", "tuning", "parameters",
            "answer", "result", "best")
THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[ \t]*([A-Za-z0-9]*)[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
REFUSING = re.compile(
    r"\b(?:I['’]?m sorry|I am sorry|I apologi[sz]e|I can(?:['’]?t|not| not)|I['’]?m (?:not able|un"
    r"able)|I am (?:not able|unable)|as an AI)\b", re.IGNORECASE)


class NoJson(Exception):
    """An answer holds no JSON object or list of objects, and none can be made of it."""


@dataclass
class Judged:
    """What became of one object of an answer: a proposal, or why there is none."""
    proposal: Proposal | None = None
    refused: str = ""
    repeated: bool = False
    clamped: bool = False  # values are others than the proposed ones


@dataclass
class Corrected:
    """Integers for some tunables, and what was done to them."""
    configuration: Configuration = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    clamped: bool = False
    refused: str = ""


def is_refusal(text: str) -> bool:
    """Whether an answer without JSON declines the task in words."""
    return REFUSING.search(text[:MOST_CHARACTERS]) is not None


def find_json(text: str) -> tuple[Any, bool]:
    """The first JSON object or list of objects, and whether it had to be repaired. A code fence
    comes first; a model's thoughts do not count. Raises NoJson."""
    text = THOUGHTS.sub("", text[:MOST_CHARACTERS])
    texts = [fence.group(2) for fence in FENCE.finditer(text) if fence.group(2).strip()]
    texts.append(FENCE.sub(" ", text) if texts else text)
    for each in texts:
        if (found := _strict(each)) is not None:
            return found, False
    for each in texts:
        if (found := _repaired(each)) is not None:
            return found, True
    raise NoJson("no JSON object" if text.strip() else "nothing")


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) or (
        isinstance(value, list) and any(isinstance(each, dict) and each for each in value))


def _strict(text: str) -> Any:
    decoder = json.JSONDecoder()
    at = 0
    for _ in range(MOST_STARTS):
        start = re.compile(r"[{\[]").search(text, at)
        if start is None:
            return None
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.start() + 1
            continue
        if _is_answer(value):
            return value
    return None


def _repaired(text: str) -> Any:
    start = re.search(r"[{\[]", text)
    if start is None:
        return None
    part = text[start.start():start.start() + MOST_REPAIRED]
    deep = most = 0
    for character in part:
        deep += (character in "{[") - (character in "}]")
        most = max(most, deep)
    if most > MOST_NESTED:
        return None
    try:
        value = json_repair.loads(part, skip_json_loads=True)
    except Exception:  # the package promises none, and it is not ours
        return None
    return value if _is_answer(value) else None


def configurations(value: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """The objects that may be configurations: one, a list, or either inside of a known wrapper."""
    for _ in range(4):
        if isinstance(value, list):
            objects = [each for each in value if isinstance(each, dict)]
            inner = [_unwrapped(each, names) for each in objects[:MOST_CONFIGURATIONS]]
            return [each for each in inner if isinstance(each, dict)]
        if not isinstance(value, dict):
            return []
        unwrapped = _unwrapped(value, names)
        if unwrapped is value:
            return [value]
        value = unwrapped
    return []


def _unwrapped(value: dict[str, Any], names: Sequence[str]) -> Any:
    if any(name in value for name in names):
        return value
    inside = [value[key] for key in WRAPPERS if isinstance(value.get(key), dict | list)]
    return inside[0] if inside else value


def integer(value: Any) -> tuple[int, str] | str:
    """An integer and how it was read, empty where it was one; or why it is none."""
    shown = _short(value)
    if isinstance(value, bool):
        return int(value), f"{shown} read as {int(value)}"
    if isinstance(value, int):
        return value, ""
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        try:
            number = int(text) if re.fullmatch(r"[+-]?\d{1,30}", text) else float(text)
        except ValueError:
            lowered = text.lower()
            if lowered in ("true", "false"):
                return int(lowered == "true"), f'"{lowered}" read as {int(lowered == "true")}'
            return f"{shown} is not a number"
        if isinstance(number, int):
            return number, f"{shown} read as {number}"
        value = number
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) > 1e30:
            return f"{shown} is not a number"
        whole = round(value)
        return whole, "" if value == whole and not shown.startswith('"') \
            else f"{shown} read as {whole}"
    return f"{shown} is not a number"


def correct(raw: Mapping[str, Any], tunables: Sequence[Tunable]) -> Corrected:
    """One object read as a configuration, perhaps of a part of the tunables: values are read as
    integers and clamped between least and most. Unknown keys and values that are no numbers refuse
    it."""
    known = {tunable.name: tunable for tunable in tunables}
    if unknown := [str(key) for key in raw if key not in known]:
        return Corrected(refused="unknown tunable " + ", ".join(map(_short, unknown[:3]))
                      + (" and more" if len(unknown) > 3 else ""))
    if not raw:
        return Corrected(refused="nothing in it")
    corrected = Corrected()
    for name, value in raw.items():
        read = integer(value)
        if isinstance(read, str):
            return Corrected(refused=f"{name}: {read}")
        number, note = read
        tunable = known[name]
        if note:
            corrected.notes.append(f"{name}: {note}")
        legal = min(max(number, tunable.least), tunable.most)
        if legal != number:
            corrected.clamped = True
            corrected.notes.append(f"{name}: {_short(number)} clamped to {legal}")
        corrected.configuration[name] = legal
    return corrected


def completed(part: Configuration, base: Configuration, tunables: Sequence[Tunable]
              ) -> Configuration:
    """What a configuration leaves out is as in `base`; but where a tunable that decides what the
    others mean has another value, it is left to the variant."""
    selecting = [tunable.name for tunable in tunables if tunable.selects]
    if any(part.get(name, base.get(name)) != base.get(name) for name in selecting):
        return dict(part)
    return {**base, **part}


def judge(objects: Sequence[Mapping[str, Any]], space: Space, base: Configuration,
          tried: Callable[[Configuration], bool]) -> list[Judged]:
    """The result for each object: legal, complete proposals that were not tried before and are not
    earlier in the list. A configuration that the constraints refuse is replaced by the nearest
    legal one."""
    judged: list[Judged] = []
    corrected = [correct(each, space.tunables) for each in objects]
    asked = [completed(each.configuration, base, space.tunables) for each in corrected
             if not each.refused]
    legal = iter(_legal(asked, space))
    seen: set[str] = set()
    for each in corrected:
        if each.refused:
            judged.append(Judged(refused=each.refused))
            continue
        result, why = next(legal)
        if result.configuration is None:
            judged.append(Judged(refused=why or "not legal"))
            continue
        configuration = result.configuration
        notes = list(each.notes)
        changed = [f"{name}={configuration[name]}" for name in result.changed
                   if name in configuration]
        if why or changed:
            notes.append(f"corrected{f' ({why})' if why else ''}: "
                         + (", ".join(changed) or "completed"))
        clamped = each.clamped or bool(why or changed)
        text = text_of(configuration)
        if tried(configuration) or text in seen:
            judged.append(Judged(repeated=True, clamped=clamped))
            continue
        seen.add(text)
        judged.append(Judged(Proposal(configuration, note="; ".join(notes)), clamped=clamped))
    return judged


def _legal(asked: Sequence[Configuration], space: Space) -> list[tuple[Legal, str]]:
    """Each made complete, or the nearest legal one and what the constraints said."""
    if not asked:
        return []
    checked = space.constraints.check(asked)
    refused = [at for at, legal in enumerate(checked) if legal.configuration is None]
    nearest = space.constraints.nearest([asked[at] for at in refused]) if refused else []
    results = [(legal, "") for legal in checked]
    for at, legal in zip(refused, nearest):
        results[at] = (legal, _short(checked[at].reason, 120, quote=False))
    return results


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
