"""A completely measured space as something that strategies can search: who is legal comes from the
table, what an evaluation says from samples drawn out of the recorded ones.

Each evaluation draws rounds with replacement, a configuration's time and the default's of the same
round, so that noise is paid for as on the machine. It costs what it cost there: build,
verification, timing (in proportion to the rounds drawn), and the strategy's own thinking, which is
measured here or given (a language model's latency). What a strategy names is judged by the truth:
the median over all recorded rounds. score.py makes one figure of it.
"""
from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import comb
from typing import Any

import numpy as np

from rooflane.league.arguments import ROUNDS
from rooflane.league.spaces import Record, key_of, space_of
from rooflane.tuning import (
    Configuration,
    Cost,
    Exhausted,
    History,
    Legal,
    Outcome,
    Ratio,
    Space,
    Strategy,
    Trial,
    text_of,
)

Factory = Callable[[Space, int], Strategy]
Clock = Callable[[], float]

# A strategy that repeats itself in a space without costs would never end.
MOST_EVALUATIONS = 4  # times the configurations of the space


@cache
def _interval_ranks(count: int) -> tuple[int, int]:
    """Ranks, from 0, between which the median of a distribution lies with 95 %, by the binomial
    distribution of how many samples are below it; the extremes when there are too few."""
    tail, rank = 0.0, 0
    while rank < (count - 1) // 2 and tail + comb(count, rank) / 2**count <= 0.025:
        tail += comb(count, rank) / 2**count
        rank += 1
    rank = max(rank - 1, 0)
    return rank, count - 1 - rank


def ratio_of(ns: Sequence[float], default_ns: Sequence[float]) -> Ratio:
    """The median of the rounds' ratios and its 95 % interval, which assumes no distribution."""
    ratios = np.sort(np.asarray(ns, float) / np.asarray(default_ns, float))
    low, high = _interval_ranks(len(ratios))
    return Ratio(float(np.median(ratios)), float(ratios[low]), float(ratios[high]))


