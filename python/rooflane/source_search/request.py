"""What somebody who writes sources is told: a document for programs (docs/judge.md has its fields),
and the same as a text for language models, shortened until it fits their context.
"""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rooflane.language_model.client import tokens_of
from rooflane.language_model.prompt import (
    Asked,
    Briefing,
    Message,
    Question,
    TooLong,
    lines_of,
)
from rooflane.source_search.evaluator import SourceEvaluator
from rooflane.source_search.sources import FLAGS
from rooflane.tuning import History, Trial

PROTOCOL = 1
LISTED = 8  # attempts
MOST_MESSAGES = 1500  # characters of the compiler's
# Attempts listed, instructions of the hot loop, whether the machine is described: from the whole
# request downwards.
CUTS = ((LISTED, 60, True), (4, 30, True), (2, 12, False), (1, 0, False), (0, 0, False))
SYSTEM = ("You write a fast kernel in C for the machine at hand. It is compiled, verified against "
          "double precision on shapes and values that you do not know, and timed beside the best "
          "that is known. You answer with C sources in code blocks and nothing else.")
RULES = """\
- Write one complete C file: includes, helpers, and the function of that signature.
- Every call computes everything from its arguments. Results kept from one call to the next, work
  that goes on after return, and whatever else tells the calls apart are found and refused.
- Any size is possible, not only this shape; lengths need not be multiples of a vector.
- Intrinsics and threads are allowed; /* flags: -fopenmp */ in the head adds flags."""


def document_of(history: History, evaluator: SourceEvaluator, question: Question,
                facts: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known, as data."""
    best = history.best
    last = history.trials[-1] if history.trials else None
    space = history.space
    return {
        "rooflane_source": PROTOCOL, "kernel": space.kernel, "shape": space.shape,
        "threads": space.threads, "isa": space.isa, "to_beat": evaluator.target.variant,
        "signature": evaluator.signature, "flags": FLAGS[0], "wanted": question.count,
        "roof_us": space.roof_ns and space.roof_ns / 1e3, "machine": dict(facts),
        "best": best and _told(best, evaluator),
        "last": None if last is best or last is None else _told(last, evaluator),
        "attempts": [_line(trial) for trial in history.trials[-LISTED:]],
        "budget": {"trials_left": history.trials_left, "seconds_left": history.seconds_left,
                   "requests_left": question.requests_left}}


def ask_program(document: dict[str, Any]) -> Asked:
    """For a program: the document in one line."""
    text = json.dumps(document)
    return Asked([{"role": "user", "content": text}], {}, tokens_of(text))


def ask_model(document: dict[str, Any], briefing: Briefing) -> Asked:
    """For a language model: the longest text that fits. Raises TooLong."""
    for cut in CUTS:
        messages = _messages(document, *cut)
        tokens = math.ceil(briefing.factor * sum(tokens_of(message["content"])
                                                 for message in messages))
        if tokens <= briefing.room:
            return Asked(messages, {}, tokens)
    raise TooLong(f"the shortest request takes {tokens} tokens; the context leaves room for "
                  f"{briefing.room}")


def _told(trial: Trial, evaluator: SourceEvaluator) -> dict[str, Any]:
    """A trial with its source and what the judge said of it."""
    number, flags = trial.configuration["source"], trial.configuration["flags"]
    document = evaluator.documents.get((number, flags), {})
    shape = next((each for each in document.get("shapes", []) if not each["hidden"]), {})
    build = document.get("build") or {}
    return {**_line(trial), "source": evaluator.sources.text(number),
            "compiled_with": evaluator.sources.flags(trial.configuration),
            "p50_us": shape.get("p50_us"), "roof_pct": shape.get("roof_pct"),
            "binds": shape.get("binds"), "sol": shape.get("sol"),
            "first_wrong": document.get("first_wrong"), "cheat": document.get("cheat"),
            "messages": "" if trial.correct else build.get("messages", "")[:MOST_MESSAGES],
            "not_vectorised": build.get("not_vectorised", [])[:LISTED],
            "hot_loop": document.get("hot_loop"), "next": document.get("next", "")}


def _line(trial: Trial) -> dict[str, Any]:
    return {"number": trial.number, "from": trial.source or trial.strategy,
            "source_number": trial.configuration["source"], "outcome": trial.outcome.value,
            "ratio": trial.ratio and trial.ratio.value,
            "ratio_low": trial.ratio and trial.ratio.low,
            "ratio_high": trial.ratio and trial.ratio.high, "reason": trial.reason}


def _messages(document: dict[str, Any], listed: int, instructions: int,
              machine: bool) -> list[Message]:
    roof = document["roof_us"]
    task = (f"Write {document['kernel']} for {document['shape']} on {document['threads']} "
            f"thread{'s' * (document['threads'] != 1)} ({document['isa']}), faster than "
            f"{document['to_beat']}, the best that is known here."
            + (f" The machine's ceilings allow {roof:.4g} us at best." if roof else ""))
    sections = [
        ("Task", task),
        ("Signature", f"```c\n{document['signature'].strip()}\n```"),
        ("Rules", RULES),
        ("Machine", lines_of(document["machine"]) if machine else ""),
        ("Attempts", "\n".join(_sentence(each, document["to_beat"])
                               for each in document["attempts"][-listed:] if listed)),
        ("The last attempt", document["last"] and _described(document["last"], instructions,
                                                             document["to_beat"])),
        ("The best so far", document["best"] and _described(document["best"], instructions,
                                                            document["to_beat"])),
        ("Answer", f"{_count(document['wanted'])}, as C in a code block. No explanation.")]
    text = "\n\n".join(f"## {title}\n{body}" for title, body in sections if body)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def _count(wanted: int) -> str:
    return "One source that is faster" if wanted == 1 else (
        f"{wanted} different sources that may be faster, each complete and in a block of its own")


def _sentence(line: Mapping[str, Any], to_beat: str) -> str:
    if line["ratio"] is None:
        return f"#{line['number']} {line['outcome']}: {line['reason']}"
    return (f"#{line['number']} takes {line['ratio']:.3f} times as long as {to_beat} "
            f"({line['ratio_low']:.3f} to {line['ratio_high']:.3f})")


def _described(told: Mapping[str, Any], instructions: int, to_beat: str) -> str:
    lines = [_sentence(told, to_beat)]
    if told["roof_pct"] is not None:
        lines.append(f"It reaches {told['roof_pct']:.0f} % of the roof; {told['binds']} binds.")
    if told["first_wrong"]:
        lines.append("First wrong element: " + json.dumps(told["first_wrong"]))
    if told["messages"]:
        lines.append(f"The compiler says:\n{told['messages']}")
    lines += [f"Not vectorised: {each}" for each in told["not_vectorised"]]
    loop = told["hot_loop"]
    if loop and instructions:
        lines.append(f"Hot loop of {loop['function']}: vectors of {loop['width_bits']} bits, "
                     f"{loop['spills']} spills, {loop['gathers']} gathers, {loop['calls']} calls")
        lines += loop["instructions"][:instructions]
    if told["next"]:
        lines.append(f"Worth trying next: {told['next']}")
    return "\n".join([*lines, f"```c\n{told['source'].strip()}\n```"])


