"""The last comparison: the best few and the default meet again in fresh processes, then the chosen
one at neighbouring sizes.

A search keeps the luckiest of many samples; a winner is named from new ones only, of several
repetitions in fresh processes, and only where it is beyond doubt faster than everything else.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rooflane.evaluator import (
    Evaluation,
    Evaluator,
    Lost,
    Refused,
    Rounds,
    Step,
    Target,
    compare,
)
from rooflane.tuning import (
    Configuration,
    Finalist,
    History,
    Neighbour,
    Outcome,
    Ratio,
    Verdict,
    text_of,
)

FINALISTS = 4  # beside the default
REPETITIONS = 5
ROUNDS = 9
SLOWER = 1.10  # at a neighbour: not to be used there
NEVER = 1e9  # a ratio that excludes nobody


def best_of(history: History, count: int = FINALISTS) -> list[Configuration]:
    """The fastest correct configurations, the default left out."""
    ranked = sorted((trial for trial in history.trials
                     if trial.correct and trial.configuration != history.space.default),
                    key=lambda trial: trial.ratio.value)
    chosen: list[Configuration] = []
    for trial in ranked:
        if trial.configuration not in chosen:
            chosen.append(trial.configuration)
    return chosen[:count]


class Final:
    """Measures finalists against the default and one another. The default is one of them, in a
    process like theirs, and each repetition begins with another: which process is started first may
    decide which memory it gets, and is nobody's merit."""

    def __init__(self, evaluator: Evaluator, default: Configuration,
                 finalists: Iterable[Configuration]):
        self._evaluator = evaluator
        self._field = [default, *finalists]
        self._times: list[list[list[float]]] = [[] for _ in self._field]  # repetition by repetition
        self._failed: set[int] = set()
        self._workspace = [0] * len(self._field)

    def measure(self, repetitions: int = REPETITIONS, rounds: int = ROUNDS,
                on_repetition: Callable[[int], None] = lambda repetition: None) -> None:
        """Some repetitions, all finalists in the rounds of each. Raises Refused when the default
        fails."""
        if len(self._field) == 1:
            return
        for repetition in range(repetitions):
            on_repetition(repetition)
            first = repetition % len(self._field)
            order = [*range(first, len(self._field)), *range(first)]
            found = self._evaluator.evaluate([self._field[index] for index in order],
                                             [Step(rounds, NEVER)], best=NEVER, fresh=True)
            for index, evaluation in zip(order, found):
                self._add(index, evaluation)

    def _add(self, index: int, evaluation: Evaluation) -> None:
        if evaluation.outcome is not Outcome.CORRECT:
            if index == 0:
                raise Refused(f"the default: {evaluation.outcome.value}: {evaluation.reason}")
            self._failed.add(index)
            return
        self._workspace[index] = evaluation.workspace_bytes
        self._times[index].append(evaluation.ns)

    def verdict(self) -> Verdict:
        """Who is chosen: the default unless another is beyond doubt faster, else of those that are
        not told apart the one with the least workspace."""
        left = [index for index in range(len(self._field)) if index not in self._failed]
        ratios = {index: found[0] for index, found in self._over(0, left).items()}
        fastest = min(left, key=lambda index: ratios[index].value)
        against = self._over(fastest, left)
        ties = []
        for index in sorted(left, key=lambda index: ratios[index].value):
            tied = index != fastest and against[index][1] != "slower"
            if index == fastest or tied:
                ties.append(Finalist(self._field[index], ratios[index], self._workspace[index],
                                     tied))
        chosen = next((one for one in ties if one.configuration == self._field[0]), None)
        if chosen is None:
            chosen = min(ties, key=lambda one: one.workspace_bytes)
        return Verdict(chosen.configuration, chosen.ratio, ties)

    def _over(self, other: int, indices: Sequence[int]) -> dict[int, tuple[Ratio, str]]:
        """Times over another's, of the rounds that both were in, and how they compare."""
        others = [index for index in indices if index != other]
        found = compare([self._rounds(index, other) for index in others]) if others else []
        return {other: (Ratio(1, 1, 1), "equal"), **dict(zip(others, found))}

    def _rounds(self, one: int, other: int) -> Rounds:
        return [[math.log(a / b) for a, b in zip(mine, theirs)]
                for mine, theirs in zip(self._times[one], self._times[other])]


