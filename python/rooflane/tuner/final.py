"""The last comparison: the best few and the default race in fresh processes, then the chosen one is
tried at neighbouring sizes and with the other state of the caches.

A search keeps the luckiest of many samples; a winner is named from new ones only. The race is a
best-arm identification with a fixed error (Even-Dar et al., COLT 2002): each repetition runs all
that are left in fresh processes, in a shuffled order. First the field is halved by what few
repetitions say (sequential halving, Karnin et al., ICML 2013); from then on only those leave that
are beyond doubt slower than the fastest, until one is left, or only such as are shown to be equal.
"""
from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflane.evaluator import Comparison, Evaluator, Lost, Refused, Rounds, Step, Target
from rooflane.tuning import (
    Configuration,
    Finalist,
    History,
    Neighbour,
    Outcome,
    Ratio,
    Space,
    Trial,
    Verdict,
    text_of,
)

# Beside the default, at most: of hundreds of noisy measurements the fastest in truth is hardly
# among the best few.
FINALISTS = 24
HALVED = {2: 12, 3: 6}  # so many go on after so many repetitions
# The least of a repetition, and the most where rounds differ much. A process is started for each
# repetition, which costs more than rounds; they are enough when their median is known to what
# processes differ by anyway.
ROUNDS, MOST_ROUNDS, ROUNDS_ERROR = 9, 90, 0.01
# After so many repetitions the race is judged, each time after about 1.4 times as many: decisions
# are late by so much at most, and each further look costs certainty.
LOOKS = (4, 6, 8, 11, 15, 21, 30, 42, 60)
# Probability that a race calls any schedule faster than the default that is not, at most: each
# comparison at each look may err with an equal share of it, and the shares add up (Bonferroni's
# inequality), however many leave the race. And, of one look, that it drops a finalist that is not
# slower. Two are called equal with five times that error.
ERROR, DROP_ERROR = 0.01, 0.002
NORMAL_SPREAD = 1.4826  # standard deviation over median absolute deviation
SECONDS = 120.0  # of the race, unless --final-time says otherwise; one look is always taken
MOST_SECONDS = 86400.0  # the longest time that is reported
SLOWER = 1.10  # at a neighbour: not to be used there
PROCESS = 1.08  # a process may be faster or slower by so much, all its rounds alike
NEAR = 1.01  # of schedules that are equal, the choice is among those that are so near the fastest
NEVER = 1e9  # a ratio that excludes nobody
ITSELF = Comparison(Ratio(1, 1, 1), "equal", 1)


def _finalists(history: History) -> list[Trial]:
    """Without the default. Those that are certainly slower than the fastest or the default, by more
    than a process changes, take no part."""
    limit = PROCESS * min(1.0, history.best.ratio.high) if history.best else 0
    return [trial for trial in history.ranked()
            if trial.ratio.low <= limit and trial.configuration != history.space.default
            ][:FINALISTS]


def best_of(history: History) -> list[Configuration]:
    """The finalists, without the default."""
    return [trial.configuration for trial in _finalists(history)]


def seconds_of_look(history: History) -> float:
    """The least time of a race, by what the search's evaluations took: the repetitions before the
    first look, each with three processes: what rounds are compared with, the default, one other."""
    return LOOKS[0] * 3 * statistics.median([trial.cost.total for trial in history.trials] or [0])


def not_raced(history: History, seconds: float) -> Verdict:
    """The verdict if no time is left for the race: the default stays, and nothing is decided.
    `seconds`: how long the race may take."""
    default = history.space.default
    finalists = [Finalist(trial.configuration, trial.ratio, trial.workspace_bytes, "undecided")
                 for trial in _finalists(history)]
    finalists.append(Finalist(default, ITSELF.ratio, 0, "undecided"))
    return Verdict(default, ITSELF.ratio, sorted(finalists, key=lambda one: one.ratio.value),
                   seconds_more=seconds)


@dataclass
class _Standing:
    """The race after some repetitions, finalists by their places in the field."""
    leader: int
    over_leader: dict[int, Comparison]  # of all that are left
    over_default: dict[int, Comparison]

    def undecided(self) -> list[Comparison]:
        """What is still open."""
        return [one for one in self.over_leader.values() if one.verdict == "undecided"]


