"""The sampler: how often a run is repeated for a sample, as in src/measure/sampler.cpp."""
from __future__ import annotations

import time

WARM_UP_RUNS = 20
WARM_UP_NS = 20e6
AGREEMENT = 0.05
LEAST_SAMPLE_NS = 1e6
MOST_RUNS = 1_000_000
CALIBRATIONS = 5
CALIBRATION_NS = 50e6


def warm_up(run) -> float:
    """Runs untimed until two successive runs agree within 5 %, bounded; the last run's time."""
    clock = time.perf_counter_ns
    begin = start = clock()
    previous = 0
    for i in range(WARM_UP_RUNS):
        run()
        end = clock()
        elapsed = end - start
        if i > 0 and abs(elapsed - previous) <= AGREEMENT * max(elapsed, previous):
            break
        if end - begin >= WARM_UP_NS:
            break
        previous = elapsed
        start = end
    return float(elapsed)


def time_runs(run, runs: int) -> float:
    """Mean time in ns of one of `runs` back-to-back runs."""
    clock = time.perf_counter_ns
    repeat = range(runs)
    start = clock()
    for _ in repeat:
        run()
    return (clock() - start) / runs


def undisturbed_run_ns(run) -> float:
    """The least of several timings of a warm run, like in sampler.hpp."""
    clock = time.perf_counter_ns
    least = warm_up(run)
    begin = clock()
    for _ in range(CALIBRATIONS):
        if clock() - begin + least > CALIBRATION_NS:
            break
        least = min(least, time_runs(run, (runs_for_sample(least) + 3) // 4))
    return least


def runs_for_sample(run_ns: float) -> int:
    """How many back-to-back runs last at least a millisecond."""
    if run_ns <= 0:
        return MOST_RUNS
    return min(max(-int(-LEAST_SAMPLE_NS // run_ns), 1), MOST_RUNS)
