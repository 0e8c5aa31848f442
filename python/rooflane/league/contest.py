"""Runs strategies over spaces, a hundred times each, and keeps what came of it in a file of JSON
lines, so that a league that was interrupted goes on. standings.py makes tables of it."""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from rooflane import strategies
from rooflane.league import replay as replays
from rooflane.league.arguments import REPEATS, ROUNDS, SEED_POINTS
from rooflane.league.score import SHARES, Judge
from rooflane.league.spaces import Record, key_of, read
from rooflane.tuning import Space, Strategy


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
    group: str  # "gemm hwy"
    made_with: str  # the settings and the space's content
    scores: list[float] = field(default_factory=list)
    at: dict[str, list[float]] = field(default_factory=dict)  # share of the budget -> P then
    # Share of the budget -> whether the winner is within 1 % then.
    within: dict[str, list[bool]] = field(default_factory=dict)
    evaluations: list[int] = field(default_factory=list)
    baseline_within: dict[str, float] = field(default_factory=dict)  # of random search
    failure: str = ""  # why there are no figures


def identity(made: Record, strategy: str, settings: Settings) -> str:
    """Changes whenever the figures would."""
    told = asdict(settings) | {"latency_s": settings.latency_s.get(strategy)}
    content = json.dumps([told, made], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def play(made: Record, strategy: str, settings: Settings, judge: Judge | None = None) -> Result:
    """All repeats of a strategy in a space. What the strategy raises is the result's failure."""
    replayed = replays.ReplayedSpace(made, settings.rounds)
    judge = judge or Judge(replayed, settings.seed)
    rules = replays.Rules(judge.budget_s, settings.latency_s.get(strategy))
    result = Result(strategy, key_of(made), f"{made['kernel']} {made['variant']}",
                    identity(made, strategy, settings))

    def build(space: Space, seed: int) -> Strategy:
        return strategies.make(strategy, space, seed)

    try:
        seeds = strategies.seeds(replayed.space, settings.seed_points)
        runs = [replays.replay(replayed, build, seeds, settings.seed + repeat, rules)
                for repeat in range(settings.repeats)]
    except Exception as error:  # whatever a strategy does wrong is its result
        result.failure = f"{type(error).__name__}: {error}"
        return result
    found = [judge.judge(run) for run in runs]
    result.scores = [round(one.score, 6) for one in found]
    for share in SHARES:
        place = judge.place(share)
        result.at[f"{share:g}"] = [round(float(one.curve[place]), 6) for one in found]
        result.within[f"{share:g}"] = [bool(one.within[place]) for one in found]
        result.baseline_within[f"{share:g}"] = round(float(judge.within[place]), 6)
    result.evaluations = [run.evaluations for run in runs]
    return result


@lru_cache(maxsize=1)
def _records(path: Path) -> dict[str, Record]:
    return {key_of(made): made for made in read(path)}


@lru_cache(maxsize=2)
def _judge(path: Path, key: str, rounds: int, seed: int) -> Judge:
    return Judge(replays.ReplayedSpace(_records(path)[key], rounds), seed)


def _task(path: Path, key: str, strategy: str, settings: Settings) -> Result:
    return play(_records(path)[key], strategy, settings,
                _judge(path, key, settings.rounds, settings.seed))


def kept(file: Path) -> list[Result]:
    """What was kept; a line that was cut off, or is of another version, is left out."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            told = json.loads(line)
            found.append(Result(**{one.name: told[one.name] for one in fields(Result)}))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def contest(path: Path, chosen: Sequence[Record], names: Sequence[str], settings: Settings,
            jobs: int, file: Path | None, told: Callable[[str], None]) -> Iterator[Result]:
    """Every strategy in every space of the file `path`, in `jobs` processes; what `file` holds
    already is not done again."""
    tasks = {(key_of(made), name): identity(made, name, settings)
             for made in chosen for name in names}
    before = {(result.space, result.strategy): result for result in (kept(file) if file else ())
              if tasks.get((result.space, result.strategy)) == result.made_with
              and not result.failure}
    yield from before.values()
    left = [task for task in tasks if task not in before]
    if before:
        told(f"{len(before)} of {len(tasks)} are in {file}")
    for number, result in enumerate(_done(path, left, settings, jobs), 1):
        if file:
            with open(file, "a", encoding="utf-8") as out:  # a cut line before spoils no other
                out.write("\n" * bool(out.tell()) + json.dumps(asdict(result), allow_nan=False))
        told(f"{number}/{len(left)} {result.strategy}: {result.space}: "
             + (result.failure or f"P {np.mean(result.scores):.3f}"))
        yield result


def _done(path: Path, tasks: Sequence[tuple[str, str]], settings: Settings,
          jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from (_task(path, key, strategy, settings) for key, strategy in tasks)
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
