"""Tokens per second of Rooflane and peers in the same rounds, in llama-bench's terms: pp512, a
prompt of 512 tokens at once, and tg128, 128 tokens one by one, behind 0 and behind 1024 other
tokens. Each is held against its ceiling, measured in the same round: decoding against the bytes
that it must read, read as fast as the machine reads, and the prompt against its operations at the
peak of the instruction that multiplies. Weights are cold by nature: they are larger than most
caches.
"""
from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from llm_peers.processes import Peer, Session

TESTS = [("pp512", "prefill", 512), ("tg128", "decode", 128)]
DEPTHS = [0, 1024]
PAUSE = 0.3  # seconds between slots: threads of the one before stop spinning
SEED = 38
OURS = "rooflane"


@dataclass
class Rounds:
    """The rounds of one test: tokens per second, one entry a round."""
    name: str
    depth: int
    threads: int
    model: str = ""  # the number format, where several are measured
    ours: list[float] = field(default_factory=list)
    theirs: dict[str, list[float]] = field(default_factory=dict)  # by peer
    ceiling: list[float] = field(default_factory=list)
    builds: dict[str, str] = field(default_factory=dict)  # by peer: version and flags
    peak_bytes: dict[str, int] = field(default_factory=dict)  # of memory, by program
    stamp: dict[str, str] = field(default_factory=dict)  # of kept rows: commit, machine, date


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and its bootstrap 95 % interval."""
    data = np.asarray(values)
    picks = np.random.default_rng(SEED).integers(0, len(data), (2000, len(data)))
    low, high = np.percentile(np.median(data[picks], axis=1), [2.5, 97.5])
    return float(np.median(data)), float(low), float(high)


def ceiling_of(ours: Session, kind: str, answer: Mapping[str, float]) -> float:
    """Nanoseconds that the test takes at least."""
    if kind == "decode":
        limit, unit = ours.ask("read"), "bytes"
    else:
        limit, unit = ours.ask("peak"), "operations"
    return answer[unit] * limit["ns"] / limit[unit]


def measure(ours: Session, peers: Mapping[str, Peer], threads: int, rounds: int,
            model: str = "") -> list[Rounds]:
    """All tests in rounds, in an order that is shuffled for each."""
    builds = {}
    for name, peer in peers.items():
        peer.set_threads(threads)
        builds[name] = peer.about()
    results = [Rounds(name, depth, threads, model, theirs={peer: [] for peer in peers},
                      builds=builds) for name, _, _ in TESTS for depth in DEPTHS]
    slots = [(test, whose) for test in range(len(results)) for whose in (OURS, *peers)]
    order = random.Random(SEED)
    for number in range(rounds + 1):  # the first warms up
        order.shuffle(slots)
        for test, whose in slots:
            row = results[test]
            _, kind, tokens = next(each for each in TESTS if each[0] == row.name)
            time.sleep(PAUSE)
            if whose != OURS:
                speed = tokens / peers[whose].nanoseconds(kind, row.depth, tokens) * 1e9
                row.theirs[whose] += [speed] * (number > 0)
                continue
            answer = ours.ask(f"{kind} {row.depth} {tokens}")
            if number > 0:
                row.ours.append(tokens / answer["ns"] * 1e9)
                row.ceiling.append(tokens / ceiling_of(ours, kind, answer) * 1e9)
    memory = {OURS: ours.peak_bytes()} | {name: peer.peak_bytes() for name, peer in peers.items()}
    for row in results:
        row.peak_bytes = memory
    return results


def _with_interval(values: Sequence[float], digits: int) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return "{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]".format(*interval(values), digits)


def table(results: list[Rounds]) -> str:
    """Markdown: the tests; then what each program is and takes."""
    peers = list(dict.fromkeys(peer for row in results for peer in row.theirs))
    lines = ["| format | test | threads | rooflane, tokens/s | % of the ceiling [95 %] | " +
             "".join(f"{peer}, tokens/s | × {peer} [95 %] | " for peer in peers).rstrip(),
             "|---|---|---:|---:|---:|" + "---:|---:|" * len(peers)]
    for row in results:
        share = _with_interval([100 * x / y for x, y in zip(row.ours, row.ceiling)], 0)
        line = (f"| {row.model} | {row.name} at {row.depth} | {row.threads} | "
                f"{np.median(row.ours):.1f} | {share} |")
        for peer in peers:
            speeds = row.theirs.get(peer)
            if not speeds:
                line += " | |"
                continue
            ratio = _with_interval([x / y for x, y in zip(row.ours, speeds)], 2)
            line += f" {np.median(speeds):.1f} | {ratio} |"
        lines.append(line)
    lines += ["", "| format | threads | program | memory, MB | build |", "|---|---:|---|---:|---|"]
    told = set()
    for row in results:
        for name, peak in row.peak_bytes.items():
            key = (row.model, row.threads, name)
            if key in told:
                continue
            told.add(key)
            lines.append(f"| {row.model} | {row.threads} | {name} | {peak / 1e6:.0f} | "
                         f"{row.builds.get(name, '')} |")
    return "\n".join(lines)
