"""`rooflane tune --cluster tcp://HOST:PORT`: one Dask worker per machine, with one evaluation at a
time (remote.py; nodes.py starts them).

Machines of the same fingerprint share a search, with a configuration in flight on each; different
ones have searches of their own. A request may run on any machine of its kind: Dask decides, and
runs it elsewhere if a worker dies. Only this process writes the archive, a trial when its result
is here: what a worker was at when it died was never recorded.
"""
from __future__ import annotations

import argparse
import copy
import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker

from rooflane.archive.store import Archive
from rooflane.evaluator import Comparison, Evaluation, Lost, Refused, Rounds, Step, Target
from rooflane.tuner import command, remote
from rooflane.tuner.search import Search
from rooflane.tuning import (
    Configuration,
    Cost,
    Exhausted,
    History,
    Legal,
    Outcome,
    Proposal,
    Space,
    text_of,
)

RESOURCE = "rooflane"  # one of it a machine
MOST_DEATHS = 3  # workers that a request may take along before it counts as a crash
POLL = 0.5  # seconds between looks at who is alive
CONNECT = 5.0  # seconds to reach the scheduler
ANSWER = 30.0  # and for its answers
WITHOUT_WORKERS = 60.0  # seconds for a machine's last worker to come back
REPEATED = 8  # proposals already in flight, before a strategy has to wait for results


class Gone(ConnectionError):
    """The scheduler, or the last worker of a machine."""


class Stopped(Exception):
    """The user interrupted it."""


class Cluster:
    """A scheduler and the machines behind it. Raises Gone."""

    def __init__(self, address: str, given: argparse.Namespace, options: Sequence[str]):
        self.given, self.options = given, tuple(options)
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._asked: dict[str, Future] = {}  # by worker: who it is
        self._known: dict[str, remote.Machine | str] = {}  # what it said
        self._runs: set[int] = set()
        try:
            self.client = Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise Gone(f"--cluster {address}: no scheduler answers ({error})") from error

    def close(self) -> None:
        """Leaves the cluster; workers end what they are at, and wait for the next."""
        self.client.close(timeout=2)

    def submit(self, workers: set[str], function: Any, *arguments: Any) -> Future:
        """Starts a call on one of the workers."""
        try:
            return self.client.submit(function, *arguments, workers=sorted(workers), pure=False,
                                      allow_other_workers=False, resources={RESOURCE: 1})
        except Exception as error:
            raise Gone(f"the cluster's scheduler is gone ({error})") from error

    def workers(self) -> set[str]:
        """Those that are alive. Raises Gone, Stopped."""
        if self.stop.is_set():
            raise Stopped
        try:
            if self.client.status != "running":
                raise Gone(f"connection {self.client.status}")
            told = self.client.sync(self.client.scheduler.identity, callback_timeout=ANSWER)
        except Exception as error:  # of Dask, Tornado or asyncio
            raise Gone(f"the cluster's scheduler is gone ({error}); the same command with --resume "
                       "goes on") from error
        return {address for address, worker in told["workers"].items()
                if worker["resources"].get(RESOURCE, 0) >= 1}

    def machines(self) -> dict[str, remote.Machine | str | None]:
        """Who the workers are by address, or why one cannot take part; None: not known yet."""
        alive = self.workers()
        with self._lock:
            for worker in alive - self._asked.keys() - self._known.keys():
                self._asked[worker] = self.submit({worker}, remote.describe, self.given,
                                                  self.options)
            for worker, future in list(self._asked.items()):
                if worker in alive and future.status == "pending":
                    continue
                del self._asked[worker]
                try:
                    if worker in alive:
                        self._known[worker] = future.result(timeout=ANSWER)
                except Exception as error:  # whatever Dask or the worker raised
                    self._known[worker] = f"{type(error).__name__}: {error}"
            return {worker: self._known.get(worker) for worker in alive}

    def claim(self, run: int) -> bool:
        """Whether nobody goes on with this run yet: machines that differ in their build only may
        find the same one."""
        with self._lock:
            is_new = run not in self._runs
            self._runs.add(run)
            return is_new

    def groups(self) -> list[remote.Machine]:
        """One of each kind of machine, once all workers told who they are. Raises Unavailable."""
        deadline = time.monotonic() + WITHOUT_WORKERS
        while not (machines := self.machines()) or None in machines.values():
            if not machines and time.monotonic() > deadline:
                raise command.Unavailable("--cluster: it has no worker with the resource "
                                          f"{RESOURCE}: tune.py worker starts one")
            time.sleep(POLL / 5)
        found: dict[tuple[str, ...], remote.Machine] = {}
        for worker, machine in sorted(machines.items()):
            if isinstance(machine, remote.Machine):
                found.setdefault(machine.fingerprint, machine)
            else:
                print(f"rooflane: {worker} cannot take part: {machine}", file=sys.stderr)
        if not found:
            raise command.Unavailable("--cluster: none of its workers can take part")
        return list(found.values())


