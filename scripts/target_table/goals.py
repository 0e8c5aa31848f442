"""The problems by class (*shapes.txt) and the goals of each class (*targets.txt).

Only reads data; judging.py decides whether a goal is met. Each file describes its format.
"""
from __future__ import annotations

import math
import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("quick", "default", "full")  # each holds the problems of those before it
DRAWN = "random"  # in place of a level: what --random draws from
FP32 = "fp32"


class InputError(Exception):
    """A file or an argument is wrong; the text says where, in one line."""


@dataclass(frozen=True)
class Setting:
    """How a class is measured: classes of one setting share a run."""
    math: str = FP32
    cache: str = "warm"


@dataclass(frozen=True)
class Condition:
    """`what` (roof in per cent, best, or a peer's name) is at least `least`, over the geometric
    mean of the class or, with `each`, over the worst of its problems."""
    what: str
    least: float
    each: bool


@dataclass(frozen=True)
class Target:
    """One line of a file of targets; no condition: no goal."""
    threads: int
    machine: str
    must: tuple[Condition, ...]
    aim: tuple[Condition, ...]


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines that say something, with their numbers; `#` begins a comment."""
    text = path.read_text(encoding="utf-8").splitlines()
    bare = [(number, line.split("#")[0].strip()) for number, line in enumerate(text, 1)]
    return [(number, line) for number, line in bare if line]


_HEADING = re.compile(r"\[(\S+) (\S+)(?: math=(\S+))?(?: cache=(warm|cold))?\]")


def read_shapes(path: Path, level: str) -> dict[str, list[str]]:
    """Class -> shapes of `level` and those before it, in the order of the file."""
    wanted = LEVELS[:LEVELS.index(level) + 1]
    shapes: dict[str, list[str]] = {}
    opened: list[str] | None = None
    for number, line in _lines(path):
        if heading := _HEADING.fullmatch(line):
            name, of_level = heading[1], heading[2]
            if of_level not in (*LEVELS, DRAWN):
                raise InputError(f"{path}: line {number}: level '{of_level}'; valid: "
                                 + ", ".join(LEVELS))
            opened = shapes.setdefault(name, []) if of_level in wanted else []
        elif opened is None:
            raise InputError(f"{path}: line {number}: a shape before the first [CLASS LEVEL]")
        else:
            opened.append(line)
    return {name: lines for name, lines in shapes.items() if lines}


def read_settings(path: Path) -> dict[str, Setting]:
    """Class -> how it is measured."""
    headings = filter(None, (_HEADING.fullmatch(line) for _, line in _lines(path)))
    return {heading[1]: Setting(heading[3] or FP32, heading[4] or "warm") for heading in headings}


def read_drawn(path: Path) -> dict[str, list[str]]:
    """Class -> the lists of level `random`, from which problems are drawn."""
    drawn: dict[str, list[str]] = {}
    opened: list[str] | None = None
    for _, line in _lines(path):
        if heading := _HEADING.fullmatch(line):
            opened = drawn.setdefault(heading[1], []) if heading[2] == DRAWN else None
        elif opened is not None:
            opened.append(line)
    return {name: lines for name, lines in drawn.items() if lines}


def _drawn_value(text: str, chance: random.Random) -> str:
    if found := re.fullmatch(r"(\d+)~(\d+)(?:/(\d+))?", text):
        low, high, step = int(found[1]), int(found[2]), int(found[3] or 1)
        size = math.exp(chance.uniform(math.log(low), math.log(high)))
        return str(max(low, round(size / step) * step))
    return chance.choice(text.split("|"))


def draw(template: str, count: int, seed: str) -> list[str]:
    """`count` different problems of a line of level `random`, the same from the same seed."""
    chance = random.Random(seed)
    kernel, _, values = template.partition(":")
    pairs = [pair.split("=", 1) for pair in values.split(",")]
    problems: dict[str, None] = {}
    while len(problems) < count:
        chosen = ",".join(f"{key}={_drawn_value(value, chance)}" for key, value in pairs)
        problems[f"{kernel}:{chosen}"] = None
    return list(problems)


def _conditions(text: str) -> tuple[Condition, ...]:
    if text == "-":
        return ()
    found = [re.fullmatch(r"(each:)?([a-z0-9-]+)>=([0-9.]+)", part) for part in text.split(",")]
    if not all(found):
        raise ValueError(f"'{text}' is not a goal; write [each:]WHAT>=NUMBER,... or -")
    return tuple(Condition(part[2], float(part[3]), bool(part[1])) for part in found)


def read_targets(path: Path, machines: Collection[str]) -> dict[str, list[Target]]:
    """Class -> the lines of it; `machines` are those that may have goals of their own."""
    targets: dict[str, list[Target]] = {}
    for number, line in _lines(path):
        try:
            name, threads, machine, must, aim = line.split()
            if machine not in machines:
                raise ValueError(f"machine '{machine}'; valid: {', '.join(machines)}")
            target = Target(int(threads), machine, _conditions(must), _conditions(aim))
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}") from error
        targets.setdefault(name, []).append(target)
    return targets


def target_for(targets: dict[str, list[Target]], name: str, threads: int,
               machine: str) -> Target | None:
    """The line that holds for a class: the one with most threads, then the one that names the
    machine."""
    fitting = [target for target in targets.get(name, [])
               if target.threads <= threads and target.machine in (machine, "any")]
    return max(fitting, key=lambda target: (target.threads, target.machine != "any"), default=None)


def chosen(text: str, shapes: dict[str, list[str]]) -> list[str]:
    """The classes that `text` names, in the order of the file: by name, or several by their first
    words (softmax). Empty: all."""
    named: set[str] = set(shapes) if not text else set()
    for word in text.split(",") if text else []:
        found = {word} & shapes.keys() or {name for name in shapes if name.startswith(word + "-")}
        if not found:
            raise InputError(f"--classes '{word}'; valid at this level: {', '.join(shapes)}")
        named |= found
    return [name for name in shapes if name in named]


def machine_of(name: str, machines: Collection[str]) -> str:
    """Which of `machines` a CPU or device of this name is: of CPUs, goals were set on one machine
    of each vendor."""
    for word, machine in (("H200", "h200"), ("AMD", "zen5"), ("Intel", "sapphire-rapids")):
        if word in name and machine in machines:
            return machine
    return "any"
