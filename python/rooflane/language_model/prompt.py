"""The request to a language model: messages that fit its context, and the answer's JSON Schema.

The order of sections is fixed. If they do not fit, the history is shortened first, then the
kernel's source, then the rules. A context of SMALL tokens or less gets a short request with an
example instead of source, rules and schema.
"""
from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rooflane.archive.tables import difference
from rooflane.language_model.client import tokens_of
from rooflane.report.run import nanoseconds
from rooflane.tuning import Configuration, History, Space, Trial, Tunable

CONTEXT = 8192  # tokens, of a model that nothing is known of
SMALL = 4096
# Entries of each list of the history, and characters of source, from the whole request downwards.
HISTORIES = (12, 8, 5, 3)
SOURCES = (6000, 3000, 1500, 600, 0)
LEAST = ((1, 0, 6), (0, 0, 3), (0, 0, 0))  # entries, characters of source, rules
RULES = 12
LISTED = 5  # best ones and failures that the mode of generations shows
MOST_VALUES = 16  # of one tunable
TEMPLATE = 64  # tokens that a chat template adds

Message = dict[str, str]


class TooLong(Exception):
    """Not even the shortest request fits the context."""


@dataclass(frozen=True)
class Question:
    """What is asked for."""
    count: int = 1  # configurations; more than one are asked for as a list
    requests_left: int | None = None


@dataclass
class Briefing:
    """What every request says: the space, the machine, and how much fits. `source`: the kernel's
    source in so many characters; `rules`: the constraints in words."""
    space: Space
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: Callable[[int], str] = lambda length: ""
    rules: Sequence[str] = ()
    context: int = CONTEXT
    answer_tokens: int = 1024
    factor: float = 1.0  # the model's tokens over the estimated ones, once that is known

    @property
    def room(self) -> int:
        """Tokens that the messages may take."""
        return self.context - self.answer_tokens - TEMPLATE

    @property
    def small(self) -> bool:
        """Whether the short request is used."""
        return self.context <= SMALL


@dataclass(frozen=True)
class Asked:
    """A request ready to be sent."""
    messages: list[Message]
    schema: dict[str, Any]
    tokens: int  # estimated


def ask(history: History, briefing: Briefing, question: Question) -> Asked:
    """The longest request that fits. Raises TooLong."""
    cuts = [(entries, SOURCES[0], RULES) for entries in HISTORIES]
    cuts += [*((HISTORIES[-1], length, RULES) for length in SOURCES[1:]), *LEAST]
    forms = [] if briefing.small else [_long(history, briefing, question, *cut) for cut in cuts]
    forms += [_short(history, briefing, question, entries) for entries in (*HISTORIES[2:], 1, 0)]
    for system, user in forms:
        tokens = math.ceil(briefing.factor * (tokens_of(system) + tokens_of(user)))
        if tokens <= briefing.room:
            return Asked([{"role": "system", "content": system}, {"role": "user", "content": user}],
                         schema_of(briefing.space, question.count, briefing.small), tokens)
    raise TooLong(f"the shortest request takes {tokens} tokens; the context leaves room for "
                  f"{briefing.room}")


def schema_of(space: Space, count: int = 1, small: bool = False) -> dict[str, Any]:
    """The schema of the answer: one configuration, or up to `count` in a list. Values are between
    the first and the last that is worth trying. A `small` model must take a listed one, and all
    tunables; a server that decodes by schemas enforces that."""
    def value(tunable: Tunable) -> dict[str, Any]:
        values = tunable.values or (tunable.least, tunable.most)
        return {"enum": list(values)} if small and tunable.values else \
            {"type": "integer", "minimum": values[0], "maximum": values[-1]}

    one: dict[str, Any] = {
        "type": "object",
        "properties": {tunable.name: value(tunable) for tunable in free(space)},
        "additionalProperties": False}
    if small:
        one["required"] = list(one["properties"])
    if count == 1:
        return one
    return {"type": "object", "required": ["configurations"], "additionalProperties": False,
            "properties": {"configurations": {"type": "array", "items": one, "minItems": 1,
                                              "maxItems": count}}}


def free(space: Space) -> list[Tunable]:
    """The tunables that there is something to choose of; all where there is none."""
    chosen = [tunable for tunable in space.tunables if len(tunable.values) > 1]
    return chosen or list(space.tunables)


def _long(history: History, briefing: Briefing, question: Question, entries: int, length: int,
          rules: int) -> tuple[str, str]:
    space = briefing.space
    source = briefing.source(length) if length else ""
    chosen = {tunable.name for tunable in free(space)}
    fixed = [f"{name}={value}" for name, value in space.default.items() if name not in chosen]
    left = [f"{value:.0f} {what}" for value, what in (
        (history.trials_left, "trials"), (history.seconds_left, "s"),
        (question.requests_left, "requests to you")) if value is not None]
    sections = [
        ("Task", _task(space)),
        ("Machine", lines_of(briefing.facts)),
        ("Tunables", "\n".join(map(_tunable, free(space)))
         + (f"\nNot for you to choose: {', '.join(fixed)}" if fixed else "")),
        ("Constraints", "\n".join(f"- {rule}" for rule in briefing.rules[:rules])),
        (f"Source of the {space.kernel} kernel (excerpt)", source and f"```cpp\n{source}\n```"),
        ("Default and roof", _standing(history)),
        ("History", _history(history, question, entries)),
        ("Budget", left and f"Left: {', '.join(left)}"),
        ("Answer", _wanted(space, question) + "\nJSON Schema of the answer: "
         + json.dumps(schema_of(space, question.count), separators=(",", ":"))),
    ]
    return ("You tune a high-performance kernel: you propose values of its tunables, they are "
            "verified and timed, and you see the result. You answer with JSON only.",
            "\n\n".join(f"## {title}\n{body}" for title, body in sections if body))