@dataclass(eq=False)
class Flight:
    """A request that some worker is at."""
    op: str
    arguments: tuple[Any, ...]
    workers: set[str]  # any of them
    future: Future
    deaths: int = 0


class ClusterEvaluator:
    """The interface of Evaluator over the workers of one kind of machine. What is evaluated outside
    a search's flights runs on one of them, the same one as long as it lives."""

    def __init__(self, cluster: Cluster, machine: remote.Machine):
        self._cluster, self._machine = cluster, machine
        self.target: Target | None = None
        self._default = ""
        self._home = ""
        self._flights: list[Flight] = []
        self._excluded: dict[str, Refused | Lost] = {}  # of the target that is open
        self._landed = threading.Event()
        self.facts: dict[str, Any] = {}

    def open(self, target: Target) -> Space:
        """As Evaluator.open. The other workers open the target with their first evaluation; those
        that have another default of their own sit it out."""
        self.target, self._default = target, ""
        self._excluded.clear()
        space, self.facts = self._call("open")
        self._default = text_of(space.default)
        return replace(space, constraints=self)

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """As Evaluator.check."""
        return self._call("check", list(proposals))

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """As Evaluator.nearest."""
        return self._call("nearest", list(proposals))

    def evaluate(self, configurations: Sequence[Configuration], steps: Sequence[Step],
                 best: float = 1, fresh: bool = False) -> list[Evaluation]:
        """As Evaluator.evaluate, on one machine."""
        return self._call("evaluate", list(configurations), list(steps), best, fresh)

    def compare(self, pairs: Sequence[Rounds], level: float = 0.99) -> list[Comparison]:
        """As Evaluator.compare."""
        return self._call("compare", list(pairs), level)

    def keep(self, *arguments: Any) -> None:
        """Writes a verdict into the own store of each machine; one that dies has none."""
        futures = [self._cluster.submit({worker}, remote.keep, *arguments)
                   for worker in sorted(self._members())]
        for future in futures:
            try:
                future.result(timeout=ANSWER)
            except Exception as error:  # the archive has it all the same
                print(f"rooflane: a machine's store was not written: {error}", file=sys.stderr)

    # --- flights -----------------------------------------------------------------------------

    def able(self) -> set[str]:
        """The workers that can evaluate the target; waits for one. Raises Gone, and Refused or Lost
        where none can."""
        deadline = time.monotonic() + WITHOUT_WORKERS
        while True:
            members = self._members()
            if found := members - self._excluded.keys():
                return found
            if members:
                raise next(iter(self._excluded.values()))
            if time.monotonic() > deadline:
                raise Gone(f"no worker is left of {self._machine.key}; the same command with "
                           "--resume goes on")
            time.sleep(POLL)

    def fly(self, configuration: Configuration, steps: Sequence[Step], best: float) -> Flight:
        """Begins an evaluation beside others."""
        flight = self._start("evaluate", ([configuration], list(steps), best), self.able())
        self._flights.append(flight)
        return flight

    def landed(self) -> list[tuple[Flight, Evaluation]]:
        """Waits for flights to end. Raises Gone, Stopped, Refused, Lost."""
        found: list[tuple[Flight, Evaluation]] = []
        while self._flights and not found:
            for flight in list(self._flights):
                if (answer := self._answer(flight)) is not None:
                    self._flights.remove(flight)
                    found.append((flight, answer[0]))
            if not found:
                self._landed.wait(POLL)
                self._landed.clear()
        return found

    def abandon(self) -> None:
        """Forgets all flights: the search was ended from outside."""
        for flight in self._flights:
            flight.future.cancel()
        self._flights.clear()

    def _call(self, op: str, *arguments: Any) -> Any:
        workers = self.able()
        if op == "evaluate" and self._home in workers:
            workers = {self._home}
        flight = self._start(op, arguments, workers)
        while (answer := self._answer(flight)) is None:
            self._landed.wait(POLL)
            self._landed.clear()
        return answer

    def _start(self, op: str, arguments: tuple[Any, ...], workers: set[str]) -> Flight:
        return Flight(op, arguments, workers, self._submit(op, arguments, workers))

    def _submit(self, op: str, arguments: tuple[Any, ...], workers: set[str]) -> Future:
        cluster = self._cluster
        future = cluster.submit(workers, remote.serve, remote.Request(
            op, cluster.options, cluster.given.timeout, self.target, self._default, arguments))
        future.add_done_callback(lambda _: self._landed.set())
        return future

    def _answer(self, flight: Flight) -> Any:
        """What a request came to; None: nothing yet. It begins again where all its workers died,
        its result was lost with one, or one sits the target out. Raises Gone, Stopped, Refused,
        Lost."""
        future = flight.future
        if future.status == "pending" and flight.workers & self._members():
            return None
        answer = None
        try:
            if future.status == "finished":
                answer = future.result(timeout=ANSWER)
            elif future.status == "error":
                raise future.exception(timeout=ANSWER)
        except KilledWorker:  # Dask tried it on as many as it may
            flight.deaths = MOST_DEATHS
        except Exception as error:
            if future.status == "error":  # serve() raises nothing
                raise Lost(f"a worker: {type(error).__name__}: {error}") from error
        if answer is not None and not answer.failure:
            if flight.op == "evaluate":  # `compare` measures nothing: anybody answers it
                self._home = answer.worker
            return answer.value
        if answer is not None:
            failure = (Lost(answer.reason) if answer.failure == "lost"
                       else Refused(answer.reason, answer.status or "FAILED"))
            if answer.failure == "refused" and flight not in self._flights:
                raise failure
            self._excluded[answer.worker] = failure
            print(f"rooflane: {answer.worker} sits {self.target.shape} out: {answer.reason}",
                  file=sys.stderr)
        flight.deaths += answer is None or answer.failure == "lost"
        future.cancel()
        if flight.deaths >= MOST_DEATHS:
            return self._crashed(flight)
        flight.workers = self.able()
        flight.future = self._submit(flight.op, flight.arguments, flight.workers)
        return None

    def _crashed(self, flight: Flight) -> Any:
        """A crash; each of several configurations is tried alone. Raises Lost."""
        reason = f"{MOST_DEATHS} workers died of it"
        if flight.op != "evaluate":
            raise Lost(reason)
        configurations, *more = flight.arguments
        if len(configurations) == 1:
            return [Evaluation(configurations[0], Outcome.CRASH, reason, None, [], [], None, None,
                               0, Cost())]
        return [self.evaluate([one], *more)[0] for one in configurations]

    def _members(self) -> set[str]:
        return {worker for worker, machine in self._cluster.machines().items()
                if isinstance(machine, remote.Machine)
                and machine.fingerprint == self._machine.fingerprint}


