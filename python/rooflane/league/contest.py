"""Runs strategies over spaces, a hundred times each, and keeps what came of it in a file of JSON
lines, so that a league that was interrupted goes on. standings.py makes tables of it."""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rooflane.league import replay as replays
from rooflane.league.arguments import REPEATS, ROUNDS, SEED_POINTS
from rooflane.league.score import SHARES, Judge
from rooflane.league.spaces import Record, key_of, read
from rooflane.tuning import Configuration, Space, Strategy

CURVE = 100  # points that are kept of the mean P over time


class Entrants(Protocol):
    """Who makes strategies: the module rooflane.strategies, or a test."""

    def make(self, name: str, space: Space, seed: int, options: Any) -> Strategy:
        """A strategy by its name."""

    def seeds(self, space: Space, count: int) -> list[Configuration]:
        """Where all strategies start."""


@dataclass(frozen=True)
class Settings:
    """What a league's figures depend on, beside the spaces and the strategies."""
    repeats: int = REPEATS
    rounds: int = ROUNDS  # drawn per evaluation
    seed_points: int = SEED_POINTS
    seed: int = 0
    # Seconds of a proposal, by strategy; of the others they are measured.
    latency_s: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Result:
    """A strategy in a space: a figure per repeat."""
    strategy: str
    space: str
    kernel: str
    variant: str
    made_with: str  # the settings and the space's content
    scores: list[float]
    at: dict[str, list[float]]  # share of the budget -> P then
    within: dict[str, list[bool]]  # share of the budget -> whether the winner is within 1 % then
    curve: list[float]  # mean over repeats of P at CURVE equidistant times
    evaluations: list[int]
    baseline_within: dict[str, float]  # of the calculated random search
    failure: str = ""  # why there are no figures


def judged(strategy: str, made: Record, made_with: str, judge: Judge,
           runs: Sequence[replays.Run]) -> Result:
    """The figures of a strategy's searches."""
    found = [judge.judge(run) for run in runs]
    places = {f"{share:g}": judge.place(share) for share in SHARES}
    mean = np.mean([one.curve for one in found], axis=0)
    kept = [judge.place(number / CURVE) for number in range(1, CURVE + 1)]
    return Result(
        strategy, key_of(made), made["kernel"], made["variant"], made_with,
        scores=[round(one.score, 6) for one in found],
        at={share: [round(float(one.curve[place]), 6) for one in found]
            for share, place in places.items()},
        within={share: [bool(one.within[place]) for one in found]
                for share, place in places.items()},
        curve=[round(float(mean[place]), 6) for place in kept],
        evaluations=[run.evaluations for run in runs],
        baseline_within={share: round(float(judge.within[place]), 6)
                         for share, place in places.items()})


def identity(made: Record, strategy: str, settings: Settings) -> str:
    """Changes whenever the figures would."""
    told = asdict(settings) | {"latency_s": settings.latency_s.get(strategy)}
    content = json.dumps([told, made], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def play(made: Record, strategy: str, settings: Settings, entrants: Entrants,
         judge: Judge | None = None, options: Any = None) -> Result:
    """All repeats of a strategy in a space. What the strategy raises is the result's failure."""
    replayed = replays.ReplayedSpace(made, settings.rounds)
    judge = judge or Judge(replayed, settings.seed)
    rules = replays.Rules(judge.budget_s, settings.latency_s.get(strategy))
    made_with = identity(made, strategy, settings)

    def build(space: Space, seed: int) -> Strategy:
        return entrants.make(strategy, space, seed, options)

    try:
        seeds = entrants.seeds(replayed.space, settings.seed_points)
        repeats = [settings.seed + repeat for repeat in range(settings.repeats)]
        runs = [replays.replay(replayed, build, seeds, repeat, rules) for repeat in repeats]
    except Exception as error:  # whatever a strategy does wrong is its result
        return Result(strategy, key_of(made), made["kernel"], made["variant"], made_with,
                      [], {}, {}, [], [], {}, failure=f"{type(error).__name__}: {error}")
    return judged(strategy, made, made_with, judge, runs)


@lru_cache(maxsize=1)
def _records(path: Path) -> dict[str, Record]:
    return {key_of(made): made for made in read(path)}


@lru_cache(maxsize=2)
def _judge(path: Path, key: str, settings_rounds: int, seed: int) -> Judge:
    return Judge(replays.ReplayedSpace(_records(path)[key], settings_rounds), seed)


def _task(path: Path, key: str, strategy: str, settings: Settings) -> Result:
    from rooflane import strategies
    judge = _judge(path, key, settings.rounds, settings.seed)
    return play(_records(path)[key], strategy, settings, strategies, judge)


def kept(file: Path) -> list[Result]:
    """What was kept; a line that was cut off is left out."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(Result(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def keep(file: Path, result: Result) -> None:
    """Adds a line, whole on its own even where the line before was cut off."""
    line = json.dumps(asdict(result), allow_nan=False)
    with open(file, "a+b") as out:
        if out.tell() and (out.seek(-1, os.SEEK_END), out.read(1))[1] != b"\n":
            line = "\n" + line
        out.write((line + "\n").encode())


def contest(path: Path, chosen: Sequence[Record], strategies: Sequence[str], settings: Settings,
            jobs: int, file: Path | None, told: Callable[[str], None]) -> Iterator[Result]:
    """Every strategy in every space of the file `path`, in `jobs` processes; what `file`
    holds already is not done again."""
    tasks = {(key_of(made), strategy): identity(made, strategy, settings)
             for made in chosen for strategy in strategies}
    before = {}
    for result in kept(file) if file else ():
        if tasks.get((result.space, result.strategy)) == result.made_with and not result.failure:
            before[result.space, result.strategy] = result
    yield from before.values()
    left = [task for task in tasks if task not in before]
    if before:
        told(f"{len(before)} of {len(tasks)} are in {file}")
    for number, result in enumerate(_done(path, left, settings, jobs), 1):
        if file:
            keep(file, result)
        told(f"{number}/{len(left)} {result.strategy}: {result.space}: "
             + (result.failure or f"P {np.mean(result.scores):.3f}"))
        yield result


def _done(path: Path, tasks: Iterable[tuple[str, str]], settings: Settings,
          jobs: int) -> Iterator[Result]:
    if jobs == 1:
        for key, strategy in tasks:
            yield _task(path, key, strategy, settings)
        return
    # Fresh processes, with one thread each for numpy: they are read when it is loaded.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_task, path, key, strategy, settings) for key, strategy in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
