"""The score P of a search, after Willemsen et al. (FGCS 2024), with corrections.

P(t) = (S(t) - F(t)) / (S(t) - optimum): F is the true value of the configuration that the search
names at time t, S that of random search without replacement, calculated. 0 is random search, 1 the
optimum, less than 0 worse than random. The score is the mean over equidistant times until the
budget, the time when S reaches optimum + 5 % of (median - optimum). Corrections to the reference:

- Noise counts for S: like every search it names the best measured configuration, not the best.
- Configurations that fail cost S their time and gain nothing.
- The number of draws that fit into a time is a distribution, in S and so in the budget; the
  reference used the mean for one and the median for the other.
- A search that has named nothing yet counts as a blind draw: the mean of correct configurations.

Pure functions: replay.py searches, command.py prints.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from rooflane.league.replay import ReplayedSpace, Run
from rooflane.league.spaces import SpaceError

CUT = 0.05  # of the way from the optimum to the median: where the budget ends
POINTS = 1000
SHARES = (0.1, 0.25, 0.5, 1.0)  # of the budget, at which P is told
WITHIN = 0.01  # a winner so near to the optimum is as good: what the tuner calls a tie
NOISE_DRAWS = 500  # searches that the baseline averages: their mean is known to 1/22
# Too little to be found by anybody: half of all configurations are within the tie.
LEAST_MEDIAN = 1 + WITHIN


def expected_best(ranked: np.ndarray) -> np.ndarray:
    """The expected value of the best of M draws without replacement, for M = 1 to N: element M - 1.

    `ranked`: what each of the N is worth, in the order in which draws are preferred. The best of M
    draws has rank i with the probability C(N - i, M - 1) / C(N, M).
    """
    count = len(ranked)
    ranks = np.arange(1, count + 1)
    expected = np.empty(count)
    beyond = np.ones(count)  # probability that none of M draws has a rank up to i
    for draws in range(count):
        beyond *= np.maximum(count - ranks - draws, 0) / (count - draws)
        best = -np.diff(beyond, prepend=1.0)
        expected[draws] = best @ ranked
    return expected


def draws_within(times: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The probability that M draws without replacement, M = 1 to N, are done at each time: a row
    per time.

    The cost of M draws has the mean M c and the variance M s^2 (N - M) / (N - 1); a gamma
    distribution with these stands for it.
    """
    count = len(costs)
    draws = np.arange(1, count + 1)
    means = draws * costs.mean()
    variances = draws * costs.var() * (count - draws) / max(count - 1, 1)
    certain = variances <= 1e-12 * means**2
    safe = np.where(certain, 1, variances)
    done = gammainc(means**2 / safe, times[:, None] * means / safe)
    reached = times[:, None] >= means * (1 - 1e-9)
    return np.where(certain, reached, done)


def over_time(times: np.ndarray, costs: np.ndarray, before: float,
              expected: np.ndarray) -> np.ndarray:
    """What is worth `before` without a draw and expected[M - 1] after M, at each time."""
    steps = np.diff(expected, prepend=before)
    rows = max(1, 4_000_000 // len(costs))  # of the matrix at once: 32 MB
    return np.concatenate([before + draws_within(times[start:start + rows], costs) @ steps
                           for start in range(0, len(times), rows)])


def first_time(costs: np.ndarray, before: float, expected: np.ndarray, cut: float) -> float:
    """When the baseline has come down to `cut`; the time of everything where it never does."""
    low, high = 0.0, float(costs.sum())
    for _ in range(50):
        middle = (low + high) / 2
        if over_time(np.array([middle]), costs, before, expected)[0] > cut:
            low = middle
        else:
            high = middle
    return high


def value_at(times: np.ndarray, run: Run, before: float) -> np.ndarray:
    """The true value of a search's choice at each time."""
    named = np.array([before, *(value if np.isfinite(value) else before for value in run.named)])
    return named[np.searchsorted(np.asarray(run.times, float), times, side="right")]


def performance(baseline: np.ndarray, found: np.ndarray, optimum: float) -> np.ndarray:
    """P at each time."""
    return (baseline - found) / (baseline - optimum)


@dataclass(frozen=True)
class Judged:
    """What one search is worth."""
    score: float
    curve: np.ndarray  # P at each time
    within: np.ndarray  # whether what it names is within 1 % of the optimum


class Judge:
    """The baseline and the budget of a space. Raises SpaceError where there is nothing to find."""

    def __init__(self, replayed: ReplayedSpace, seed: int = 0, points: int = POINTS) -> None:
        truth = np.array(list(replayed.truth.values()))
        self.optimum = replayed.optimum
        if np.median(truth) <= LEAST_MEDIAN * self.optimum:
            raise SpaceError(f"{replayed.key}: half of all configurations are within "
                             f"{WITHIN:.0%} of the best: nothing to search for")
        self.blind = float(truth.mean())
        self.cut = self.optimum + CUT * (float(np.median(truth)) - self.optimum)
        measured = replayed.measured(np.random.default_rng(seed), NOISE_DRAWS)
        order = np.argsort(measured, axis=1, kind="stable")
        failing = len(replayed) - len(truth)
        costs = replayed.costs()
        ranked = np.append(truth[order].mean(0), np.full(failing, self.blind))
        expected = expected_best(ranked)
        self.budget_s = first_time(costs, self.blind, expected, self.cut)
        self.draws = self.budget_s / float(costs.mean())  # of random search within the budget
        self.times = self.budget_s * np.arange(1, points + 1) / points
        self.baseline = over_time(self.times, costs, self.blind, expected)
        near = (truth <= (1 + WITHIN) * self.optimum).astype(float)
        self.within = over_time(self.times, costs, 0, expected_best(
            np.append(near[order].mean(0), np.zeros(failing))))

    def judge(self, run: Run) -> Judged:
        """P of a search by replay."""
        found = value_at(self.times, run, self.blind)
        curve = performance(self.baseline, found, self.optimum)
        within = value_at(self.times, run, float("inf")) <= (1 + WITHIN) * self.optimum
        return Judged(float(curve.mean()), curve, within)

    def place(self, share: float) -> int:
        """The index of the time that is this share of the budget."""
        return max(0, round(share * len(self.times)) - 1)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""
    value: float
    low: float
    high: float


def picks(spaces: int, seed: int, count: int = 2000) -> np.ndarray:
    """Which spaces each resample consists of: the same for all strategies, so that they can be
    compared within resamples."""
    return np.random.default_rng(seed).integers(spaces, size=(count, spaces))


def resampled(scores: Sequence[np.ndarray], chosen: np.ndarray, seed: int) -> np.ndarray:
    """Means over spaces of means over repeats, of each resample: spaces as chosen, and of each the
    repeats with replacement."""
    generator = np.random.default_rng(seed)
    totals = np.zeros(len(chosen))
    for slot in chosen.T:
        for space in np.unique(slot):
            rows = np.flatnonzero(slot == space)
            repeats = scores[space]
            draws = generator.integers(len(repeats), size=(len(rows), len(repeats)))
            totals[rows] += repeats[draws].mean(1)
    return totals / chosen.shape[1]


def estimate(value: float, resamples: np.ndarray) -> Estimate:
    """The interval between the 2.5th and the 97.5th percentile of the resamples."""
    low, high = np.percentile(resamples, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def mean_of(scores: Sequence[np.ndarray]) -> float:
    """The mean over spaces of the means over repeats."""
    return float(np.mean([np.mean(repeats) for repeats in scores]))
