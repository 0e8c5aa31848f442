"""`rooflane tune --cluster tcp://HOST:PORT`: one Dask worker per machine, with one evaluation at a
time (remote.py; nodes.py starts them).

Machines of one kind share a search, with a configuration in flight on each; different ones have
searches of their own. Dask decides which machine of a kind runs a request, and runs it elsewhere if
that dies. Only this process writes the archive, a trial when its result is here: what a worker was
at when it died was never recorded.
"""
from __future__ import annotations

import argparse
import copy
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker

from rooflane.archive.store import Archive
from rooflane.evaluator import Comparison, Lost, Refused, Rounds, Step, Target
from rooflane.tuner import command, remote
from rooflane.tuner.search import Search
from rooflane.tuning import (
    Configuration,
    Exhausted,
    History,
    Legal,
    Outcome,
    Proposal,
    Space,
    Trial,
)

DONE = ("finished", "error", "cancelled")  # of a future; one that was lost is computed again
POLL = 0.5  # seconds between looks at who is alive
CONNECT = 5.0  # seconds to reach the scheduler
ANSWER = 30.0  # and for its answers
WITHOUT_WORKERS = 60.0  # seconds for a kind's last worker to come back
REPEATED = 8  # proposals already in flight, before a strategy has to wait for results


class Gone(ConnectionError):
    """The scheduler, or the last worker of a kind."""


class Stopped(Exception):
    """The user interrupted it."""


