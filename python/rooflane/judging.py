"""`rooflane judge` for programs: source in, a document out. Standard library only.

A document is what `rooflane judge --json` prints (`rooflane schema judge`). Sources are handed over
as files in a folder of their own; what becomes of them in the jail is the program's matter.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflane import program

RIGHT = ("WINNER", "TIE", "LOSER", "UNDECIDED")  # verdicts of a kernel that computes what it should
AGAINST = 1  # the exit status of a verdict against the source, which is an answer, too
LANGUAGES = {"c": ".c", "c++": ".cpp", "opencl": ".cl"}
MOST_CHARACTERS = 1 << 20  # of a source
HUNG = 300.0  # seconds beyond ten times the budget: compiling and verifying are limited by then


class TooLarge(ValueError):
    """A source of more than MOST_CHARACTERS."""


@dataclass(frozen=True)
class Request:
    """What a source is judged for. `flags`: of the compiler; empty leaves the program's own.
    `budget`: seconds for timing; None leaves the program's own."""
    kernel: str
    shapes: tuple[str, ...] = ()
    threads: int | None = None
    against: tuple[str, ...] = ()
    hidden: int | None = None
    seed: int | None = None
    budget: float | None = None
    flags: str = ""
    unsafe: bool = False
    archive: str = ""
    options: tuple[str, ...] = field(default=())  # further ones, as they are

    def words(self) -> list[str]:
        """The command line behind `judge FILE`. Texts may be a stranger's: behind an equals sign
        none of them is an option."""
        words = [f"--kernel={self.kernel}", *(f"--shape={shape}" for shape in self.shapes)]
        for option, value in (("threads", self.threads), ("hidden", self.hidden),
                              ("seed", self.seed), ("budget", self.budget)):
            if value is not None:
                shown = f"{value:g}" if isinstance(value, float) else str(value)
                words.append(f"--{option}={shown}")
        for option, text in (("against", ",".join(self.against)), ("flags", self.flags),
                             ("archive", self.archive)):
            if text:
                words.append(f"--{option}={text}")
        return words + ["--unsafe"] * self.unsafe + list(self.options)


class Judge:
    """The program as a judge; one source at a time, since they would disturb each other."""

    def __init__(self, where: Path | None = None):
        self.program = where or program.path()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def template(self, kernel: str) -> str:
        """A source that passes. Raises program.Refused."""
        return program.run(self.program, ["judge", f"--template={kernel}"]).stdout

    def signature(self, kernel: str, shape: str = "") -> str:
        """The C signature with the meaning of each argument: for a problem, else for each number
        format. Raises program.Refused."""
        words = ["judge", f"--signature={kernel}", *([f"--shape={shape}"] if shape else [])]
        return program.run(self.program, words).stdout

    def history(self, kernel: str = "", archive: str = "") -> list[dict[str, Any]]:
        """The documents of all attempts, the oldest first. Raises program.Refused."""
        words = ["judge", "--history", "--json"]
        words += [f"--kernel={kernel}"] if kernel else []
        words += [f"--archive={archive}"] if archive else []
        attempts: list[dict[str, Any]] = json.loads(
            program.run(self.program, words).stdout)["attempts"]
        return attempts

    def judge(self, text: str, request: Request, language: str = "c") -> dict[str, Any]:
        """Judges a text. Raises program.Refused where the program did not answer, TooLarge."""
        if len(text) > MOST_CHARACTERS:
            raise TooLarge(f"a source of {len(text)} characters; at most {MOST_CHARACTERS}")
        with tempfile.TemporaryDirectory(prefix="rooflane-source-") as folder:
            file = Path(folder) / f"{request.kernel}{LANGUAGES[language]}"
            file.write_text(text, encoding="utf-8", errors="replace")
            return self.judge_file(file, request)

    def judge_file(self, file: Path, request: Request) -> dict[str, Any]:
        """Judges a file. Raises program.Refused where the program did not answer."""
        limit = None if request.budget is None else 10 * request.budget + HUNG
        out, err, status = self._run([str(self.program), "judge", str(file), "--json",
                                      *request.words()], limit)
        if status not in (0, AGAINST):
            raise program.Refused(program.told(err, status), status)
        try:
            document: dict[str, Any] = json.loads(out)
        except ValueError as error:
            raise program.Refused(f"judge printed no document: {out[:80]!r}", status) from error
        return document

    def stop(self) -> None:
        """Ends the judging that goes on or begins in another thread, which is then refused, and all
        that follows."""
        self._stopped = True
        if (process := self._process) is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def _run(self, words: Sequence[str], limit: float | None) -> tuple[str, str, int]:
        try:  # a group of its own: Ctrl-C ends the caller, which then ends this in order
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="replace", start_new_session=True)
        except OSError as error:
            raise program.Refused(f"{self.program} cannot be run ({error.strerror})",
                                  program.UNAVAILABLE) from error
        with self._process as process:
            if self._stopped:  # before there was a process to end
                self.stop()
            try:
                out, err = process.communicate(timeout=limit)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise program.Refused(f"judge did not end within {limit:g} s",
                                          program.UNAVAILABLE) from error
                raise
            finally:
                self._process = None
            return out, err, process.returncode


def is_right(document: dict[str, Any]) -> bool:
    """Whether the kernel computes what it should; how fast is another matter."""
    return document["verdict"] in RIGHT


def against(document: dict[str, Any], peer: str) -> list[dict[str, Any]]:
    """The ratios to a peer, one for each listed shape that it takes part in: its time over the
    kernel's, so that above 1 the kernel is the faster one."""
    return [{**one, "shape": shape["shape"], "ns": shape["p50_us"] * 1e3}
            for shape in document["shapes"] if not shape["hidden"]
            for one in shape["peers"] if one["variant"] == peer]


def summary(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what is long: for lists."""
    shapes = [shape for shape in document["shapes"] if not shape["hidden"]]
    return {"attempt": document["attempt"], "kernel": document["kernel"],
            "sha256": document["source"]["sha256"],
            "verdict": document["verdict"], "cheat": (document["cheat"] or {}).get("name"),
            "reason": document["reason"],
            "shapes": [{"shape": shape["shape"], "threads": shape["threads"],
                        "p50_us": shape["p50_us"], "roof_pct": shape["roof_pct"],
                        "peers": {one["variant"]: one["ratio"] for one in shape["peers"]}}
                       for shape in shapes]}
