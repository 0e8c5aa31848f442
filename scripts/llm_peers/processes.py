"""The programs that are compared, as processes: Rooflane's session, the workers of llama.cpp and
transformers."""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = Path(__file__).resolve().parent


class Ended(Exception):
    """A process that ended or refused; the text says what it said."""


class _Lines:
    """A process that answers a line with a line."""

    def __init__(self, command: list[str], variables: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, text=True,
                                         env={**os.environ, **(variables or {})})

    def ask(self, line: str) -> dict[str, Any]:
        """Raises Ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        self._process.wait()
        self._errors.seek(0)
        raise Ended(f"{self._process.args[0]}: " + (self._errors.read().strip() or
                                                   f"status {self._process.returncode}"))

    def peak_bytes(self) -> int:
        """The process's peak of resident memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()


class Peer:
    """A worker of this folder, in an interpreter that has its packages."""

    def __init__(self, python: Path, worker: str, words: list[str],
                 variables: dict[str, str] | None = None) -> None:
        self._lines = _Lines([str(python), str(WORKERS / worker), *words], variables)

    def _ask(self, **request: Any) -> dict[str, Any]:
        return self._lines.ask(json.dumps(request))

    def set_threads(self, threads: int) -> None:
        """The threads of all later work."""
        self._ask(do="threads", threads=threads)

    def about(self) -> str:
        """Versions, and how it was built."""
        return self._ask(do="about")["text"]

    def nanoseconds(self, kind: str, depth: int, tokens: int) -> float:
        """The time of one prefill or decode."""
        return self._ask(do=kind, depth=depth, tokens=tokens)["ns"]

    def peak_bytes(self) -> int:
        """The process's peak of resident memory."""
        return self._lines.peak_bytes()

    def close(self) -> None:
        """Ends the process."""
        self._lines.close()


class LlamaCpp(Peer):
    """llama.cpp on a file."""

    def __init__(self, python: Path, weights: Path, context: int, fast: bool = False) -> None:
        super().__init__(python, "llama_cpp_worker.py",
                         [str(weights), str(context), *(["fast"] if fast else [])])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text in which control tokens may be spelt."""
        return self._ask(do="tokenize", text=text)["ids"]

    def greedy(self, ids: list[int], tokens: int) -> tuple[list[int], np.ndarray]:
        """The likeliest tokens and the logits each was chosen by."""
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            chosen = self._ask(do="greedy", ids=ids, tokens=tokens, logits=file.name)["ids"]
            return chosen, np.load(file.name)


class Transformers(Peer):
    """transformers on a file; `words`: fast, and the type of weights."""

    def __init__(self, python: Path, variables: dict[str, str], weights: Path,
                 *words: str) -> None:
        super().__init__(python, "transformers_worker.py", [str(weights), *words], variables)

    def logits(self, ids: list[int], first: int) -> np.ndarray:
        """The logits after each token from number `first` on."""
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            self._ask(do="logits", ids=ids, first=first, logits=file.name)
            return np.load(file.name)


class Session:
    """Rooflane's times on request."""

    def __init__(self, program: Path, weights: Path, threads: int, words: list[str]) -> None:
        self._lines = _Lines([str(program), "generate", "--weights", str(weights), "--measure",
                              "--threads", str(threads), *words])

    def ask(self, line: str) -> dict[str, float]:
        """{"ns":..., "bytes":..., "operations":...}"""
        return self._lines.ask(line)

    def peak_bytes(self) -> int:
        """The process's peak of resident memory."""
        return self._lines.peak_bytes()

    def close(self) -> None:
        """Ends the process."""
        self._lines.close()


def greedy(program: Path, weights: Path, ids: list[int],
           tokens: int) -> tuple[list[int], np.ndarray]:
    """As LlamaCpp.greedy, by Rooflane. Raises Ended."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        done = subprocess.run(
            [str(program), "generate", "--weights", str(weights), "--ids", ",".join(map(str, ids)),
             "--tokens", str(tokens), "--ignore-end", "--logits", file.name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Ended(done.stderr.strip())
        return [int(line) for line in done.stdout.splitlines()], np.load(file.name)