class Final:
    """The race. The default takes part to the end, in a process like the others': which process is
    started first may decide which memory it gets, and is nobody's merit."""

    def __init__(self, evaluator: Evaluator, default: Configuration,
                 finalists: Iterable[Configuration], seed: int = 1):
        self._evaluator = evaluator
        self._field = [default, *finalists]
        self._left = list(range(len(self._field)))
        self._times: list[list[list[float]]] = [[] for _ in self._field]  # repetition by repetition
        self._workspace = [0] * len(self._field)
        self._chance = random.Random(seed)
        self._seconds = 0.0  # of all repetitions
        self.on_evaluation: Callable[[Trial], None] = lambda evaluation: None

    def race(self, seconds: float = SECONDS,
             on_repetition: Callable[[int, int], None] = lambda repetition, left: None) -> Verdict:
        """Repetitions until everything is decided, or the time is over. Raises Refused when the
        default fails."""
        begin = time.monotonic()
        for look in LOOKS if len(self._field) > 1 else ():
            while (done := len(self._times[0])) < look:
                if done >= LOOKS[0] and time.monotonic() - begin > seconds:
                    return self._verdict(self._standing())
                on_repetition(done, len(self._left))
                self._repeat()
                before, self._seconds = self._seconds, time.monotonic() - begin
                self._halve((seconds - self._seconds) / max(1e-9, self._seconds - before))
            standing = self._standing()
            if not standing.undecided():
                return self._verdict(standing)
            self._left = [index for index in self._left
                          if index == 0 or standing.over_leader[index].verdict != "slower"]
        return self._verdict(self._standing())

    def _halve(self, repetitions: float) -> None:
        """Lets the faster ones go on, by the medians over the default's: as many as reach the first
        look in time, which is left for so many repetitions like the last one."""
        done = len(self._times[0])
        count = HALVED.get(done, FINALISTS)
        if done < LOOKS[0]:
            in_time = int(len(self._left) * repetitions / (LOOKS[0] - done)) - 1
            count = max(1, min(count, in_time))
        ranked = sorted(self._left[1:], key=lambda index: statistics.median(
            log for one in self._rounds(index, 0) for log in one))
        self._left = [0, *sorted(ranked[:count])]

    def _repeat(self) -> None:
        order = self._chance.sample(self._left, len(self._left))
        found = self._evaluator.evaluate([self._field[index] for index in order],
                                         [Step(self._enough_rounds(), NEVER)], best=NEVER,
                                         fresh=True)
        for index, evaluation in zip(order, found):
            self._add(index, evaluation)
            self.on_evaluation(evaluation)

    def _enough_rounds(self) -> int:
        logs = [log for index in self._left[1:] for one in self._rounds(index, 0)[:1]
                for log in (value - statistics.median(one) for value in one)]
        if not logs:
            return ROUNDS
        spread = NORMAL_SPREAD * statistics.median(map(abs, logs))
        # The variance of the median of n normal values is pi/2 of the mean's.
        enough = math.pi / 2 * (spread / ROUNDS_ERROR) ** 2
        return max(ROUNDS, min(MOST_ROUNDS, round(enough)))

    def _add(self, index: int, evaluation: Trial) -> None:
        if evaluation.outcome is not Outcome.CORRECT:
            if index == 0:
                raise Refused(f"the default: {evaluation.outcome.value}: {evaluation.reason}")
            self._left.remove(index)
            return
        self._workspace[index] = evaluation.workspace_bytes
        self._times[index].append(evaluation.ns)

    def _standing(self) -> _Standing:
        sure = 1 - ERROR / (len(LOOKS) * max(1, len(self._field) - 1))
        over_default = self._over(0, sure)
        leader = min(self._left, key=lambda index: over_default[index].ratio.value)
        over_leader = self._over(leader, 1 - DROP_ERROR)
        if over_default[leader].verdict == "faster":
            over_leader[0] = replace(over_leader[0], verdict="slower")
        elif over_leader[0].verdict == "slower":  # but not beyond doubt
            over_leader[0] = replace(over_default[leader], verdict="undecided")
        return _Standing(leader, over_leader, over_default)

    def _verdict(self, standing: _Standing) -> Verdict:
        """Who is chosen: the default unless the fastest is beyond doubt faster; else, of those that
        are shown to be equal to the fastest and faster than the default, the one with the least
        workspace."""
        def finalist(index: int) -> Finalist:
            return Finalist(self._field[index], standing.over_default[index].ratio,
                            self._workspace[index],
                            standing.over_leader[index].verdict if index != standing.leader
                            else "fastest")

        ties = [finalist(index) for index in
                sorted(self._left, key=lambda index: standing.over_default[index].ratio.value)
                if standing.over_leader[index].verdict in ("equal", "undecided")]
        surely = [finalist(index) for index in self._left
                  if standing.over_default[index].verdict == "faster"
                  and standing.over_leader[index].verdict == "equal"
                  and standing.over_leader[index].ratio.value <= NEAR]
        itself = finalist(0)
        chosen = (itself if itself in ties or not surely
                  else min(surely, key=lambda one: one.workspace_bytes))
        more = max((one.repetitions - 1 for one in standing.undecided()), default=0)
        return Verdict(chosen.configuration, chosen.ratio, ties,
                       seconds_more=min(more * self._seconds, MOST_SECONDS))

    def _over(self, other: int, level: float) -> dict[int, Comparison]:
        """Times over another's, of the rounds that both were in, and how they compare."""
        others = [index for index in self._left if index != other]
        found = self._evaluator.compare([self._rounds(index, other) for index in others],
                                        level) if others else []
        return {other: ITSELF, **dict(zip(others, found))}

    def _rounds(self, one: int, other: int) -> Rounds:
        return [[math.log(a / b) for a, b in zip(mine, theirs)]
                for mine, theirs in zip(self._times[one], self._times[other])]


