"""What drafts gain: prompts with answers that repeat them (folder repeating), and prompts
with other answers, with `generate --draft ngram` and without, in the same rounds. Both must give
the same tokens.
"""
from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from llm_peers.processes import Ended
from llm_peers.speed import PAUSE, interval

REPEATING = Path(__file__).resolve().parent / "repeating"


@dataclass
class Prompt:
    """How one prompt went on; tokens per second, one entry a round."""
    name: str
    same: bool = True  # in every round
    alone: list[float] = field(default_factory=list)
    guessed: list[float] = field(default_factory=list)
    drafted: int = 0   # of the last round
    accepted: int = 0
    passes: int = 0

    def gains(self) -> list[float]:
        """Round by round."""
        return [x / y for x, y in zip(self.guessed, self.alone)]


def run(program: Path, weights: Path, ids: list[int], tokens: int,
        words: list[str]) -> tuple[str, dict]:
    """The ids, and what was told of times. Raises Ended."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run(
            [str(program), "generate", "--weights", str(weights), "--ids", ",".join(map(str, ids)),
             "--tokens", str(tokens), "--json", file.name, *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Ended(done.stderr.strip())
        return done.stdout, json.loads(Path(file.name).read_text(encoding="utf-8"))


def measure(program: Path, weights: Path, prompts: dict[str, list[int]], tokens: int, rounds: int,
            words: list[str]) -> list[Prompt]:
    """The two forms alternately; the first one changes from round to round."""
    rows = {name: Prompt(name) for name in prompts}
    for number in range(rounds):
        for name, ids in prompts.items():
            row = rows[name]
            told = {}
            for draft in ([], ["--draft", "ngram"])[::1 if number % 2 == 0 else -1]:
                time.sleep(PAUSE)
                told[bool(draft)] = run(program, weights, ids, tokens, [*words, *draft])
            row.same = row.same and told[False][0] == told[True][0]
            row.alone.append(told[False][1]["text"]["tokens_s"])
            row.guessed.append(told[True][1]["text"]["tokens_s"])
            row.drafted = told[True][1]["drafts"]["drafted"]
            row.accepted = told[True][1]["drafts"]["accepted"]
            row.passes = told[True][1]["passes"]
    return list(rows.values())


def table(rows: list[Prompt]) -> str:
    """Markdown."""
    lines = ["| prompt | tokens/s | with drafts | × [95 %] | drafted | right | passes | "
             "same tokens |", "|---|---:|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        gain = interval(row.gains())
        lines.append(f"| {row.name} | {np.median(row.alone):.0f} | {np.median(row.guessed):.0f} | "
                     f"{gain[0]:.2f} [{gain[1]:.2f}, {gain[2]:.2f}] | {row.drafted} | "
                     f"{row.accepted} | {row.passes} | {'yes' if row.same else 'NO'} |")
    return "\n".join(lines)
