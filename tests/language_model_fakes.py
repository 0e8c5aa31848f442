"""What tune_language_model_test.py plays with: a space like that of a GEMM, who evaluates it by a
formula, and an HTTP server that fails in every way that it is told to."""
from __future__ import annotations

import http.server
import itertools
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rooflane.tuning import (
    Candidate,
    Configuration,
    Cost,
    History,
    Legal,
    Outcome,
    Proposal,
    Ratio,
    Space,
    Trial,
    Tunable,
    text_of,
)

HANGS_S = 60  # longer than any test waits

TUNABLES = (
    Tunable("path", "3 unpacked or packed by each thread, 4 packed for all threads (Goto)", 3, 4,
            (3, 4), selects=True),
    Tunable("threads", "threads that share the product", 1, 65536, (2,)),
    Tunable("mr", "rows of a micro-tile", 1, 64, (2, 4, 6, 8, 12, 16)),
    Tunable("nr", "columns of a micro-tile, a multiple of the vector", 1, 1024, (16, 32, 48, 64)),
    Tunable("mc", "rows of a block of a", 1, 1 << 40, (32, 64, 96, 128, 192, 256, 512)),
    Tunable("kc", "depth of a block along k", 1, 1 << 40, (64, 128, 192, 256, 384, 512)),
    Tunable("nc", "columns of b packed at a time", 1, 1 << 40, (48, 96, 192, 384, 512)),
    Tunable("pack_a", "1: blocks of a are packed", 0, 1, (0, 1)),
    Tunable("pack_b", "unpacked: 1, each part packs the micro-panels of b it uses", 0, 1, (0, 1)),
    Tunable("order", "loops around the micro-kernel: 1 n innermost, 0 m innermost", 0, 1, (0, 1)),
    Tunable("m_parts", "tasks: shares of rows", 1, 1 << 40, (1, 2, 4, 8)),
    Tunable("n_parts", "tasks: shares of columns", 1, 1 << 40, (1, 2, 4)),
)
DEFAULT = {"path": 3, "threads": 2, "mr": 8, "nr": 48, "mc": 96, "kc": 256, "nc": 192, "pack_a": 0,
           "pack_b": 1, "order": 1, "m_parts": 2, "n_parts": 1}
FACTS = {"cpu": "AMD EPYC", "cores": 2, "isa": "AVX3: 32 registers of 16 float32",
         "caches": {"L1d": "48 KiB", "L2": "1 MiB", "L3": "32 MiB, shared"},
         "roofs": {"multiply-add": "577 GFLOP/s on 2 threads", "L1 read": "574 GB/s",
                   "L2 read": "266 GB/s", "memory read": "27.3 GB/s"}}


class GemmRules:
    """Constraints like those of the hwy GEMM."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Completes from the default."""
        self.asked += len(proposals)
        return [self._check(each) for each in proposals]

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Every value to the nearest that is listed, then the rules one after the other."""
        return [self._nearest(each) for each in proposals]

    @staticmethod
    def _check(proposal: Configuration) -> Legal:
        c = {**DEFAULT, **proposal}
        if list(c) != list(DEFAULT):
            return Legal(None, "unknown tunable")
        if c["threads"] > 2:
            return Legal(None, "threads is at most 2")
        if c["mr"] > 16:
            return Legal(None, "mr is at most 16")
        if c["nr"] % 16 or c["nr"] > 64:
            return Legal(None, "nr must be a multiple of 16 up to 64")
        if c["mr"] * c["nr"] // 16 > 28:
            return Legal(None, "mr × nr takes more than 28 registers")
        if c["path"] == 4 and c["nr"] != 48:
            return Legal(None, "path=4 needs nr=48")
        if c["path"] == 4 and c["pack_b"]:
            return Legal(None, "path=4 has no pack_b and no k_parts")
        c["mc"] = -(-c["mc"] // c["mr"]) * c["mr"]
        changed = tuple(name for name, value in proposal.items() if c[name] != value)
        return Legal(c, changed=changed)

    def _nearest(self, proposal: Configuration) -> Legal:
        c = {**DEFAULT, **{name: value for name, value in proposal.items() if name in DEFAULT}}
        for tunable in TUNABLES:
            c[tunable.name] = min(tunable.values, key=lambda value: abs(value - c[tunable.name]))
        if c["path"] == 4:
            c["nr"], c["pack_b"] = 48, 0
        c["mr"] = min(c["mr"], 28 * 16 // c["nr"])
        legal = self._check(c)
        found = legal.configuration
        assert found
        return Legal(found, changed=tuple(
            name for name in DEFAULT if proposal.get(name) not in (None, found[name])))


def space() -> Space:
    """512 × 512 × 512."""
    other = {**DEFAULT, "mc": 192, "kc": 512}
    return Space("gemm", "hwy", "gemm:m=512,n=512,k=512", "fp32", 2, "AVX3", "", TUNABLES, DEFAULT,
                 (Candidate(DEFAULT, 520e3), Candidate(other, 525e3)), GemmRules(),
                 {"parameters": {"m": 512, "n": 512, "k": 512},
                  "cost": {"flops": 268435456, "bytes": 3145728}}, roof_ns=465e3)


def nanoseconds(c: Configuration) -> float:
    """A landscape with a best that is 1.07 times as fast as the default."""
    def far(value: int, best: int) -> float:
        return math.log2(value / best) ** 2

    ns = 500e3 * (1 + 0.02 * far(c["kc"], 384) + 0.01 * far(c["mc"], 192) + 0.04 * far(c["mr"], 8)
                  + 0.03 * far(c["nr"], 48) + 0.004 * far(c["nc"], 192))
    ns *= 1 + 0.03 * (c["path"] == 4) + 0.05 * (c["pack_b"] == 0 and c["path"] == 3)
    return ns * (1 + 0.04 * (c["order"] == 1) + 0.02 * abs(c["m_parts"] * c["n_parts"] - 4) / 4)


def evaluate(number: int, proposal: Proposal, strategy: str) -> Trial:
    """As the tuner would, by the formula; an nc of 48 is wrong, so that there are failures."""
    c = proposal.configuration
    trial = Trial(number, c, Outcome.CORRECT, strategy, proposal.source, proposal.note,
                  cost=Cost(time=0.5))
    if c["nc"] == 48:
        trial.outcome, trial.reason = Outcome.INCORRECT, "error 3.1 times the bound"
        return trial
    ns, default = nanoseconds(c), nanoseconds(DEFAULT)
    ratio = ns / default
    trial.ratio = Ratio(ratio, 0.99 * ratio, 1.01 * ratio)
    trial.ns, trial.default_ns = [ns] * 3, [default] * 3
    return trial


def tune(strategy: Any, trials: int, history: History | None = None) -> History:
    """The tuner's loop: the default, then so many trials."""
    history = history or History(space())
    if not history.trials:
        history.trials.append(evaluate(0, Proposal(DEFAULT, "default"), "seed"))
    for trial in history.trials:
        strategy.observe(trial)
    for number in range(len(history.trials), len(history.trials) + trials):
        history.trials_left = trials - number + 1
        proposal = strategy.propose(history)
        assert not history.tried(proposal.configuration), proposal
        assert text_of(history.space.constraints.check([proposal.configuration])[0].configuration
                       or {}) == text_of(proposal.configuration), proposal
        history.trials.append(evaluate(number, proposal, strategy.name))
        strategy.observe(history.trials[-1])
    return history