@dataclass
class HistoryAhead(History):
    """With what is in flight, which no strategy may propose again."""
    flying: set[str] = field(default_factory=set)

    def tried(self, configuration: Configuration) -> bool:
        """Whether it was evaluated before, or is being evaluated."""
        return text_of(configuration) in self.flying or super().tried(configuration)


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
        self._jobs: dict[Flight, Job] = {}

    def execute(self, batch: int | None = None) -> History:
        """Searches until a limit is reached or the strategy knows nothing further, and all that
        was begun has ended."""
        try:
            while True:
                self._fill()
                if not self._jobs:
                    return self.history
                for flight, found in self.evaluator.landed():
                    self._land(self._jobs.pop(flight), found)
        finally:
            self.evaluator.abandon()

    def _fill(self) -> None:
        while len(self._jobs) < len(self.evaluator.able()) and (job := self._next()):
            best = self.history.best
            flight = self.evaluator.fly(job.proposal.configuration, self.steps,
                                        best.ratio.value if best and best.ratio else 1)
            self._jobs[flight] = job
            self.history.flying.add(text_of(job.proposal.configuration))

    def _land(self, job: Job, found: Evaluation) -> None:
        self.history.flying.discard(text_of(job.proposal.configuration))
        self._record(found, job.proposal, job.strategy, job.seconds)

    def _next(self) -> Job | None:
        if not self.history.trials:  # the default, alone
            return None if self._jobs else Job(Proposal(self.seeds[0]), "seed")
        if self._ended() or (self.history.trials_left is not None
                             and self.history.trials_left <= len(self._jobs)):
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

    def __init__(self, cluster: Cluster, machine: remote.Machine, archive: Archive, alone: bool):
        given = copy.copy(cluster.given)
        if not alone:  # files of each machine
            suffix = hashlib.sha256(" ".join(machine.fingerprint).encode()).hexdigest()[:8]
            for name in ("report", "export", "export_space"):
                if path := getattr(given, name):
                    setattr(given, name, _beside(path, suffix))
        super().__init__(given, list(machine.targets), archive,
                         ClusterEvaluator(cluster, machine))
        self.cluster, self.machine = cluster, machine

    def run(self) -> int:
        """Target by target; the caller reports the results."""
        for index, target in enumerate(self.targets):
            self.progress.target(index)
            try:
                self.tune(target, len(self.targets) - index)
            except (Refused, Lost, Gone) as error:
                self.progress.clear()
                self.failed.append(f"{target.shape} on {self.machine.key}: {error}")
                print(f"rooflane: {self.failed[-1]}", file=sys.stderr)
                if isinstance(error, Gone):
                    break
        return 0

    def line_of(self, done: command.Course) -> str:
        """With the machine's name."""
        return f"{super().line_of(done)}\n  on {self.machine.key}"

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
        """The stores of the machines themselves."""
        self.evaluator.keep(facts["machine"], replace(space, constraints=None), verdict,
                            facts["build"])


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.stem}-{suffix}{path.suffix}")