def _short(history: History, briefing: Briefing, question: Question, entries: int
           ) -> tuple[str, str]:
    space = briefing.space
    values = "\n".join(f"{tunable.name}: one of {_values(tunable)}" for tunable in free(space))
    # No values in the example: a small model answers with those, and no others.
    form = "{" + ", ".join(f'"{tunable.name}": ...' for tunable in free(space)) + "}"
    wanted = (f"one configuration that may be faster, as JSON of the form {form}"
              if question.count == 1 else
              f"{question.count} different configurations that may be faster, as JSON of the form "
              f'{{"configurations": [{form}, ...]}}')
    lines = [f"Tune {space.kernel} ({space.shape}). Choose integers:", values,
             _history(history, question, entries), f"Answer with {wanted}"]
    return "You answer with JSON only.", "\n".join(line for line in lines if line)


def _task(space: Space) -> str:
    lines = [f"Find a configuration of variant {space.variant} of {space.kernel} that is faster "
             f"than the default on this problem and machine: {space.title}."]
    for name in ("parameters", "cost"):
        if told := space.problem.get(name):
            lines.append(f"{name}: {json.dumps(told, separators=(', ', ': '))[:600]}")
    if len(space.candidates) > 1:
        lines.append("The variant's own cost model chose the default; its next choices were: "
                     + "; ".join(difference(candidate.configuration, space.default)
                                 for candidate in space.candidates[1:4]))
    return "\n".join(lines)


def lines_of(facts: Mapping[str, Any], indent: str = "") -> str:
    """Facts as a list, nested ones indented."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}- {name}:", lines_of(value, indent + "  ")]
        else:
            lines.append(f"{indent}- {name}: {_plain(value)}")
    return "\n".join(line for line in lines if line)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(each) for each in value)
    return str(value)[:300]


def _tunable(tunable: Tunable) -> str:
    decides = " (decides what the others mean)" if tunable.selects else ""
    legal = f"{tunable.least} to {tunable.most}" if tunable.most < 1 << 20 else \
        f"from {tunable.least}"
    return (f"- {tunable.name}{decides}: {tunable.meaning}; {legal}; worth trying: "
            f"{_values(tunable)}")


def _values(tunable: Tunable) -> str:
    values = tunable.values or (tunable.least, tunable.most)
    if len(values) > MOST_VALUES:
        step = (len(values) - 1) / (MOST_VALUES - 1)
        values = tuple(values[round(at * step)] for at in range(MOST_VALUES))
    return ", ".join(map(str, values))


def _standing(history: History) -> str:
    space, best = history.space, history.best
    lines = ["Default: " + json.dumps(space.default, separators=(",", ":"))]
    default_ns = [ns for trial in history.trials for ns in trial.default_ns]
    default = statistics.median(default_ns) if default_ns else None
    if default is not None:
        lines.append(f"The default takes {nanoseconds(default)}.")
    if space.roof_ns:
        line = f"The machine's ceilings allow {nanoseconds(space.roof_ns)} at best"
        if default:
            share = space.roof_ns / default
            line += f": the default reaches {share:.0%} of the roof"
            line += f", the best so far {share * best.speed_up:.0%}" if best else ""
        lines.append(line + ".")
    return "\n".join(lines)


def _history(history: History, question: Question, entries: int) -> str:
    default = history.space.default
    tried = [trial for trial in history.trials if trial.configuration != default]
    best = history.best
    lines = ["Only what differs from the default is shown; x is the speed-up over the default."]
    if best:
        lines.append("Best so far: " + _attempt(best, default))
    if question.count > 1:
        entries = min(entries, LISTED)
        fast = sorted((trial for trial in tried if trial.correct), key=lambda each: -each.speed_up)
        failed = [trial for trial in tried if not trial.correct]
        lists = [("Fastest:", fast[:entries]),
                 ("Last failures:", failed[-entries:] if entries else [])]
    else:
        lists = [("Last attempts, the newest last:", tried[-entries:] if entries else [])]
    for title, trials in lists:
        if trials:
            lines.append(title)
            lines += [_attempt(trial, default) for trial in trials]
    return "\n".join(lines) if len(lines) > 1 else "Nothing but the default was tried."


def _attempt(trial: Trial, default: Configuration) -> str:
    what = difference(trial.configuration, default)
    if trial.correct and trial.ratio:
        low, high = 1 / trial.ratio.high, 1 / trial.ratio.low
        return f"#{trial.number} {trial.speed_up:.3f}x ({low:.3f} to {high:.3f}): {what}"
    reason = " ".join(trial.reason.split())[:120]
    return f"#{trial.number} {trial.outcome.value}{f' ({reason})' if reason else ''}: {what}"


def _wanted(space: Space, question: Question) -> str:
    example = {tunable.name: space.default.get(tunable.name, tunable.least)
               for tunable in free(space)[:2]}
    rest = ("What you leave out stays as in the best so far. Do not repeat what was tried. No "
            "explanation.")
    if question.count == 1:
        return (f"One JSON object, tunable -> integer, for example {json.dumps(example)}. {rest}")
    return (f"A JSON object with a list of {question.count} different configurations, for example "
            f"{json.dumps({'configurations': [example]})}. {rest}")