def completion(content: str | None, **more: Any) -> dict[str, Any]:
    """An answer of the API."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "fake",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message, **more}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920}}


Answer = Callable[["Handler"], None]


def says(content: str | None, **more: Any) -> Answer:
    """HTTP 200 with that content."""
    return lambda handler: handler.reply(200, completion(content, **more))


def fails(status: int, text: str = "no", **headers: str) -> Answer:
    """An HTTP status with an error of the API."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(status, {"error": {"message": text}}, named)


def echoes(status: int) -> Answer:
    """All headers of the request, as the answer's content or as the error."""
    def answer(handler: Handler) -> None:
        said = json.dumps(dict(handler.headers.items()))
        handler.reply(status, completion(said) if status == 200 else {"error": {"message": said}},
                      {"x-echo": handler.headers.get("authorization", "")})
    return answer


def hangs(handler: Handler) -> None:
    """Until the test is over."""
    handler.server.over.wait(HANGS_S)


def drips(handler: Handler) -> None:
    """A byte again and again, each before the time-out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.over.is_set():
        handler.wfile.write(b" ")
        time.sleep(0.05)


def resets(handler: Handler) -> None:
    """The connection is torn down."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def floods(handler: Handler) -> None:
    """64 MiB that begin like an answer."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(64 << 20))
    handler.end_headers()
    for _ in range(1024):
        handler.wfile.write(b'{"choices": ["' + b"x" * 65522)


def raw(body: str, kind: str = "text/html") -> Answer:
    """HTTP 200 with a body other than an answer of the API."""
    return lambda handler: handler.reply(200, body, {"Content-Type": kind})


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes the next answer from the server's list; the last one stays."""
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # noqa: N802
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(json.loads(body))
        self.server.headers.append({name.title(): value for name, value in self.headers.items()})
        answer = self.server.answers[0]
        if len(self.server.answers) > 1:
            self.server.answers.pop(0)
        try:
            answer(self)
        except OSError:
            pass  # the client went away
        self.close_connection = True

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """Text, or data as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


class Server(http.server.ThreadingHTTPServer):
    """On an ephemeral port of 127.0.0.1; a context manager."""
    daemon_threads = True
    block_on_close = False

    def __init__(self, *answers: Answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests, self.headers = list(answers), list[Any](), list[Any]()
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """The address, in the form of ROOFLANE_LLM_URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __exit__(self, *args: Any) -> None:
        self.over.set()
        self.shutdown()
        super().__exit__(*args)


def ticking(step: float) -> Callable[[], float]:
    """A clock that is `step` later at each look."""
    times: Iterable[int] = itertools.count()
    return lambda: step * next(times)  # type: ignore[call-overload]