def run(given: argparse.Namespace, options: Sequence[str]) -> int:
    """`tune` over a cluster; the exit status. Raises what command.main() knows."""
    if given.space:
        raise command.Wrong("--space prints this machine's; leave --cluster out")
    cluster = Cluster(given.cluster, given, options)
    archive = None
    try:
        groups = cluster.groups()
        archive = Archive(given.archive)
        tunings = [ClusterTuning(cluster, machine, archive, len(groups) == 1)
                   for machine in groups]
        with ThreadPoolExecutor(len(tunings)) as pool:
            futures = [pool.submit(tuning.run) for tuning in tunings]
            try:
                wait_for(futures)
            except KeyboardInterrupt:
                cluster.stop.set()
        for future in futures:
            future.result()
        return _tell(given, tunings)
    except (KeyboardInterrupt, Stopped):
        print("interrupted; the same command with --resume goes on", file=sys.stderr)
        return command.INTERRUPTED
    finally:
        if archive is not None:
            archive.close()
        cluster.close()


def _tell(given: argparse.Namespace, tunings: Sequence[ClusterTuning]) -> int:
    failed = [text for tuning in tunings for text in tuning.failed]
    done = [one for tuning in tunings for one in tuning.done]
    if given.json:
        print(json.dumps({"tuned": [{**command.json_of(one), "machine": tuning.machine.key}
                                    for tuning in tunings for one in tuning.done],
                          "failed": failed}, indent=1))
    elif len(done) > 1:
        print(command.overall(done))
    return 3 if failed and not done else 1 if failed else 0
