"""Tokens per second of both programs in the same rounds, in llama-bench's terms: pp512, a prompt of
512 tokens at once, and tg128, 128 tokens one by one, behind 0 and behind 1024 other tokens.
Decoding is held against its byte ceiling: as many bytes as it must read, read as fast as the same
machine does it in the same round. Weights are cold by nature: they are larger than most caches.
"""
from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from llm_peers.processes import LlamaCpp, Session

TESTS = [("pp512", "prefill", 512), ("tg128", "decode", 128)]
DEPTHS = [0, 1024]
PAUSE = 0.3  # seconds between slots: threads of the one before stop spinning
SEED = 38


@dataclass
class Rounds:
    """Of one test; tokens per second, one entry a round."""
    name: str
    depth: int
    threads: int
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    ceiling: list[float] = field(default_factory=list)  # of decoding


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and its bootstrap 95 % interval."""
    data = np.asarray(values)
    picks = np.random.default_rng(SEED).integers(0, len(data), (2000, len(data)))
    low, high = np.percentile(np.median(data[picks], axis=1), [2.5, 97.5])
    return float(np.median(data)), float(low), float(high)


def measure(ours: Session, theirs: LlamaCpp, threads: int, rounds: int) -> list[Rounds]:
    """All tests in rounds, in an order shuffled anew for each."""
    results = [Rounds(name, depth, threads) for name, _, _ in TESTS for depth in DEPTHS]
    slots = [(test, whose) for test in range(len(results)) for whose in ("ours", "theirs")]
    order = random.Random(SEED)
    theirs.set_threads(threads)
    for number in range(rounds + 1):  # the first warms up
        order.shuffle(slots)
        for test, whose in slots:
            row = results[test]
            _, kind, tokens = next(each for each in TESTS if each[0] == row.name)
            time.sleep(PAUSE)
            if whose == "theirs":
                speed = tokens / theirs.nanoseconds(kind, row.depth, tokens) * 1e9
                row.theirs += [speed] * (number > 0)
                continue
            answer = ours.ask(f"{kind} {row.depth} {tokens}")
            row.ours += [tokens / answer["ns"] * 1e9] * (number > 0)
            if kind == "decode" and number > 0:
                read = ours.ask("read")
                row.ceiling.append(tokens / (answer["bytes"] * read["ns"] / read["bytes"]) * 1e9)
    return results


def table(results: list[Rounds]) -> str:
    """Markdown."""
    lines = ["| test | threads | rooflane, tokens/s | llama.cpp | ratio [95 %] | % of the byte "
             "ceiling [95 %] |", "|---|---:|---:|---:|---:|---:|"]
    for row in results:
        ratio = interval([x / y for x, y in zip(row.ours, row.theirs)])
        share = ""
        if row.ceiling:
            share = "{:.0f} [{:.0f}, {:.0f}]".format(
                *interval([100 * x / y for x, y in zip(row.ours, row.ceiling)]))
        lines.append(f"| {row.name} at {row.depth} | {row.threads} | {np.median(row.ours):.1f} | "
                     f"{np.median(row.theirs):.1f} | {ratio[0]:.2f} [{ratio[1]:.2f}, "
                     f"{ratio[2]:.2f}] | {share} |")
    return "\n".join(lines)
