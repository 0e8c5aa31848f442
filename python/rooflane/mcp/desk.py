"""Who waits to be judged: submissions by ticket, one after the other, since two would disturb each
other's times. Knows nothing of the protocol.
"""
from __future__ import annotations

import json
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path
from typing import Any

from rooflane import program
from rooflane.judging import Judge, Request, TooLarge

MOST_WAITING = 16
# For a description: enough to know in a few seconds how fast the others are.
BRIEF = ("--max-time", "0.2", "--launches", "1", "--ceilings-time", "0.5")


class Desk:
    """Judges, and measures the peers, in one thread."""

    def __init__(self, judge: Judge, archive: str):
        self.judge, self.archive = judge, archive
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._tickets: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def submit(self, text: str, request: Request, language: str) -> int:
        """The ticket. Raises ValueError where too many wait."""
        with self._lock:
            waiting = sum(not future.done() for future in self._tickets.values())
            if waiting >= MOST_WAITING:
                raise ValueError(f"{waiting} submissions wait already; ask for their results first")
            ticket = len(self._tickets) + 1
            self._tickets[ticket] = self._worker.submit(self.judge.judge, text, request, language)
            return ticket

    def result(self, ticket: int, wait_s: float) -> dict[str, Any]:
        """The state of a submission, with the document when it is judged. Raises ValueError."""
        future = self._tickets.get(ticket)
        if future is None:
            raise ValueError(f"no ticket {ticket}; there are {len(self._tickets)}")
        try:
            document = future.result(timeout=wait_s)
        except StillWaiting:
            return {"ticket": ticket, "state": "judging" if future.running() else "waiting"}
        except (program.Refused, TooLarge) as error:
            return {"ticket": ticket, "state": "refused", "reason": str(error)}
        return {"ticket": ticket, "state": "judged", "document": _without_text(document)}

    def history(self, kernel: str, attempt: int | None) -> list[dict[str, Any]]:
        """The documents of a kernel's attempts, or the one of that number. Raises ValueError,
        program.Refused."""
        found = self.judge.history(kernel, self.archive)
        if attempt is None:
            return found
        found = [document for document in found if document["attempt"] == attempt]
        if not found:
            raise ValueError(f"no attempt {attempt}")
        return found

    def ask(self, *words: str) -> dict[str, Any]:
        """A document of the program. Raises program.Refused."""
        return program.ask(self.judge.program, *words)

    def peers(self, kernel: dict[str, Any], shape: str, threads: int) -> list[dict[str, Any]]:
        """What a source of this kernel would be judged beside: the peers' times on a problem, the
        fastest first, measured now and briefly. Raises program.Refused."""
        return self._worker.submit(self._peers, kernel, shape, threads).result()

    def close(self) -> None:
        """Ends what is judged; what waits is not begun."""
        for future in self._tickets.values():
            future.cancel()
        self.judge.stop()
        self._worker.shutdown()

    def _peers(self, kernel: dict[str, Any], shape: str, threads: int) -> list[dict[str, Any]]:
        # As judge.cpp chooses: what runs on devices takes most of the time, to compile.
        names = [each["name"] for each in kernel["variants"] if each["available"]
                 and each["backend"] != "scalar" and each["threads"] != "device"]
        with tempfile.TemporaryDirectory(prefix="rooflane-mcp-") as folder:
            file = Path(folder) / "rows.json"
            program.run(self.judge.program,
                        ["bench", f"--kernel={kernel['name']}", f"--shape={shape}",
                         f"--threads={threads}", f"--variant={','.join(names)}", "--json", file,
                         *BRIEF], (0, 1))
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        timed = [row for row in rows if row["p50_ns"] is not None]
        return [{"variant": row["variant"], "library": row["library"],
                 "p50_us": row["p50_ns"] / 1e3, "roof_pct": row["roof_pct"],
                 "roof_us": row["roof_pct"] and row["p50_ns"] / 1e3 * row["roof_pct"] / 100,
                 "binds": row["bound"], "status": row["status"]}
                for row in sorted(timed, key=lambda row: row["p50_ns"])]


def _without_text(document: dict[str, Any]) -> dict[str, Any]:
    """Who submitted a text has it."""
    source = {name: value for name, value in document["source"].items() if name != "text"}
    return {**document, "source": source}