class Cluster:
    """A scheduler and the machines behind it. Raises Gone, Stopped."""

    def __init__(self, address: str, given: argparse.Namespace, options: Sequence[str]):
        self.given, self.options = given, tuple(options)
        self.stop = threading.Event()
        self._lock, self._changed = threading.Lock(), threading.Condition()
        self._runs: set[int] = set()
        try:
            self.client = Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise Gone(f"--cluster {address}: no scheduler answers ({error})") from error

    def close(self) -> None:
        """Leaves the cluster; workers end what they are at, and wait for the next."""
        self.client.close(timeout=2)

    def workers(self) -> dict[str, str]:
        """The kinds of those that are alive, by address."""
        if self.stop.is_set():
            raise Stopped
        try:
            if self.client.status != "running":
                raise Gone(f"connection {self.client.status}")
            told = self.client.sync(self.client.scheduler.identity, callback_timeout=ANSWER)
        except Exception as error:  # of Dask, Tornado or asyncio
            raise Gone(f"the cluster's scheduler is gone ({error}); the same command with --resume "
                       "goes on") from error
        return {address: name for address, worker in told["workers"].items()
                for name in worker["resources"] if name.startswith(remote.RESOURCE)}

    def submit(self, kind: str, function: Any, *arguments: Any) -> Future:
        """Starts a call on a machine of a kind."""
        try:
            future = self.client.submit(function, self.given, self.options, *arguments, pure=False,
                                        resources={kind: 1})
            future.add_done_callback(self._tell)
            return future
        except Exception as error:
            raise Gone(f"the cluster's scheduler is gone ({error})") from error

    def _tell(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def first(self, kind: str, futures: Iterable[Future]) -> set[Future]:
        """Waits until some of them are done."""
        waiting, last = list(futures), time.monotonic()
        while not (done := {one for one in waiting if one.status in DONE}):
            with self._changed:
                self._changed.wait(POLL)
            if kind in self.workers().values():
                last = time.monotonic()
            elif time.monotonic() > last + WITHOUT_WORKERS:
                raise Gone(f"no worker is left of the kind {kind}; the same command with --resume "
                           "goes on")
        return done

    def result(self, future: Future) -> Any:
        """What a call that is done came to. Raises what the call raised, KilledWorker where three
        workers died of it."""
        try:
            return future.result(timeout=ANSWER)
        except (Refused, Lost, KilledWorker, command.Wrong, command.Unavailable):
            raise
        except Exception as error:  # of Dask, or of a worker that lacks a package
            self.workers()
            raise Lost(f"a worker: {type(error).__name__}: {error}") from error

    def claim(self, run: int) -> bool:
        """Whether nobody goes on with this run yet: machines that differ in their build only may
        find the same one."""
        with self._lock:
            is_new = run not in self._runs
            self._runs.add(run)
            return is_new

    def targets(self) -> dict[str, list[Target]]:
        """By kind of machine: what is tuned there. Raises Unavailable."""
        deadline = time.monotonic() + WITHOUT_WORKERS
        while not (kinds := set(self.workers().values())):
            if time.monotonic() > deadline:
                raise command.Unavailable("--cluster: it has no worker of rooflane: tune.py worker "
                                          "starts one")
            time.sleep(POLL)
        found = {}
        for kind in sorted(kinds):
            future = self.submit(kind, remote.targets)
            try:
                self.first(kind, [future])
                found[kind] = self.result(future)
            except (command.Wrong, command.Unavailable, Lost, KilledWorker) as error:
                print(f"rooflane: {kind} cannot take part: {error}", file=sys.stderr)
        if not found:
            raise command.Unavailable("--cluster: none of its workers can take part")
        return found


class ClusterEvaluator:
    """The interface of Evaluator over the workers of one kind of machine."""

    def __init__(self, cluster: Cluster, kind: str):
        self.cluster, self.kind = cluster, kind
        self.target: Target | None = None
        self.facts: dict[str, Any] = {}

    def open(self, target: Target) -> Space:
        """As Evaluator.open. The other workers open the target with their first request."""
        self.target = target
        space, self.facts = self._call("open")
        return replace(space, constraints=self)

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """As Evaluator.check."""
        return self._call("check", list(proposals))

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """As Evaluator.nearest."""
        return self._call("nearest", list(proposals))

    def compare(self, pairs: Sequence[Rounds], level: float = 0.99) -> list[Comparison]:
        """As Evaluator.compare."""
        return self._call("compare", list(pairs), level)

    def evaluate(self, configurations: Sequence[Configuration], steps: Sequence[Step],
                 best: float = 1, fresh: bool = False) -> list[Trial]:
        """As Evaluator.evaluate, on one machine; what three of them died of is a crash."""
        future = self.begin("evaluate", list(configurations), list(steps), best, fresh)
        self.cluster.first(self.kind, [future])
        return self.evaluated(future, configurations, steps, best, fresh)

    def begin(self, op: str, *arguments: Any) -> Future:
        """Begins a request beside others."""
        return self.cluster.submit(self.kind, remote.serve, self.target, op, *arguments)

    def evaluated(self, future: Future, configurations: Sequence[Configuration],
                  *more: Any) -> list[Trial]:
        """What an evaluation that is done came to."""
        try:
            return self.cluster.result(future)
        except KilledWorker as error:
            if len(configurations) > 1:
                return [self.evaluate([one], *more)[0] for one in configurations]
            return [Trial(0, configurations[0], Outcome.CRASH,
                          reason=f"{error.allowed_failures + 1} workers died of it")]

    def _call(self, op: str, *arguments: Any) -> Any:
        future = self.begin(op, *arguments)
        self.cluster.first(self.kind, [future])
        try:
            return self.cluster.result(future)
        except KilledWorker as error:
            raise Lost(str(error)) from error


@dataclass
class HistoryAhead(History):
    """With what is in flight, which no strategy may propose again."""
    flying: list[Configuration] = field(default_factory=list)

    def tried(self, configuration: Configuration) -> bool:
        """Whether it was evaluated before, or is being evaluated."""
        return configuration in self.flying or super().tried(configuration)


@dataclass
class Job:
    """What is to be evaluated, and for whom."""
    proposal: Proposal
    strategy: str
    seconds: float = 0  # that the proposal took


class ParallelSearch(Search):
    """A search with as many proposals in flight as there are workers. Trials are numbered in the
    order in which they end, the default first, so that the recorded numbers have no gaps whenever
    it ends."""

    evaluator: ClusterEvaluator

    def __post_init__(self) -> None:
        super().__post_init__()
        self.history: HistoryAhead = HistoryAhead(self.space, self.history.trials)

    def execute(self, batch: int | None = None) -> History:
        """Searches until a limit is reached or the strategy knows nothing further, and all that
        was begun has ended."""
        cluster, kind = self.evaluator.cluster, self.evaluator.kind
        jobs: dict[Future, Job] = {}
        try:
            while True:
                machines = sum(other == kind for other in cluster.workers().values())
                while len(jobs) < max(1, machines) and (job := self._next(len(jobs))):
                    self.history.flying.append(job.proposal.configuration)
                    jobs[self.evaluator.begin("evaluate", [job.proposal.configuration],
                                              self.steps, self._best())] = job
                if not jobs:
                    return self.history
                for future in cluster.first(kind, jobs):
                    job = jobs.pop(future)
                    asked = job.proposal.configuration
                    found, = self.evaluator.evaluated(future, [asked])
                    self.history.flying.remove(asked)
                    self._record(found, job.proposal, job.strategy, job.seconds)
        finally:
            for future in jobs:  # it was ended from outside
                future.cancel()

    def _next(self, flying: int) -> Job | None:
        if not self.history.trials:  # the default, alone
            return None if flying else Job(Proposal(self.seeds[0]), "seed")
        if self._ended() or (self.history.trials_left is not None
                             and self.history.trials_left <= flying):
            return None
        for seed in self.seeds:
            if not self.history.tried(seed):
                return Job(Proposal(seed), "seed")
        begin = time.monotonic()
        for _ in range(REPEATED):
            try:
                proposal = self.strategy.propose(self.history)
            except Exhausted:
                return None
            if not self.history.tried(proposal.configuration):
                return Job(proposal, self.strategy.name, time.monotonic() - begin)
        return None


class ClusterTuning(command.Tuning):
    """All targets on one kind of machine."""

    search = ParallelSearch

    def __init__(self, cluster: Cluster, kind: str, targets: list[Target], archive: Archive,
                 alone: bool):
        given = copy.copy(cluster.given)
        for name in () if alone else ("report", "export", "export_space"):  # files of each kind
            if path := getattr(given, name):
                setattr(given, name, _beside(path, kind.removeprefix(remote.RESOURCE)))
        super().__init__(given, targets, archive, ClusterEvaluator(cluster, kind))
        self.cluster, self.kind = cluster, kind

    def run(self) -> int:
        """Target by target; the caller reports the results."""
        for index, target in enumerate(self.targets):
            self.progress.target(index)
            try:
                self.attempt(target, self.tune, target, len(self.targets) - index)
            except Gone as error:
                self.fail(target, error)
                break
        return 0

    def line_of(self, done: command.Course) -> str:
        """With the machine's name."""
        return f"{super().line_of(done)}\n  on {machine_of(done)}"

    def run_of(self, space: Space, facts: dict[str, Any]) -> int:
        """As Tuning.run_of; of machines that find the same run, the first goes on with it."""
        run = super().run_of(space, facts)
        if self.cluster.claim(run):
            return run
        self.given.resume = False
        try:
            return self.run_of(space, facts)
        finally:
            self.given.resume = True

    def keep_in_store(self, space: Space, verdict: Any, facts: dict[str, Any]) -> None:
        """The stores of the machines themselves; one that dies has none."""
        workers = [one for one, kind in self.cluster.workers().items() if kind == self.kind]
        told = self.cluster.client.run(
            remote.keep, facts["machine"], replace(space, constraints=None), verdict,
            facts["build"], workers=workers, on_error="return")
        for error in told.values():
            if error is not None:  # the archive has it all the same
                print(f"rooflane: a machine's store was not written: {error}", file=sys.stderr)


def machine_of(done: command.Course) -> str:
    """Where it was tuned."""
    return ", ".join(filter(None, (done.facts["machine"]["key"], done.space.device)))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.stem}-{suffix}{path.suffix}")


def run(given: argparse.Namespace, options: Sequence[str]) -> int:
    """`tune` over a cluster; the exit status. Raises what command.main() knows."""
    if given.space:
        raise command.Wrong("--space prints this machine's; leave --cluster out")
    cluster = Cluster(given.cluster, given, options)
    archive = None
    try:
        targets = cluster.targets()
        archive = Archive(given.archive)
        tunings = [ClusterTuning(cluster, kind, list(of_kind), archive, len(targets) == 1)
                   for kind, of_kind in targets.items()]
        with ThreadPoolExecutor(len(tunings)) as pool:
            futures = [pool.submit(tuning.run) for tuning in tunings]
            try:
                wait_for(futures)
            except KeyboardInterrupt:
                cluster.stop.set()
        for future in futures:
            future.result()
        return command.tell_all(given, tunings, lambda one: {
            **command.json_of(one), "machine": machine_of(one)})
    except (KeyboardInterrupt, Stopped):
        print("interrupted; the same command with --resume goes on", file=sys.stderr)
        return command.INTERRUPTED
    finally:
        if archive is not None:
            archive.close()
        cluster.close()
