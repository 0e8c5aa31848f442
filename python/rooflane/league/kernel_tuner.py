"""Strategies of Kernel Tuner in the league, by its own simulation of our spaces.

Each repeat gives it a cache file with one measurement of every configuration, drawn from the
recorded rounds as our own strategies' evaluations are; what it evaluates, in its order, is charged
and judged as theirs is. Its strategies cannot be told of evaluations before theirs, so that our
seed points are put in front, and are not charged again where it comes to them.

As a program, in Kernel Tuner's environment: python -m rooflane.league.kernel_tuner TASKS.json.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflane.league.replay import ReplayedSpace, Rules, Run
from rooflane.tuning import Configuration, Trial, text_of

PREFIX = "kt:"
PACKAGES = ["kernel-tuner==1.5.0"]
PYTHON = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """Kernel Tuner cannot be had, or ended with an error; the text says which."""


def interpreter() -> str:
    """The interpreter of the environment with the package, made now if need be. Raises Failed."""
    sys.path.insert(0, str(PYTHON.parent / "scripts"))
    from python_environment import Unavailable, with_packages
    try:
        return str(with_packages("kernel-tuner", PACKAGES))
    except Unavailable as reason:
        raise Failed(f"Kernel Tuner's environment cannot be had: {reason}") from reason
    finally:
        sys.path.pop(0)


def runs(replayed: ReplayedSpace, strategy: str, seeds: Sequence[Configuration],
         repeats: Sequence[int], rules: Rules) -> list[Run]:
    """A search for each seed of `repeats`. Raises Failed."""
    costs = np.sort(replayed.costs())
    most = int(np.searchsorted(np.cumsum(costs), rules.budget_s)) + 1  # that fit, at the cheapest
    measured = [measurements(replayed, seed) for seed in repeats]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = []
        for number, (seed, trials) in enumerate(zip(repeats, measured)):
            cache = folder / f"{number}.json"
            cache.write_text(cache_of(replayed, list(trials.values())), encoding="utf-8")
            tasks.append({"file": str(cache), "strategy": strategy,
                          "evaluations": min(most, len(replayed)), "seed": seed})
        (folder / "tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
        found = _ask(folder)
    return [charged(replayed, trials, seeds, evaluated, rules)
            for trials, evaluated in zip(measured, found, strict=True)]


def measurements(replayed: ReplayedSpace, seed: int) -> dict[str, Trial]:
    """What a search would measure of each configuration."""
    generator = np.random.default_rng(seed)
    return {text_of(configuration): replayed.evaluate(number, configuration, "all", generator)
            for number, configuration in enumerate(replayed.configurations())}


def cache_of(replayed: ReplayedSpace, trials: list[Trial]) -> str:
    """Kernel Tuner's cache file of these."""
    from rooflane.archive import kernel_tuner
    from rooflane.archive.records import BUILD, RunRecord, now, whole
    from rooflane.archive.records import MACHINE as PARTS
    at = now()
    return kernel_tuner.write([RunRecord(
        "", replayed.space, whole({}, PARTS, "machine"), whole({}, BUILD, "build"), "all", {}, at,
        at, "finished", trials=trials, times=[at] * len(trials))])


def _ask(folder: Path) -> list[list[dict[str, Any]]]:
    done = subprocess.run(
        [interpreter(), "-m", "rooflane.league.kernel_tuner", str(folder / "tasks.json")],
        capture_output=True, text=True, errors="replace", check=False, cwd=folder,
        stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(PYTHON)})
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))


def charged(replayed: ReplayedSpace, trials: dict[str, Trial], seeds: Sequence[Configuration],
            evaluated: list[dict[str, Any]], rules: Rules) -> Run:
    """The search in time: the seeds, then what Kernel Tuner evaluated, until the budget ends."""
    run, elapsed, best, seen = Run(), 0.0, None, set()
    order = [(text_of(seed), 0.0) for seed in seeds]
    order += [(text_of(one["configuration"]), one["seconds"]) for one in evaluated]
    for number, (text, thought) in enumerate(order):
        if number >= len(seeds):
            elapsed += rules.latency_s if rules.latency_s is not None else thought
        if elapsed >= rules.budget_s:
            break
        if text in seen:
            continue
        seen.add(text)
        elapsed += replayed.cost(text).total
        trial = trials[text]
        if trial.correct and (best is None or trial.ratio.value < best.ratio.value):
            best = trial
        run.add(elapsed, best, replayed.truth)
    return run


def main(words: list[str]) -> int:
    """Simulates each task, and writes what was evaluated beside the file of tasks."""
    import contextlib

    from rooflane.archive.simulation import simulate
    tasks = Path(words[0])
    found = []
    for task in json.loads(tasks.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(sys.stderr):
            results = simulate(task["file"], task["strategy"], task["evaluations"], task["seed"])
        names = json.loads(Path(task["file"]).read_text(encoding="utf-8"))["tune_params_keys"]
        found.append([{"configuration": {name: int(result[name]) for name in names},
                       "seconds": float(result.get("strategy_time") or 0) / 1e3}
                      for result in results])
    (tasks.parent / "found.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