def neighbours_of(target: Target, space: Space, sizes: Sequence[str]) -> list[Target]:
    """The target with all sizes one less, one more, half and twice, those that stay positive, as
    far as the program finds them valid; and on a CPU with the other state of the caches."""
    given = {name: space.problem["parameters"][name] for name in sizes}
    target, found = replace(target, cache=space.cache), []
    for change in (lambda n: n - 1, lambda n: n + 1, lambda n: n // 2, lambda n: n * 2):
        # A size of one is a vector or a single batch: another kind of problem.
        changed = {name: change(value) if value > 1 else value for name, value in given.items()}
        if changed == given or min(changed.values(), default=0) < 1:
            continue
        found.append(replace(target, shape=shape_of(space.problem, changed)))
    if not space.device:
        found.append(replace(target, cache="warm" if space.cache == "cold" else "cold"))
    return found


def shape_of(problem: dict[str, Any], changed: dict[str, int]) -> str:
    """The problem's text with other sizes."""
    kernel, _, rest = problem["text"].partition(":")
    items = dict(item.split("=", 1) for item in rest.split(","))
    # A size that the text leaves out is at its default: an attention's kv_heads are its heads.
    items |= {name: str(value) for name, value in changed.items() if name in items}
    return f"{kernel}:" + ",".join(f"{name}={value}" for name, value in items.items())


def try_neighbours(evaluator: Evaluator, space: Space, targets: Sequence[Target],
                   chosen: Configuration,
                   on_neighbour: Callable[[str], None] = lambda name: None) -> list[Neighbour]:
    """The chosen configuration at other sizes and with other caches, verified and timed beside the
    defaults there. Shapes that are no problems of the kernel are left out."""
    found = []
    for target in targets:
        cache = target.cache if target.cache != space.cache else ""
        on_neighbour(f"{target.shape} {cache}")
        try:
            outcome, reason, ratio = _tried(evaluator, target, chosen)
        except Refused as error:
            if error.status == "FAILED":
                continue
            outcome, reason, ratio = Outcome.REFUSED, str(error), None
        except Lost as error:
            outcome, reason, ratio = Outcome.CRASH, str(error), None
        found.append(Neighbour(target.shape, outcome, reason, ratio, cache))
    return found


def _tried(evaluator: Evaluator, target: Target, chosen: Configuration
           ) -> tuple[Outcome, str, Ratio | None]:
    """What becomes of a configuration on a target. Raises Refused, Lost."""
    space = evaluator.open(target)
    legal, = evaluator.check([chosen])
    if legal.configuration is None:
        return Outcome.REFUSED, legal.reason, None
    if legal.configuration == space.default:
        return Outcome.CORRECT, "its own default", Ratio(1, 1, 1)
    result, = evaluator.evaluate([legal.configuration], [Step(7, NEVER)], NEVER)
    return result.outcome, result.reason, result.ratio


def serves_neighbours(neighbours: Iterable[Neighbour]) -> bool:
    """Whether the choice may be used for sizes near its own. One that a neighbour refuses is not
    used there anyway. With the other state of the caches it may be slower, but not wrong."""
    return all(n.outcome is Outcome.REFUSED
               or (n.outcome is Outcome.CORRECT
                   and (bool(n.cache) or n.ratio is None or n.ratio.low <= SLOWER))
               for n in neighbours)


def describe(verdict: Verdict, default: Configuration) -> str:
    """One line for people."""
    others = len(verdict.tie_set) - 1
    counted = f"{others} other{'s' * (others > 1)}"
    if verdict.chosen == default and verdict.kind != "undecided":
        return "the default is the fastest" if not others else f"the default, tied with {counted}"
    best = verdict.tie_set[0]
    if verdict.chosen == default and not others:
        text = "undecided; the default stays, since nothing else was measured"
    elif verdict.chosen == default and best.configuration != default:
        text = (f"undecided; the default stays: {_speed_up(best.ratio)} might be "
                f"{text_of(best.configuration)}")
    elif verdict.chosen == default:
        text = f"undecided; the default stays, not told apart from {counted}"
    else:
        text = f"{_speed_up(verdict.ratio)}"
        if others:
            text += (f", tied with {counted}" if verdict.kind == "tie" else
                     f", not told apart from {counted}")
        text += f": {text_of(verdict.chosen)}"
    if verdict.kind == "undecided":
        minutes = max(1, math.ceil(verdict.seconds_more / 60))
        text += (f"; about {minutes} minute{'s' * (minutes > 1)} more would decide: "
                 "--resume with a --final-time, or a --max-time, that is longer by that")
    return text


def _speed_up(ratio: Ratio) -> str:
    return (f"{1 / ratio.value:.3f} times as fast as the default "
            f"[{1 / ratio.high:.3f}, {1 / ratio.low:.3f}]")
