"""Builds the search space from the program's description of a variant and a problem.

A variant declares ranges, which may be astronomically wide; the values worth trying come from what
its own model proposes for the problem, so that no kernel needs a list of its own.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rooflane.tuning import Candidate, Constraints, Space, Tunable, configuration_of

FEW = 16  # a range so narrow is tried as a whole
STEPS = 12  # values of a wide range beside the candidates' own
BEYOND = 4  # and so many times below and above theirs


def values_of(least: int, most: int, proposed: Iterable[int]) -> tuple[int, ...]:
    """All of a narrow range; else the proposed values, and steps of equal ratio from a fourth of
    the smallest to four times the largest."""
    if most - least < FEW:
        return tuple(range(least, most + 1))
    found = sorted({value for value in proposed if least <= value <= most}) or [least]
    low = max(least, 1, found[0] // BEYOND)
    high = max(low, min(most, found[-1] * BEYOND))
    ratio = (high / low) ** (1 / STEPS)
    steps = {round(low * ratio ** step) for step in range(STEPS + 1)}
    return tuple(sorted(set(found) | {min(max(step, least), most) for step in steps}))


def of_answer(answer: dict[str, Any], constraints: Constraints) -> Space:
    """The space of `rooflane evaluate`'s answer to `open`."""
    default = configuration_of(answer["default"])
    candidates = [Candidate(configuration_of(item["tuning"]), item["predicted_ns"])
                  for item in answer["candidates"]]
    if all(candidate.configuration != default for candidate in candidates):
        candidates.insert(0, Candidate(default))
    tunables = []
    for told in answer["tunables"]:
        name = told["name"]
        proposed = [c.configuration[name] for c in candidates if name in c.configuration]
        tunables.append(Tunable(name, told["meaning"], told["least"], told["most"],
                                values_of(told["least"], told["most"], proposed),
                                told["selects"]))
    return Space(
        kernel=answer["kernel"], variant=answer["variant"], shape=answer["problem"]["text"],
        math=answer["math"], threads=answer["threads"], isa=answer["isa"],
        device=answer["device"], tunables=tuple(tunables), default=default,
        candidates=tuple(candidates), constraints=constraints,
        problem={**answer["problem"], "cache": answer["cache"],
                 "usual_cache": answer["usual_cache"]},
        roof_ns=answer["roof_ns"], prediction_error=answer["prediction_error"])
