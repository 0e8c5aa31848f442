"""Logarithms of ratios, with the error that launches and rounds leave in them.

The same estimate as `rooflane compare` makes (src/core/statistics.hpp, estimate_over_launches):
the sources stand there.
"""
from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 400  # the error of a standard error is then 1/sqrt(2·400), 4 %


@dataclass(frozen=True)
class Estimate:
    """A logarithm, its standard error and the degrees of freedom behind that; without an error
    nothing is known but the value."""
    value: float
    error: float | None = None
    df: float = math.inf

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of exp(value)."""
        if self.error is None:
            return None
        half = student_quantile(self.df) * self.error
        return math.exp(self.value - half), math.exp(self.value + half)


def student_quantile(df: float) -> float:
    """The t with P(|T| <= t) = 95 %, by bisection of Student's distribution."""
    if df > 1e3:
        return 1.96
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)

    def tail(t: float) -> float:
        # With t = sqrt(df)·tan(x) the density is a multiple of cos(x)^(df-1); Simpson's rule.
        start, steps = math.atan(t / math.sqrt(df)), 200
        step = (math.pi / 2 - start) / steps
        weights = [1, *(4 if i % 2 else 2 for i in range(1, steps)), 1]
        return scale * step / 3 * sum(
            weight * max(math.cos(start + i * step), 0.0) ** (df - 1)
            for i, weight in enumerate(weights))

    low, high = 0.0, 64.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 0.025 else (low, middle)
    return high


def over_launches(launches: Sequence[Sequence[float]], seed: str) -> Estimate:
    """The mean over launches of the median of each one's rounds. Its error: a bootstrap over
    launches, then over the rounds in each. A single launch shows only how much rounds differ, not
    what a fresh process would change: its interval is too narrow. Needs a round."""
    value = statistics.fmean(statistics.median(rounds) for rounds in launches)
    units = len(launches) if len(launches) > 1 else len(launches[0])
    if units < 2:
        return Estimate(value)
    chance = random.Random(seed)
    means = []
    for _ in range(RESAMPLES):
        drawn = [chance.choice(launches) for _ in launches]
        means.append(statistics.fmean(
            statistics.median(chance.choices(rounds, k=len(rounds))) for rounds in drawn))
    # Resampling n units sees only (n-1)/n of their variance.
    return Estimate(value, statistics.stdev(means) * math.sqrt(units / (units - 1)), units - 1)


def difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b of independent estimates."""
    if a.error is None or b.error is None:
        return Estimate(a.value - b.value)
    return Estimate(a.value - b.value, math.hypot(a.error, b.error), min(a.df, b.df))


def from_interval(value: float, low: float | None, high: float | None) -> Estimate:
    """A logarithm from a figure and its 95 % interval."""
    if not (low and high and low > 0):
        return Estimate(math.log(value))
    return Estimate(math.log(value), math.log(high / low) / (2 * 1.96))


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates (each problem has rounds of its own); degrees of freedom
    after Welch. Without an error when one has none."""
    value = statistics.fmean(estimate.value for estimate in estimates)
    if any(estimate.error is None for estimate in estimates):
        return Estimate(value)
    total = sum(estimate.error ** 2 for estimate in estimates)
    spread = sum(estimate.error ** 4 / estimate.df for estimate in estimates)
    return Estimate(value, math.sqrt(total) / len(estimates),
                    total ** 2 / spread if spread else math.inf)
