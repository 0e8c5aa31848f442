"""Same tokens? Rooflane and llama.cpp go on with the same prompts, each always with the likeliest
token. Where their choices part, the reference in double precision says whether the gap between the
two tokens' logits was smaller than what float32 errs, or one of them is wrong. transformers is
given the tokens that both chose and says, row by row, which it would have chosen."""
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
    third_error: float = float("nan")  # as ours_error, of transformers; NaN: it was not asked
    third_gap: float = float("nan")    # as gap, the largest where it would choose another token

    @property
    def explained(self) -> bool:
        """Equal, or parted where both errors together could change the order."""
        two = self.same == self.tokens or self.gap <= self.ours_error + self.theirs_error
        return two and not self.third_gap > self.ours_error + self.third_error


def continued(prompt: str, ids: list[int], tokens: int, program: Path, weights: Path,
              peer: processes.LlamaCpp, third: processes.Transformers | None,
              reference: DoubleReference) -> Continuation:
    """All on one prompt."""
    ours, our_logits = processes.greedy(program, weights, ids, tokens)
    theirs, their_logits = peer.greedy(ids, tokens)
    same = next((i for i, (x, y) in enumerate(zip(ours, theirs)) if x != y), tokens)
    rows = min(same + 1, tokens)  # the row that parted them too
    fed = [*ids, *ours[:rows - 1]]
    exact = reference.logits(fed, len(ids) - 1)
    gap = abs(float(exact[same, ours[same]] - exact[same, theirs[same]])) if same < tokens \
        else float("nan")
    row = Continuation(
        prompt, len(ids), same, tokens, float(np.abs(our_logits[:rows] - exact).max()),
        float(np.abs(their_logits[:rows] - exact).max()),
        float(np.abs(our_logits[:rows] - their_logits[:rows]).max()), gap)
    if third is not None:
        logits = third.logits(fed, len(ids) - 1)
        row.third_error = float(np.abs(logits - exact).max())
        chosen = logits.argmax(-1)
        gaps = [abs(float(exact[i, ours[i]] - exact[i, chosen[i]])) for i in range(rows)
                if chosen[i] != ours[i]]
        row.third_gap = max(gaps, default=float("nan"))
    return row


def table(rows: list[Continuation]) -> str:
    """Markdown."""
    lines = ["| prompt | its tokens | same tokens | largest error of a logit, rooflane | llama.cpp "
             "| transformers | between the first two | gap at the first difference |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        gap = "" if row.same == row.tokens else \
            f"{row.gap:.1e}{'' if row.explained else ', NOT explained'}"
        third = "" if np.isnan(row.third_error) else f"{row.third_error:.1e}"
        lines.append(f"| {row.prompt} | {row.prompt_tokens} | {row.same} of {row.tokens} | "
                     f"{row.ours_error:.1e} | {row.theirs_error:.1e} | {third} | "
                     f"{row.between:.1e} | {gap} |")
    equal = sum(row.same == row.tokens for row in rows)
    explained = sum(row.explained for row in rows) - equal
    lines.append(f"\n{equal} of {len(rows)} prompts: all tokens equal; {explained} more parted "
                 "where the gap was within both errors; "
                 f"{len(rows) - equal - explained} not explained.")
    asked = [row for row in rows if not np.isnan(row.third_error)]
    if asked:
        others = sum(not np.isnan(row.third_gap) for row in asked)
        lines.append(f"transformers would choose the same tokens in {len(asked) - others} of "
                     f"{len(asked)} prompts.")
    return "\n".join(lines)