def neighbours_of(problem: dict[str, Any], sizes: Sequence[str]) -> list[str]:
    """Shapes with all sizes one less, one more, half and twice; those that stay positive. The
    program says which are valid problems."""
    given = {name: problem["parameters"][name] for name in sizes}
    shapes = []
    for change in (lambda n: n - 1, lambda n: n + 1, lambda n: n // 2, lambda n: n * 2):
        # A size of one is a vector or a single batch: another kind of problem.
        changed = {name: change(value) if value > 1 else value for name, value in given.items()}
        if changed == given or min(changed.values(), default=0) < 1:
            continue
        shapes.append(shape_of(problem, changed))
    return shapes


def shape_of(problem: dict[str, Any], changed: dict[str, int]) -> str:
    """The problem's text with other sizes."""
    kernel, _, rest = problem["text"].partition(":")
    items = dict(item.split("=", 1) for item in rest.split(","))
    # A size that the text leaves out is at its default: an attention's kv_heads are its heads.
    items |= {name: str(value) for name, value in changed.items() if name in items}
    return f"{kernel}:" + ",".join(f"{name}={value}" for name, value in items.items())


def try_neighbours(evaluator: Evaluator, target: Target, chosen: Configuration,
                   shapes: Sequence[str],
                   on_neighbour: Callable[[str], None] = lambda shape: None) -> list[Neighbour]:
    """The chosen configuration at other sizes, verified and timed beside their own defaults. Shapes
    that are no problems of the kernel are left out."""
    found = []
    for shape in shapes:
        on_neighbour(shape)
        try:
            space = evaluator.open(replace(target, shape=shape))
            legal, = evaluator.check([chosen])
            if legal.configuration is None:
                found.append(Neighbour(shape, Outcome.REFUSED, legal.reason))
                continue
            if legal.configuration == space.default:
                found.append(Neighbour(shape, Outcome.CORRECT, "its own default", Ratio(1, 1, 1)))
                continue
            result, = evaluator.evaluate([legal.configuration], [Step(7, NEVER)], NEVER)
            found.append(Neighbour(shape, result.outcome, result.reason, result.ratio))
        except Refused as error:
            if error.status == "FAILED":
                continue
            found.append(Neighbour(shape, Outcome.REFUSED, str(error)))
        except Lost as error:
            found.append(Neighbour(shape, Outcome.CRASH, str(error)))
    return found


def serves_neighbours(neighbours: Iterable[Neighbour]) -> bool:
    """Whether the choice may be used for sizes near its own. One that a neighbour refuses is not
    used there anyway."""
    return all(n.outcome is Outcome.REFUSED
               or (n.outcome is Outcome.CORRECT and (n.ratio is None or n.ratio.low <= SLOWER))
               for n in neighbours)


def describe(verdict: Verdict, default: Configuration) -> str:
    """One line for people."""
    names = len(verdict.tie_set)
    if verdict.chosen == default:
        return ("the default is the fastest" if names == 1
                else f"the default, tied with {names - 1} other{'s' * (names > 2)}")
    speed_up = Ratio(1 / verdict.ratio.value, 1 / verdict.ratio.high, 1 / verdict.ratio.low)
    text = (f"{speed_up.value:.3f} times as fast as the default "
            f"[{speed_up.low:.3f}, {speed_up.high:.3f}]")
    if names > 1:
        text += f", tied with {names - 1} other{'s' * (names > 2)}"
    return f"{text}: {text_of(verdict.chosen)}"
