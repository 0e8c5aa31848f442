"""The program that evaluates: `rooflane evaluate` over JSON lines.

It stays alive while candidates crash or hang, because each runs in a separate worker process. If it
ends nevertheless, `Lost` is raised and the next call starts it again.
"""
from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflane import program, spaces
from rooflane.tuning import (
    Configuration,
    Cost,
    Legal,
    Outcome,
    Ratio,
    Space,
    Trial,
    configuration_of,
    text_of,
)

PROTOCOL = 1

OUTCOMES = {"PASSED": Outcome.CORRECT, "INACCURATE": Outcome.CORRECT,
            "FAILED": Outcome.INCORRECT, "UNSUPPORTED": Outcome.REFUSED,
            "BUILD_ERROR": Outcome.BUILD_ERROR, "TIMEOUT": Outcome.TIMEOUT,
            "RUNTIME_ERROR": Outcome.CRASH}


class Refused(Exception):
    """A request that the program answered with a reason. `status` is the program's word for it."""

    def __init__(self, reason: str, status: str = "FAILED"):
        super().__init__(reason)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.status)  # a worker of a cluster raises it, too


class Lost(Exception):
    """The program ended, or printed something other than an answer."""


@dataclass(frozen=True)
class Target:
    """What is tuned: a variant on a problem in an environment."""
    shape: str
    variant: str
    math: str = "fp32"
    threads: int = 1
    isa: str = ""
    device: int = 0
    seed: int = 1
    cache: str = ""  # warm or cold; empty: as a program would find the operands
    weight: float = field(default=1, compare=False)  # calls of a program, for instance


@dataclass(frozen=True)
class Step:
    """One step of successive halving: so many rounds; who is certainly slower than `within` times
    the best takes no more."""
    rounds: int
    within: float = 1.1


Rounds = list[list[float]]  # logarithms of the ratios of rounds, repetition by repetition


@dataclass(frozen=True)
class Comparison:
    """How two times compare: their ratio with its 95 % interval; faster, slower, equal (within 2 %)
    or undecided; how many times as many repetitions would decide."""
    ratio: Ratio
    verdict: str
    repetitions: float


