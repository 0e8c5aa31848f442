"""A made-up space with constraints and a known landscape, for tests of searches, archive, league.

    made = SyntheticSpace(seed=1)
    made.space                      a rooflane.tuning.Space
    made.evaluate(c, rng)           a Trial, with noise from the random.Random; number and strategy
                                    are the caller's to set
    made.truth(c)                   the ratio over the default without noise; None of one that fails
    made.legal, made.optimum        all legal configurations; the best of them

About 4500 combinations of six tunables, 2210 of them legal; about one in thirty of these fails.
`values` takes the place of some tunables' values, `all_fail` lets every evaluation fail.
"""
from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Mapping, Sequence

from rooflane.league.replay import ratio_of
from rooflane.tuning import (
    Candidate,
    Configuration,
    Cost,
    Legal,
    Outcome,
    Space,
    Trial,
    Tunable,
    text_of,
)

VALUES = {"path": (0, 1, 2), "mr": (2, 4, 6, 8, 12, 16), "nr": (8, 16, 32, 48, 64),
          "mc": (24, 48, 96, 192, 384), "kc": (64, 128, 256, 512, 1024), "pack": (0, 1)}
ROUNDS, DEFAULT_NS = 5, 1e5


def refusal(configuration: Configuration) -> str:
    """Why a complete configuration is illegal; empty for a legal one."""
    path, mr, nr, mc, kc, pack = (configuration[name] for name in VALUES)
    if pack and path == 0:
        return "pack=1: path 0 packs nothing"
    if mr * nr > 256:
        return f"mr*nr={mr * nr}: at most 256 accumulators"
    if mc % mr:
        return f"mc={mc}: a multiple of mr={mr}"
    if path == 2 and mc * kc > 1 << 16:
        return f"mc*kc={mc * kc}: at most {1 << 16} in L2"
    return ""


class SyntheticConstraints:
    """rooflane.tuning.Constraints by looking through the whole list."""

    def __init__(self, values: Mapping[str, Sequence[int]], default: Configuration):
        self.values, self.default = values, default
        self.legal = [each for each in (dict(zip(values, row))
                                        for row in itertools.product(*values.values()))
                      if not refusal(each)]

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        return [self._check({**self.default, **proposal}) for proposal in proposals]

    def _check(self, configuration: Configuration) -> Legal:
        unknown = set(configuration) - set(self.values)
        if unknown:
            return Legal(None, f"unknown: {', '.join(sorted(unknown))}")
        reason = refusal(configuration)
        return Legal(None, reason) if reason else Legal(configuration)

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        return [self._nearest({**self.default, **proposal}) for proposal in proposals]

    def _nearest(self, wanted: Configuration) -> Legal:
        if not refusal(wanted):
            return Legal(wanted)

        def distance(other: Configuration) -> tuple[int, float]:
            changed = [name for name in other if other[name] != wanted[name]]
            return len(changed), sum(abs(math.log2((other[name] + 1) / (wanted[name] + 1)))
                                     for name in changed)

        found = min(self.legal, key=distance)
        return Legal(dict(found), changed=tuple(name for name in found
                                                if found[name] != wanted[name]))


