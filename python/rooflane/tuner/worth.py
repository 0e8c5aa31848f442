"""Where the next evaluations of several searches pay: expected gain times weight.

A batch of BATCH evaluations may find what the cost model predicts, within the interval of its
predictions, and what the strategy finds by itself. Pure functions; command.py takes the batches.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import NormalDist

from rooflane.tuning import History, text_of

BATCH = 10  # evaluations: changing from one problem to another costs about one
# The standard error of a predicted ratio of two schedules, as a logarithm, of models without a fit:
# about as that of those with one (src/core/prediction_error.cpp).
# Before anything was measured, an error counts as so many predictions.
USUAL_ERROR, USUAL_COUNT = 0.30, 4
# The gain of a strategy's first batch where nothing is known; each batch without success halves it.
USUAL_GAIN = 0.03
# A search stops when a batch promises less: four repetitions show twice as much.
DOUBT = 0.005
STEPS = 64  # of the integral below


class ModelErrors:
    """How far the cost model's ratios are from measured ones, by kernel and arithmetic: what the
    fit left on problems that it did not see, corrected by what is measured now. Where the model was
    right its interval is narrow, and its second choices are not tried for long."""

    def __init__(self) -> None:
        self._squares: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)

    def learn(self, history: History) -> None:
        """The candidates that were measured."""
        space = history.space
        predicted = predicted_ratios(history)
        self._squares[space.kernel, space.math][space.title] = [
            (math.log(trial.ratio.value) - predicted[text_of(trial.configuration)]) ** 2
            for trial in history.trials
            if trial.correct and trial.configuration != space.default
            and text_of(trial.configuration) in predicted]

    def of(self, history: History) -> float:
        """The standard error of a prediction."""
        groups = self._squares[history.space.kernel, history.space.math].values()
        squares = [square for group in groups for square in group]
        prior = history.space.prediction_error or USUAL_ERROR
        return math.sqrt((USUAL_COUNT * prior ** 2 + sum(squares))
                         / (USUAL_COUNT + len(squares)))


def predicted_ratios(history: History) -> dict[str, float]:
    """Logarithms of the candidates' predicted times over the default's."""
    told = {text_of(one.configuration): one.predicted_ns for one in history.space.candidates}
    default = told.get(text_of(history.space.default))
    if not default:
        return {}
    return {text: math.log(ns / default) for text, ns in told.items() if ns}


def expected_gain(best: float, means: Iterable[float], error: float) -> float:
    """By how much the least of normal values is below `best`, in the mean, where it is: expected
    improvement (Jones, Schonlau and Welch, 1998) of several at once."""
    values = [NormalDist(mean, error) for mean in means]
    if not values:
        return 0.0
    low = min(one.mean for one in values) - 4 * error
    width = max(0.0, best - low) / STEPS
    return width * sum(1 - math.prod(1 - one.cdf(low + (step + 0.5) * width) for one in values)
                       for step in range(STEPS))


def gain_of_batch(history: History, errors: ModelErrors, batches: int, last: float) -> float:
    """The logarithm of the speed-up that the next batch is expected to bring. `batches` were taken,
    and the last of them brought `last`."""
    best = math.log(history.best.ratio.value) if history.best else 0.0
    tried = {text_of(trial.configuration) for trial in history.trials}
    left = sorted(mean for text, mean in predicted_ratios(history).items() if text not in tried)
    return max(expected_gain(best, left[:BATCH], errors.of(history)),
               USUAL_GAIN / 2 ** batches, last / 2)


def seconds_of(history: History) -> float:
    """What a call takes with the best schedule that was found."""
    default = next((trial for trial in history.trials
                    if trial.configuration == history.space.default and trial.ns), None)
    if default is None or history.best is None:
        return 0.0
    ordered = sorted(default.ns)
    return 1e-9 * ordered[len(ordered) // 2] * history.best.ratio.value


def saved_by_best(history: History, weight: float) -> float:
    """Seconds that the best schedule saves over the default, by what the search measured."""
    if history.best is None:
        return 0.0
    return weight * seconds_of(history) * (1 / history.best.ratio.value - 1)
