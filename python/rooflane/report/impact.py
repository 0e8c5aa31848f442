"""What the trials of a run say about its tunables, and about sizes. Three measures of a tunable's
impact, which answer different questions and are never mixed:

- one at a time: what a tunable alone changes, from the best configuration. No other does.
- fANOVA: the share of the variance over the whole space that a tunable explains by itself, from a
  random forest fitted to the trials. It counts what slow regions do, too.
- consecutive attempts: the mean change of the speed-up between an attempt and the next one when the
  tunable changed. Others changed with it, so that this is about the search more than the tunable.
"""
from __future__ import annotations

import math
import statistics
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rooflane.tuning import Neighbour, Outcome, Trial

STABLE = 0.7
LEAST_TRIALS = 8  # fewer say nothing about a variance


@dataclass
class OneAtATime:
    """The trials that differ from the best in one tunable alone."""
    name: str
    best: int
    slower: dict[int, float] = field(default_factory=dict)  # value -> time over the best's
    failed: dict[int, str] = field(default_factory=dict)  # value -> outcome

    @property
    def spread(self) -> float | None:
        """The most that this tunable alone costs, as times; nothing where none was tried."""
        return max(self.slower.values(), default=None)


def one_at_a_time(trials: Sequence[Trial], best: Trial) -> list[OneAtATime]:
    """For each tunable, in their order; what was tried, not what could be."""
    found = {name: OneAtATime(name, value) for name, value in best.configuration.items()}
    for trial in trials:
        changed = [name for name, value in best.configuration.items()
                   if trial.configuration.get(name) != value]
        if len(changed) != 1 or changed[0] not in trial.configuration:
            continue
        one, value = found[changed[0]], trial.configuration[changed[0]]
        if trial.correct:
            one.slower[value] = trial.ratio.value / best.ratio.value
            one.failed.pop(value, None)
        elif value not in one.slower:
            one.failed[value] = trial.outcome.value
    for one in found.values():
        one.slower = dict(sorted(one.slower.items()))
    return list(found.values())


@dataclass
class Fanova:
    """The shares of variance that sum to 1; or why there are none."""
    shares: dict[str, float] = field(default_factory=dict)
    missing: str = ""


def fanova(trials: Sequence[Trial], seed: int = 0) -> Fanova:
    """Optuna's fANOVA of the logarithm of the ratio, over the places of the values."""
    correct = [trial for trial in trials if trial.correct]
    if len(correct) < LEAST_TRIALS:
        return Fanova(missing=f"{len(correct)} correct trials; at least {LEAST_TRIALS} are needed")
    values = {name: sorted({trial.configuration[name] for trial in correct})
              for name in correct[0].configuration
              if all(name in trial.configuration for trial in correct)}
    values = {name: found for name, found in values.items() if len(found) > 1}
    heights = [math.log(trial.ratio.value) for trial in correct]
    if not values or max(heights) - min(heights) < 1e-12:
        return Fanova(missing="all correct trials are alike")
    try:
        import sklearn  # noqa: F401  optuna says so only when it evaluates
    except ImportError:
        return Fanova(missing="scikit-learn is not installed")
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    scales = {name: optuna.distributions.IntDistribution(0, len(found) - 1)
              for name, found in values.items()}
    study = optuna.create_study()
    for trial, height in zip(correct, heights):
        places = {name: found.index(trial.configuration[name]) for name, found in values.items()}
        study.add_trial(optuna.trial.create_trial(params=places, distributions=scales,
                                                  value=height))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=seed))
    return Fanova({name: float(share) for name, share in shares.items()})


@dataclass
class Change:
    """What the speed-up did from an attempt to the next when this tunable changed."""
    name: str
    count: int
    mean: float  # of (next - this) / this
    size: float  # the mean of its absolute value


def consecutive(trials: Sequence[Trial]) -> list[Change]:
    """The effect of each tunable that changed between two correct attempts in a row, largest first.
    An attempt that failed ends a row: what would it be compared with?"""
    changes: dict[str, list[float]] = {}
    for one, other in zip(trials, trials[1:]):
        if not (one.correct and other.correct):
            continue
        relative = (other.speed_up - one.speed_up) / one.speed_up
        for name, value in other.configuration.items():
            if one.configuration.get(name) != value:
                changes.setdefault(name, []).append(relative)
    found = [Change(name, len(all_), statistics.fmean(all_), statistics.fmean(map(abs, all_)))
             for name, all_ in changes.items()]
    return sorted(found, key=lambda change: -change.size)


@dataclass
class Stability:
    """The speed-ups of one configuration over sizes."""
    score: float | None  # 1 - population deviation / mean; nothing where no size is correct
    low: float
    high: float
    all_correct: bool
    sizes: list[Neighbour]

    @property
    def stable(self) -> bool:
        """Above 0.7 and correct everywhere."""
        return self.score is not None and self.score > STABLE and self.all_correct


def stability(sizes: Sequence[Neighbour]) -> Stability | None:
    """Over these sizes; nothing with less than two, which say nothing."""
    if len(sizes) < 2:
        return None
    is_correct = [size.outcome is Outcome.CORRECT and size.ratio is not None for size in sizes]
    speed_ups = [1 / size.ratio.value for size, fine in zip(sizes, is_correct) if fine]
    if not speed_ups:
        return Stability(None, 0, 0, False, list(sizes))
    score = 1 - statistics.pstdev(speed_ups) / statistics.fmean(speed_ups)
    return Stability(score, min(speed_ups), max(speed_ups), all(is_correct), list(sizes))


@dataclass
class Failure:
    """Trials that failed alike."""
    outcome: str
    reason: str
    count: int
    first: Trial


def failures(trials: Sequence[Trial]) -> list[Failure]:
    """By outcome and reason, the most frequent first."""
    counts = Counter((trial.outcome.value, trial.reason) for trial in trials if not trial.correct)
    firsts: dict[tuple[str, str], Trial] = {}
    for trial in trials:
        firsts.setdefault((trial.outcome.value, trial.reason), trial)
    return [Failure(*key, count, firsts[key]) for key, count in counts.most_common()]
