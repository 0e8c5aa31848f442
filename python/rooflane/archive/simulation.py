"""Kernel Tuner's own strategies over an exported space: python -m rooflane.archive.simulation
CACHE_FILE STRATEGY [EVALUATIONS [SEED]] prints what was evaluated, one JSON object a line.

Runs where the PyPI package kernel-tuner is (1.5.0), on any machine: simulation looks results up and
runs nothing. Needs nothing else of this package.
"""
from __future__ import annotations

import contextlib
import io
import json
import random
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
from constraint import FunctionConstraint
from kernel_tuner import tune_kernel, util

PATIENCE = 3000  # look-ups without a new configuration; a generation asks for tens to hundreds


class Known(FunctionConstraint):
    """Only the configurations of a table. Given half a configuration, it knows whether any row
    begins so: spaces with a product far larger than themselves remain possible."""

    def __init__(self, names: list[str], rows: list[tuple[int, ...]]):
        known = set(rows)
        super().__init__(lambda *values: values in known)
        # For each name and value the rows that have it, a bit each.
        self._rows: dict[str, dict[int, int]] = {name: {} for name in names}
        for bit, row in enumerate(rows):
            for name, value in zip(names, row):
                of_name = self._rows[name]
                of_name[value] = of_name.get(value, 0) | 1 << bit
        self._all = (1 << len(rows)) - 1

    def __call__(self, variables: Any, domains: Any, assignments: dict[str, int],
                 forwardcheck: Any = False, _unassigned: Any = None) -> bool:
        rows = self._all
        for name, value in assignments.items():
            rows &= self._rows[name].get(value, 0)
            if not rows:
                return False
        return True


class Patient(util.TuningBudget):
    """A budget that also ends when nothing new is looked up any longer: some strategies cycle
    around their optimum forever, which on a device costs nothing either and never ends."""
    calls = 0

    def add_evaluations(self, n: int = 1) -> None:
        self.calls = 0
        super().add_evaluations(n)

    def is_done(self) -> bool:
        self.calls += 1
        return self.calls > PATIENCE or super().is_done()

    def raise_exception_if_done(self) -> None:
        super().raise_exception_if_done()
        if self.calls > PATIENCE:
            raise util.StopCriterionReached("nothing new")


def simulate(file: str | Path, strategy: str, evaluations: int | None = None,
             seed: int | None = None) -> list[dict[str, Any]]:
    """What a strategy evaluates, in its order; failures have `__error__`. Configurations that the
    variant refuses are no part of the space; those that fail otherwise are, and cost what they
    did."""
    if seed is not None:
        random.seed(seed)
        numpy.random.seed(seed)
    cache = util.read_cache(str(file), open_cache=False)
    names = cache["tune_params_keys"]
    rows = [tuple(entry[name] for name in names) for entry in cache["cache"].values()
            if not isinstance(entry.get("__error__"), util.InvalidConfig)]
    limited = evaluations is not None and strategy != "brute_force"  # which takes no limit
    options = {"max_fevals": evaluations} if limited else {}
    # The kernel is never compiled; its language only chooses a backend that needs no device.
    with mock.patch.object(util, "TuningBudget", Patient):
        results, _ = tune_kernel(
            cache["kernel_name"], "", cache["problem_size"], [], cache["tune_params"], lang="C",
            restrictions=[Known(names, rows)], strategy=strategy, strategy_options=options,
            cache=str(file), simulation_mode=True, quiet=True)
    return [result for result in results if result]


def main(words: list[str]) -> int:
    """Prints what a strategy evaluates."""
    file, strategy, *numbers = words
    with contextlib.redirect_stdout(io.StringIO()):
        results = simulate(file, strategy, *map(int, numbers))
    for result in results:  # JSON would write an error's text, which lacks its name
        print(json.dumps({name: str(value) if isinstance(value, util.ErrorConfig) else value
                          for name, value in result.items()}, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
