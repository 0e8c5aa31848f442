"""The strategy `--proposer CMD`: any program proposes, over JSON lines on its standard input and
output; its standard error passes through.

First it is told the space:
  {"rooflane_proposer":1,"seed":1,"space":{"kernel":"gemm","variant":"hwy","shape":"gemm:m=...",
   "problem":{...},"threads":2,"tunables":[{"name","meaning","least","most","values":[...]}],
   "default":{"mc":96,...},"candidates":[{"configuration":{...},"predicted_ns":1e5},...]}}
Then, whenever configurations are wanted:
  {"ask":{"history":[{"configuration","outcome","speed_up","reason"},... since the last ask],
   "best":{...},"budget":{"trials_left":90,"seconds_left":null}}}
It answers with one line, one or more configurations, which may leave tunables at their default:
  {"configurations":[{"mc":128},...],"note":"why"}
What is not legal becomes the nearest that is, with a note; unknown tunables and repeats are passed
over. Whatever else happens (it ends, it says nothing for `timeout` seconds, it prints nonsense) is
counted, and `local` takes that trial; after three times in a row it is not asked again.
"""
from __future__ import annotations

import json
import selectors
import shlex
import subprocess
import time
from collections import Counter, deque
from typing import Any

from rooflane.tuning import Configuration, History, Proposal, Space, Strategy, Trial

PROTOCOL = 1
MOST_FAILURES = 3  # in a row
LONGEST = 1 << 20  # bytes of an answer


class Failed(Exception):
    """What the program did instead of answering."""


class Program:
    """A process that answers lines with lines."""

    def __init__(self, command: str):
        self._command, self._rest = command, b""
        try:
            self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, bufsize=0)
        except (OSError, ValueError) as error:
            raise Failed(f"it cannot be started: {error}") from error

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a line. Raises Failed."""
        try:
            self._process.stdin.write((json.dumps(message) + "\n").encode())
        except OSError as error:
            raise Failed("it ended") from error

    def answer(self, timeout: float) -> Any:
        """Its next line. Raises Failed."""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise Failed(f"it said nothing for {timeout:g} s")
                chunk = self._process.stdout.read(1 << 16)
                if not chunk:
                    raise Failed("it ended")
                self._rest += chunk
                if len(self._rest) > LONGEST:
                    raise Failed("its answer has no end")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise Failed(f"no JSON: {line[:80]!r}") from error

    def end(self) -> None:
        """Asks it to end by closing its input; kills it when it does not."""
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:
                pass  # it is gone
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Proposer:
    """`stand_in` takes the trials that the program has nothing usable for."""

    def __init__(self, space: Space, command: str, stand_in: Strategy, seed: int,
                 timeout: float = 60):
        self.name = "proposer"
        self.failures: Counter[str] = Counter()
        self._space, self._command, self._seed = space, command, seed
        self._stand_in, self._timeout = stand_in, timeout
        self._program: Program | None = None
        self._told = self._row = 0
        self._queue: deque[Proposal] = deque()

    def propose(self, history: History) -> Proposal:
        """Its next configuration, or the stand-in's. Raises Exhausted."""
        if not self._queue and self._row < MOST_FAILURES:
            try:
                self._ask(history)
                self._row = 0
            except Failed as failure:
                self.failures[str(failure)] += 1
                self._row += 1
                self._end()
        while self._queue:
            proposal = self._queue.popleft()
            if not history.tried(proposal.configuration):
                return proposal
        proposal = self._stand_in.propose(history)
        return Proposal(proposal.configuration, self._stand_in.name, proposal.note)

    def observe(self, trial: Trial) -> None:
        """The program is told with the next ask."""
        self._stand_in.observe(trial)

    def close(self) -> None:
        """Ends the program."""
        self._end()
        self._stand_in.close()

    def _end(self) -> None:
        if self._program is not None:
            self._program.end()
        self._program, self._told = None, 0

    def _ask(self, history: History) -> None:
        if self._program is None:
            self._program = Program(self._command)
            self._program.tell({"rooflane_proposer": PROTOCOL, "seed": self._seed,
                                "space": description(self._space)})
        new, self._told = history.trials[self._told:], len(history.trials)
        best = history.best
        self._program.tell({"ask": {
            "history": [{"configuration": trial.configuration, "outcome": trial.outcome.value,
                         "speed_up": trial.speed_up, "reason": trial.reason} for trial in new],
            "best": best.configuration if best else None,
            "budget": {"trials_left": history.trials_left,
                       "seconds_left": history.seconds_left}}})
        self._take(self._program.answer(self._timeout))

    def _take(self, answer: Any) -> None:
        try:
            proposals, note = answer["configurations"], str(answer.get("note", ""))
            wanted = [{str(name): int(value) for name, value in one.items()} for one in proposals]
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise Failed(f"no configurations: {str(answer)[:80]}") from error
        names = {tunable.name: tunable for tunable in self._space.tunables}
        known = [one for one in wanted if one.keys() <= names.keys()]
        if not known:
            unknown = sorted({name for one in wanted for name in one} - names.keys())
            raise Failed(f"unknown tunables {', '.join(unknown)}" if unknown
                         else "no configurations")
        clamped = [{name: min(max(value, names[name].least), names[name].most)
                    for name, value in one.items()} for one in known]
        whole = [{**self._space.default, **one} for one in clamped]
        for asked, legal in zip(known, self._space.constraints.nearest(whole)):
            self._queue.append(Proposal(legal.configuration, self.name,
                                        joined(note, asked, legal.configuration)))


def joined(note: str, asked: Configuration, found: Configuration) -> str:
    """The program's note, and what became of its values."""
    changed = ", ".join(f"{name} {value} -> {found.get(name)}" for name, value in asked.items()
                        if found.get(name) != value)
    return "; ".join(part for part in (note, f"mended: {changed}" if changed else "") if part)


def description(space: Space) -> dict[str, Any]:
    """A space for a program."""
    return {"kernel": space.kernel, "variant": space.variant, "shape": space.shape,
            "math": space.math, "threads": space.threads, "isa": space.isa,
            "device": space.device, "problem": space.problem, "roof_ns": space.roof_ns,
            "tunables": [{"name": t.name, "meaning": t.meaning, "least": t.least, "most": t.most,
                          "values": list(t.values)} for t in space.tunables],
            "default": space.default,
            "candidates": [{"configuration": c.configuration, "predicted_ns": c.predicted_ns}
                           for c in space.candidates]}
