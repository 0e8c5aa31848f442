"""Same tokens? Both programs go on with the same prompts, each always with the likeliest token.
Where their choices part, the reference in double precision says whether the gap between the two
tokens' logits was smaller than what float32 errs, or one of them is wrong."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llm_peers import processes
from llm_peers.double_reference import DoubleReference


@dataclass
class Continuation:
    """How one prompt went on."""
    prompt: str
    prompt_tokens: int
    same: int       # tokens until the first difference, all if there is none
    tokens: int
    ours_error: float    # largest error of a logit against double precision, while tokens are same
    theirs_error: float
    between: float       # largest difference of a logit between the two
    gap: float           # in double precision, between the tokens at the first difference; else NaN

    @property
    def explained(self) -> bool:
        """Equal, or parted where both errors together could turn the order."""
        return self.same == self.tokens or self.gap <= self.ours_error + self.theirs_error


def continued(prompt: str, ids: list[int], tokens: int, program: Path, weights: Path,
              peer: processes.LlamaCpp, reference: DoubleReference) -> Continuation:
    """Both on one prompt."""
    ours, our_logits = processes.greedy(program, weights, ids, tokens)
    theirs, their_logits = peer.greedy(ids, tokens)
    same = next((i for i, (x, y) in enumerate(zip(ours, theirs)) if x != y), tokens)
    rows = min(same + 1, tokens)  # the row that parted them too
    exact = reference.logits([*ids, *ours[:rows - 1]], len(ids) - 1)
    gap = abs(float(exact[same, ours[same]] - exact[same, theirs[same]])) if same < tokens \
        else float("nan")
    return Continuation(
        prompt, len(ids), same, tokens, float(np.abs(our_logits[:rows] - exact).max()),
        float(np.abs(their_logits[:rows] - exact).max()),
        float(np.abs(our_logits[:rows] - their_logits[:rows]).max()), gap)


def table(rows: list[Continuation]) -> str:
    """Markdown."""
    lines = ["| prompt | its tokens | same tokens | largest error of a logit, rooflane | llama.cpp "
             "| between them | gap at the first difference |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        gap = "" if row.same == row.tokens else \
            f"{row.gap:.1e}{'' if row.explained else ', NOT explained'}"
        lines.append(f"| {row.prompt} | {row.prompt_tokens} | {row.same} of {row.tokens} | "
                     f"{row.ours_error:.1e} | {row.theirs_error:.1e} | {row.between:.1e} | {gap} |")
    equal = sum(row.same == row.tokens for row in rows)
    explained = sum(row.explained for row in rows) - equal
    lines.append(f"\n{equal} of {len(rows)} prompts: all tokens equal; {explained} more parted "
                 "where the gap was within both errors; "
                 f"{len(rows) - equal - explained} not explained.")
    return "\n".join(lines)
