"""`--proposer CMD`: any program proposes, over JSON lines on its standard input and output; its
standard error passes through. docs/tuning.md has the protocol.

Its configurations are judged as a language model's are. Whatever else goes wrong (it ends, is
silent for `timeout` seconds, prints nonsense) is counted, and the program is started again with the
next request, which has the whole history. In the end its input is closed; a second later it is
killed, with all that it started.
"""
from __future__ import annotations

import json
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections import Counter
from typing import IO, Any

from rooflane.archive.records import plain
from rooflane.tuning import History, Proposal, Space, Trial

PROTOCOL = 1
MOST_FAILURES = 3  # in a row
LONGEST = 1 << 20  # bytes of an answer
LONGEST_NOTE = 500  # characters
PATIENCE = 1.0  # seconds that a program may take after its input is closed


class Failed(Exception):
    """What the program did instead of answering."""


class Program:
    """A process that answers lines with lines."""

    def __init__(self, command: str):
        self._rest = b""
        try:  # in a session of its own, so that what it starts can be ended, too
            self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, bufsize=0,
                                             start_new_session=True)
        except (OSError, ValueError) as error:
            raise Failed(f"it cannot be started: {error}") from error
        os.set_blocking(self._process.stdin.fileno(), False)

    def ask(self, messages: list[dict[str, Any]], timeout: float) -> Any:
        """Sends lines, and returns the next line that comes. Raises Failed."""
        deadline = time.monotonic() + timeout
        text = "".join(json.dumps(message) + "\n" for message in messages).encode()
        while text:
            self._wait(self._process.stdin, selectors.EVENT_WRITE, deadline, timeout)
            try:
                text = text[self._process.stdin.write(text) or 0:]
            except OSError as error:
                raise Failed("it ended") from error
        while b"\n" not in self._rest:
            self._wait(self._process.stdout, selectors.EVENT_READ, deadline, timeout)
            chunk = self._process.stdout.read(1 << 16)
            if not chunk:
                raise Failed("it ended")
            self._rest += chunk
            if len(self._rest) > LONGEST:
                raise Failed("its answer has no end")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Failed(f"no JSON: {line[:80]!r}") from error

    def end(self) -> None:
        """Asks it to end by closing its input; kills it when it does not."""
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:
                pass  # it is gone
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @staticmethod
    def _wait(stream: IO[bytes], event: int, deadline: float, timeout: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise Failed(f"it said nothing for {timeout:g} s")


class Proposer:
    """Asks the program; an Asker of asked.py."""

    own = "proposer"

    def __init__(self, space: Space, command: str, seed: int, timeout: float = 60):
        self.failures: Counter[str] = Counter()
        self._space, self._command, self._seed, self._timeout = space, command, seed, timeout
        self._program: Program | None = None
        self._told = self._row = 0

    def ask(self, history: History, count: int = 1) -> list[Proposal]:
        """As many as it names; none where it failed, and after MOST_FAILURES in a row."""
        del count
        if self._row >= MOST_FAILURES:
            return []
        try:
            found = self._ask(history)
            self._row = 0
        except Failed as failure:
            self.failures[str(failure)] += 1
            self._row += 1
            self.close()
            return []
        return found

    def observe(self, trial: Trial) -> None:
        """The program is told with the next ask."""

    def close(self) -> None:
        """Ends the program."""
        if self._program is not None:
            self._program.end()
        self._program, self._told = None, 0

    def _ask(self, history: History) -> list[Proposal]:
        messages: list[dict[str, Any]] = []
        if self._program is None:
            self._program = Program(self._command)
            messages.append({"rooflane_proposer": PROTOCOL, "seed": self._seed,
                             "space": plain(self._space)})
        new, self._told = history.trials[self._told:], len(history.trials)
        best = history.best
        messages.append({"ask": {
            "history": [{"configuration": trial.configuration, "outcome": trial.outcome.value,
                         "speed_up": trial.speed_up, "reason": trial.reason} for trial in new],
            "best": best.configuration if best else None,
            "budget": {"trials_left": history.trials_left,
                       "seconds_left": history.seconds_left}}})
        return self._read(self._program.ask(messages, self._timeout), history)

    def _read(self, told: Any, history: History) -> list[Proposal]:
        from rooflane.language_model import answer  # needs a package, which help does without
        try:
            note = str(told.get("note") or "")[:LONGEST_NOTE]
            asked = [dict(one.items()) for one in told["configurations"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise Failed(f"no configurations: {str(told)[:80]}") from error
        judged = answer.judge(asked, self._space, self._space.default, history.tried)
        found = [one for one in judged if isinstance(one, Proposal)]
        wrong = [one for one in judged if one != "repeated"]
        if not found and (wrong or not judged):
            raise Failed(str(wrong[0]) if wrong else "no configurations")
        return [Proposal(one.configuration, note="; ".join(filter(None, (note, one.note))))
                for one in found]