class Table:
    """The constraints of a recorded space: legal is what was recorded and not refused then."""

    def __init__(self, made: Record) -> None:
        self.names = [tunable["name"] for tunable in made["tunables"]]
        self.default: Configuration = made["default"]
        self.reasons = {self._key(entry["configuration"]): entry["reason"]
                        for entry in made["configurations"]
                        if entry["outcome"] == Outcome.REFUSED.value}
        legal = [entry["configuration"] for entry in made["configurations"]
                 if entry["outcome"] != Outcome.REFUSED.value]
        self.legal = [self._key(configuration) for configuration in legal]
        self._known = set(self.legal)
        self._found: dict[frozenset[tuple[str, int]], Legal] = {}
        self._values = np.array(self.legal)
        # Steps are counted over the values that the space names and those that occur.
        self._scales = [sorted({*tunable["values"], *(key[column] for key in self.legal)})
                        for column, tunable in enumerate(made["tunables"])]
        self._steps = np.array([[self._step(column, value) for column, value in enumerate(key)]
                                for key in self.legal])

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Completes with the default's values, or the nearest recorded ones; or refuses."""
        return [self._check(proposal) for proposal in proposals]

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Keeps the most values, then takes the fewest steps, then is nearest to the default in
        what was not proposed."""
        return [self._nearest({name: value for name, value in proposal.items()
                               if name in self.names}) for proposal in proposals]

    def _key(self, configuration: Configuration) -> tuple[int, ...]:
        return tuple(configuration[name] for name in self.names)

    def _step(self, column: int, value: int) -> float:
        """The place of a value on its scale; between two places where it is between two values."""
        scale = self._scales[column]
        place = bisect_left(scale, value)
        return place if place < len(scale) and scale[place] == value else place - 0.5

    def _check(self, proposal: Configuration) -> Legal:
        if not proposal.keys() <= self.default.keys():
            unknown = [name for name in proposal if name not in self.names]
            return Legal(None, f"no tunable {', '.join(unknown)}; valid: {', '.join(self.names)}")
        key = self._key(self.default | proposal)
        if key in self._known:
            return Legal(dict(zip(self.names, key)))
        if len(proposal) < len(self.names):
            found = self._nearest(proposal)
            if not found.changed:
                return found
        return Legal(None, self.reasons.get(key) or "not among the recorded configurations")

    def _nearest(self, proposal: Configuration) -> Legal:
        key = frozenset(proposal.items())
        if key not in self._found:  # repeats of a search ask for the same ones
            self._found[key] = self._looked_up(proposal)
        return self._found[key]

    def _looked_up(self, proposal: Configuration) -> Legal:
        wanted = self._key(self.default | proposal)
        given = np.array([name in proposal for name in self.names], int)
        differs = self._values != wanted
        away = np.abs(self._steps - [self._step(*place) for place in enumerate(wanted)])
        left = np.arange(len(self.legal))  # those that are the nearest so far
        for distance, columns in ((differs, given), (away, given),
                                  (differs, 1 - given), (away, 1 - given)):
            far = distance[left] @ columns
            left = left[far == far.min()]
        chosen = dict(zip(self.names, self.legal[left[0]]))
        return Legal(chosen, changed=tuple(name for name in self.names
                                           if name in proposal and chosen[name] != proposal[name]))


class ReplayedSpace:
    """A recorded space with its evaluator."""

    def __init__(self, made: Record, rounds: int = ROUNDS) -> None:
        self.key = key_of(made)
        self.table = Table(made)
        self.space = space_of(made, self.table)
        self.rounds = rounds
        self._entries = {text_of(entry["configuration"]): entry
                         for entry in made["configurations"]
                         if entry["outcome"] != Outcome.REFUSED.value}
        self._ratios = {text: np.array(entry["ns"]) / np.array(entry["default_ns"])
                        for text, entry in self._entries.items() if entry["ns"]}
        # What a configuration is worth: time over the default's, median over all recorded rounds.
        self.truth = {text: float(np.median(ratios)) for text, ratios in self._ratios.items()}
        self.optimum = min(self.truth.values())

    def __len__(self) -> int:
        """How many configurations can be evaluated, correct or not."""
        return len(self._entries)

    def configurations(self) -> list[Configuration]:
        """Those that can be evaluated."""
        return [dict(entry["configuration"]) for entry in self._entries.values()]

    def cost(self, text: str) -> Cost:
        """Seconds of one evaluation, without the proposing."""
        entry = self._entries[text]
        recorded = len(entry["ns"])
        return Cost(build=entry["cost"]["build"], verify=entry["cost"]["verify"],
                    time=entry["cost"]["time"] * (self.rounds / recorded if recorded else 1))

    def costs(self) -> np.ndarray:
        """The seconds of each configuration's evaluation, correct or not."""
        return np.array([self.cost(text).total for text in self._entries])

    def measured(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """What `count` searches would measure: a row each, a column per correct configuration, in
        the order of `truth`."""
        made = np.empty((count, len(self._ratios)))
        for column, ratios in enumerate(self._ratios.values()):
            draws = generator.integers(len(ratios), size=(count, self.rounds))
            made[:, column] = np.median(ratios[draws], axis=1)
        return made

    def evaluate(self, number: int, configuration: Configuration, strategy: str,
                 generator: np.random.Generator) -> Trial:
        """One evaluation, as the tuner would have archived it. Raises KeyError for a configuration
        that was not recorded."""
        text = text_of(configuration)
        entry = self._entries[text]
        trial = Trial(number, dict(configuration), Outcome(entry["outcome"]), strategy,
                      reason=entry["reason"], cost=self.cost(text))
        if entry["ns"]:
            draws = generator.integers(len(entry["ns"]), size=self.rounds)
            trial.ns = [entry["ns"][draw] for draw in draws]
            trial.default_ns = [entry["default_ns"][draw] for draw in draws]
            trial.ratio = ratio_of(trial.ns, trial.default_ns)
        return trial


@dataclass
class Run:
    """One search by replay: after which evaluation it named what."""
    times: list[float] = field(default_factory=list)  # seconds at each evaluation's end
    named: list[float] = field(default_factory=list)  # true times of its choices then; inf: none

    @property
    def evaluations(self) -> int:
        """How many there were."""
        return len(self.times)

    def add(self, seconds: float, best: Trial | None, truth: Mapping[str, float]) -> None:
        """An evaluation has ended."""
        self.times.append(seconds)
        self.named.append(truth[text_of(best.configuration)] if best else float("inf"))


@dataclass(frozen=True)
class Rules:
    """What all searches of a league have in common."""
    budget_s: float
    latency_s: float | None = None  # of a proposal; measured where not given
    clock: Clock = time.perf_counter


def replay(replayed: ReplayedSpace, make: Factory, seeds: Sequence[Configuration], seed: int,
           rules: Rules) -> Run:
    """Lets a strategy search until the budget is spent, or it knows nothing further.

    The seeds are evaluated first and observed by the strategy. A proposal that is not legal costs
    what it took to think of it.
    """
    generator = np.random.default_rng(seed)
    began = rules.clock()
    strategy = make(replayed.space, seed)
    elapsed = 0.0 if rules.latency_s is not None else rules.clock() - began
    history, run = History(replayed.space), Run()
    best: Trial | None = None
    try:
        while (elapsed < rules.budget_s
               and run.evaluations < MOST_EVALUATIONS * len(replayed) + len(seeds)):
            number = run.evaluations
            history.seconds_left = rules.budget_s - elapsed
            if number < len(seeds):
                trial = replayed.evaluate(number, seeds[number], "seed", generator)
                thought = 0.0
            else:
                began = rules.clock()
                try:
                    proposal = strategy.propose(history)
                except Exhausted:
                    break
                thought = rules.clock() - began
                if rules.latency_s is not None:
                    thought = rules.latency_s
                trial = _try(replayed, number, proposal, strategy.name, generator)
            began = rules.clock()
            strategy.observe(trial)
            if rules.latency_s is None:
                thought += rules.clock() - began
            trial.cost.propose = thought
            history.trials.append(trial)
            elapsed += trial.cost.total
            if trial.correct and (best is None or trial.ratio.value < best.ratio.value):
                best = trial
            run.add(elapsed, best, replayed.truth)
    finally:
        strategy.close()
    return run


def _try(replayed: ReplayedSpace, number: int, proposal: Any, strategy: str,
         generator: np.random.Generator) -> Trial:
    legal = replayed.table.check([proposal.configuration])[0]
    if legal.configuration is None:
        return Trial(number, proposal.configuration, Outcome.REFUSED, strategy,
                     source=proposal.source, note=proposal.note, reason=legal.reason)
    trial = replayed.evaluate(number, legal.configuration, strategy, generator)
    trial.source, trial.note = proposal.source, proposal.note
    return trial