class Evaluator:
    """The program as an object. Implements tuning.Constraints for the problem that is open."""

    def __init__(self, options: Sequence[str] = (), timeout: float | None = None):
        self._command = [str(program.path()), "evaluate", *options]
        if timeout is not None:
            self._command += ["--timeout", f"{timeout:g}"]
        self._process: subprocess.Popen[str] | None = None
        self.target: Target | None = None
        self._greeting: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}  # of the last open: machine, build, traits, …

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the program."""
        if self._process is None:
            return
        try:
            self._process.stdin.close()  # it ends with its input
        except OSError:
            pass  # it is gone
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None

    @property
    def store(self) -> Path:
        """Where bench, run and the library look for this machine's tuned schedules. Raises Lost,
        and OSError where there is no such place."""
        if not self._greeted()["store"]:
            raise OSError("no store: neither XDG_CACHE_HOME nor HOME is set; --no-store does "
                          "without")
        return Path(self._greeted()["store"])

    @property
    def cores(self) -> int:
        """This machine's physical cores. Raises Lost."""
        return self._greeted()["cores"]

    def _greeted(self) -> dict[str, Any]:
        if self._process is None:
            self._start()
        return self._greeting

    def list(self, shapes: Sequence[str], presets: Sequence[str], models: Sequence[str] = ()
             ) -> dict[str, Any]:
        """All kernels and variants, and these problems, as `rooflane list --json` prints them;
        those of models once for each call. Raises Refused, Lost."""
        return self._ask({"op": "list", "shapes": list(shapes), "presets": list(presets),
                          "models": list(models)})

    def open(self, target: Target) -> Space:
        """The space of a target. Its default is verified and timed from now on. Raises Refused,
        Lost."""
        self.target = None  # a program that refuses this one has closed the one before
        answer = self._ask({
            "op": "open", "shape": target.shape, "variant": target.variant, "math": target.math,
            "threads": target.threads, "isa": target.isa, "device": target.device,
            "seed": target.seed, "cache": target.cache})
        self.target = target
        self.facts = {key: answer.get(key, {}) for key in ("machine", "build", "traits", "driver",
                                                              "sizes")}
        self.facts["build"]["dirty"] = self.facts["build"].get("dirty") == "1"
        return spaces.of_answer(answer, self)

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Completes or refuses each."""
        return self._legal("check", proposals)

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """The legal configurations that keep most of the values."""
        return self._legal("nearest", proposals)

    def evaluate(self, configurations: Sequence[Configuration], steps: Sequence[Step],
                 best: float = 1, fresh: bool = False) -> list[Trial]:
        """Builds, verifies and times configurations in the same rounds. Where the program itself
        is lost, each is tried alone, and the one that takes it along is a crash. Raises Refused
        where the default cannot be run any more."""
        request = {"op": "evaluate", "tunings": [text_of(c) for c in configurations],
                   "steps": [{"rounds": step.rounds, "within": step.within} for step in steps],
                   "best": best, "fresh": fresh}
        try:
            told = self._ask(request)["evaluations"]
        except Lost as error:
            self._reopen()
            if len(configurations) == 1:
                return [Trial(0, configurations[0], Outcome.CRASH, reason=str(error))]
            return [self.evaluate([one], steps, best, fresh)[0] for one in configurations]
        return [_evaluation(item, asked) for item, asked in zip(told, configurations)]

    def compare(self, pairs: Sequence[Rounds], level: float = 0.99) -> list[Comparison]:
        """Each pair by the program's estimator, the same as for the verdicts of bench; faster and
        slower are certain at `level`."""
        told = self._ask({"op": "compare", "pairs": list(pairs), "level": level})["ratios"]
        return [Comparison(Ratio(one["value"], 0 if one["low"] is None else one["low"],
                                 math.inf if one["high"] is None else one["high"]),
                           one["verdict"],
                           math.inf if one["repetitions"] is None else one["repetitions"])
                for one in told]

    def _legal(self, op: str, proposals: Sequence[Configuration]) -> list[Legal]:
        told = self._ask({"op": op, "tunings": [text_of(c) for c in proposals]})["legal"]
        found = []
        for item, proposal in zip(told, proposals):
            if "tuning" not in item:
                found.append(Legal(None, item["reason"]))
                continue
            whole = configuration_of(item["tuning"])
            changed = tuple(name for name, value in proposal.items() if whole.get(name) != value)
            found.append(Legal(whole, "", changed))
        return found

    def _reopen(self) -> None:
        target, self.target = self.target, None
        self.close()
        if target is not None:
            self.open(target)

    def _start(self) -> subprocess.Popen[str]:
        # A group of its own: Ctrl-C ends the search, which then ends this in order.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self._process = process
        self._greeting = self._read()
        if self._greeting.get("rooflane_evaluate") != PROTOCOL:
            raise Lost(f"{self._command[0]} speaks another protocol: {self._greeting}")
        return process

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process or self._start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError as error:
            self._raise_lost(str(error))
        answer = self._read()
        if not answer.get("ok"):
            raise Refused(answer.get("reason", "no reason"), answer.get("status", "FAILED"))
        return answer

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError:
            self._raise_lost(f"it printed {line[:200]!r}" if line else "it ended")

    def _raise_lost(self, why: str) -> None:
        process, self._process = self._process, None
        process.kill()
        status = process.wait()
        raise Lost(f"rooflane evaluate: {why} (status {status})")


def _evaluation(item: dict[str, Any], asked: Configuration) -> Trial:
    ratio = item["ratio"]
    return Trial(
        0, asked, OUTCOMES.get(item["status"], Outcome.CRASH),
        reason=item["reason"],
        ratio=Ratio(ratio["value"], ratio["low"], ratio["high"]) if ratio else None,
        ns=item["ns"], default_ns=item["default_ns"],
        error=item.get("error"), threshold=item.get("threshold"),
        workspace_bytes=item["workspace_bytes"],
        cost=Cost(build=item["build_s"], verify=item["verify_s"], time=item["time_s"]))