class SyntheticSpace:
    """See the top of the file. Equal arguments make equal spaces."""

    def __init__(self, seed: int, noise: float = 0.02,
                 values: Mapping[str, Sequence[int]] | None = None, all_fail: bool = False):
        self.seed, self.noise, self.all_fail = seed, noise, all_fail
        self.values = {**VALUES, **(values or {})}
        chance = random.Random(f"space {seed}")
        # The best place differs between paths, as it does between kernels.
        self._best = {path: {name: chance.uniform(0, 1) for name in VALUES}
                      for path in VALUES["path"]}
        self._height = {path: chance.uniform(0, 0.3) for path in VALUES["path"]}
        default = self._default()
        constraints = SyntheticConstraints(self.values, default)
        self.legal = constraints.legal
        self._base = self._log_time(default)
        self._default_text = text_of(default)
        candidates = [default, *chance.sample(self.legal, min(6, len(self.legal)))]
        candidates = list({text_of(each): each for each in candidates}.values())
        self.space = Space(
            kernel="gemm", variant="synthetic", shape="gemm:m=96,n=64,k=256", math="fp32",
            threads=1, isa="AVX3", device="",
            tunables=tuple(Tunable(name, f"what {name} means", min(VALUES[name]), max(VALUES[name]),
                                   tuple(self.values[name]), name == "path")
                           for name in VALUES),
            default=default, constraints=constraints,
            candidates=tuple(Candidate(each, DEFAULT_NS * (1 + 0.1 * at))
                             for at, each in enumerate(candidates)),
            problem={"m": 96, "n": 64, "k": 256}, roof_ns=DEFAULT_NS / 4)

    @functools.cached_property
    def optimum(self) -> Configuration:
        """The truly fastest that does not fail."""
        return min((each for each in self.legal if self.truth(each)), key=self.truth)

    def truth(self, configuration: Configuration) -> float | None:
        """Its time over the default's; nothing where it fails."""
        if self.all_fail or self._fails(configuration):
            return None
        return math.exp(self._log_time(configuration) - self._base)

    def evaluate(self, configuration: Configuration, rng: random.Random) -> Trial:
        """Measures it in five rounds beside the default."""
        truth = self.truth(configuration)
        cost = Cost(build=0.2, verify=0.05, time=0.1 * (truth or 0))
        if reason := refusal(configuration):
            return Trial(0, configuration, Outcome.REFUSED, "", reason=reason, cost=cost)
        if truth is None:
            return Trial(0, configuration, Outcome.INCORRECT, "", reason="largest error 3.1",
                         error=3.1, threshold=1e-5, cost=cost)
        speeds = [math.exp(rng.gauss(0, self.noise)) for _ in range(2 * ROUNDS)]
        default_ns = [DEFAULT_NS * factor for factor in speeds[:ROUNDS]]
        ns = [DEFAULT_NS * truth * factor for factor in speeds[ROUNDS:]]
        return Trial(0, configuration, Outcome.CORRECT, "", ratio=ratio_of(ns, default_ns), ns=ns,
                     default_ns=default_ns, error=1e-7, threshold=1e-5, cost=cost)

    def _default(self) -> Configuration:
        wanted = {"path": 1, "mr": 4, "nr": 16, "mc": 48, "kc": 128, "pack": 0}
        nearest = {name: min(values, key=lambda value, want=wanted[name]: abs(value - want))
                   for name, values in self.values.items()}
        return SyntheticConstraints(self.values, nearest)._nearest(nearest).configuration

    def _fails(self, configuration: Configuration) -> bool:
        text = text_of(configuration)
        return (text != self._default_text
                and random.Random(f"fails {self.seed} {text}").random() < 1 / 30)

    def _log_time(self, configuration: Configuration) -> float:
        """A bowl over the places of the values, a valley across two of them, and ripples."""
        path = configuration["path"]
        best = self._best[path]
        off = {name: self._place(name, configuration[name]) - best[name] for name in VALUES
               if name != "path"}
        weights = {"mr": 0.9, "nr": 0.7, "mc": 0.3, "kc": 0.4, "pack": 0.08}
        bowl = math.fsum(weights[name] * off[name] ** 2 for name in off)
        valley = 0.5 * (off["mr"] + off["nr"]) ** 2
        ripple = random.Random(f"ripple {self.seed} {text_of(configuration)}").uniform(0, 0.04)
        return self._height[path] + bowl + valley + ripple

    @staticmethod
    def _place(name: str, value: int) -> float:
        """0 to 1 along the tunable's usual values."""
        least, most = (math.log2(each + 1) for each in (min(VALUES[name]), max(VALUES[name])))
        return (math.log2(value + 1) - least) / (most - least)
