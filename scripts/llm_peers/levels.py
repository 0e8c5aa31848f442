"""Measures what number formats cost and gain in a language model: each level against float32
weights, fused, on a text of the tree, and all of them in the same rounds of llama-bench's tests.
"""
from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from llm_peers.processes import Ended, Session
from llm_peers.speed import PAUSE, SEED, TESTS, interval

TEXT = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "text_to_foresee.txt"

# The first is what the others are held against.
LEVELS: dict[str, list[str]] = {
    "f32": ["--weight-type", "f32"],
    "f32, not fused": ["--weight-type", "f32", "--no-fuse"],
    "bf16": ["--weight-type", "bf16", "--math", "bf16"],
    "int8": ["--weight-type", "s8c", "--math", "int8-dynamic"],
    "file": [],
    "file, int8": ["--math", "int8-dynamic"],
    "file, int8, kv bf16": ["--math", "int8-dynamic", "--kv-type", "bf16"],
    "file, int8, kv q8_0": ["--math", "int8-dynamic", "--kv-type", "q8_0"],
}


@dataclass
class Level:
    """What was found; speeds one entry a round."""
    name: str
    perplexity: float = 0.0
    divergence: float = 0.0  # mean Kullback-Leibler, in nats, of the next token's distribution
    off: float = 0.0  # the largest difference of a logit
    off_relative: float = 0.0  # over the largest logit
    same_tokens: float = 1.0  # share of places where the likeliest token is the same
    peak_bytes: int = 0
    speeds: dict[str, list[float]] = field(default_factory=dict)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Row by row, in double."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def scored(program: Path, weights: Path, ids: list[int], threads: int,
           words: list[str]) -> tuple[float, np.ndarray, int]:
    """Perplexity, logits and the process's peak of resident memory. Raises Ended."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        process = subprocess.Popen(
            [str(program), "generate", "--weights", str(weights), "--ids", ",".join(map(str, ids)),
             "--threads", str(threads), "--score", "--logits", file.name, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise Ended(f"generate {' '.join(words)} ended with {process.returncode}")
        return float(told.split()[-1]), np.load(file.name), usage.ru_maxrss * 1024


def compared(level: Level, logits: np.ndarray, exact: np.ndarray) -> None:
    """Fills in what a level's logits are off; rows in parts, which take less memory in double."""
    level.off = float(np.abs(logits - exact).max())
    level.off_relative = level.off / float(np.abs(exact).max())
    level.same_tokens = float((logits.argmax(axis=1) == exact.argmax(axis=1)).mean())
    divergences: list[float] = []
    for first in range(0, len(exact), 64):
        p = log_probabilities(exact[first:first + 64])
        q = log_probabilities(logits[first:first + 64])
        divergences += (np.exp(p) * (p - q)).sum(axis=1).tolist()
    level.divergence = float(np.mean(divergences))


def speeds(program: Path, weights: Path, threads: int, rounds: int, levels: list[Level]) -> None:
    """Every level's tests behind no other tokens, in rounds, shuffled again for each round."""
    sessions = {level.name: Session(program, weights, threads, LEVELS[level.name])
                for level in levels}
    slots = [(level, test) for level in levels for test in TESTS]
    order = random.Random(SEED)
    for number in range(rounds + 1):  # the first warms up
        order.shuffle(slots)
        for level, (name, kind, tokens) in slots:
            time.sleep(PAUSE)
            answer = sessions[level.name].ask(f"{kind} 0 {tokens}")
            if number > 0:
                level.speeds.setdefault(name, []).append(tokens / answer["ns"] * 1e9)
    for session in sessions.values():
        session.close()


def measure(program: Path, weights: Path, ids: list[int], threads: int, rounds: int,
            names: list[str]) -> list[Level]:
    """The levels of these names and the first. Raises Ended."""
    exact: np.ndarray | None = None
    levels = []
    for name, words in LEVELS.items():
        if exact is not None and names and name not in names:
            continue
        level = Level(name)
        level.perplexity, logits, level.peak_bytes = scored(program, weights, ids, threads, words)
        if exact is None:
            exact = logits
        compared(level, logits, exact)
        levels.append(level)
    if rounds > 0:
        speeds(program, weights, threads, rounds, levels)
    return levels


def table(levels: list[Level]) -> str:
    """Markdown."""
    tests = list(levels[0].speeds)
    lines = ["| level | " + "".join(f"{test}, tokens/s | × f32 [95 %] | " for test in tests) +
             "peak memory, MB | perplexity | divergence, nats | logits off by | of the largest | "
             "same token, % |",
             "|---|" + "---:|---:|" * len(tests) + "---:|" * 6]
    for level in levels:
        cells = ""
        for test in tests:
            gain = interval([x / y for x, y in zip(level.speeds[test], levels[0].speeds[test])])
            cells += (f"{np.median(level.speeds[test]):.0f} | {gain[0]:.2f} "
                      f"[{gain[1]:.2f}, {gain[2]:.2f}] | ")
        lines.append(f"| {level.name} | {cells}{level.peak_bytes / 1e6:.0f} | "
                     f"{level.perplexity:.3f} | {level.divergence:.2g} | {level.off:.2g} | "
                     f"{level.off_relative:.2g} | {100 * level.same_tokens:.1f} |")
    return "\n".join(lines)
