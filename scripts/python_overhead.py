#!/usr/bin/env python3
"""Measures what Python adds to a run: python_overhead.py [--rounds N] [--runs N].

Compares plan.run() of a tiny plan in a Python loop with the same runs in a C++ loop, in alternating
rounds, and the cost of a function call with NumPy's. Runs in the environment that the package was
built with (scripts/bindings_environment.py).
"""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "build" / "python"


def enter() -> None:
    """Goes on in the interpreter that has NumPy, with the package on its path."""
    from bindings_environment import standing
    python = standing()
    if str(PACKAGE) in sys.path:
        return
    os.execve(python, [python, *sys.argv], {**os.environ, "PYTHONPATH": str(PACKAGE)})


def each_ns(call: Callable[[], object], runs: int) -> float:
    """Mean time of a call in a loop."""
    repeat = range(runs)
    start = time.perf_counter_ns()
    for _ in repeat:
        call()
    return (time.perf_counter_ns() - start) / runs


def told(name: str, values: list[float]) -> None:
    """The median of the rounds and how far they lie apart."""
    low, middle, high = statistics.quantiles(values, n=4)
    print(f"{name:44} {middle:8.0f} ns  [{low:.0f}, {high:.0f}]")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures what Python adds to a run.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20000, help="runs of each kind in a round")
    given = parser.parse_args()
    enter()
    import numpy as np
    import rooflane
    x, out = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.float32)
    a = np.zeros((16, 16), np.float32)
    c = np.empty_like(a)
    plan = rooflane.plan("softmax", x=x, y=out, threads=1)
    kinds: dict[str, Callable[[], float]] = {
        "run from C++": lambda: plan.time_runs(given.runs),
        "plan.run()": lambda: each_ns(plan.run, given.runs),
        "rooflane.softmax(x, out=y), 16 elements":
            lambda: each_ns(lambda: rooflane.softmax(x, out=out, threads=1), given.runs // 10),
        "rooflane.gemm(a, b, out=c), 16 by 16":
            lambda: each_ns(lambda: rooflane.gemm(a, a, out=c, threads=1), given.runs // 10),
        "numpy.matmul(a, b, out=c), 16 by 16":
            lambda: each_ns(lambda: np.matmul(a, a, out=c), given.runs // 10)}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(given.rounds):
        for name, measure in kinds.items():
            times[name].append(measure())
    for name, values in times.items():
        told(name, values)
    told("plan.run() beyond C++", [python - cpp for python, cpp
                                   in zip(times["plan.run()"], times["run from C++"])])
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())
