"""Timed series of a function that may be anybody's: within them, unannounced, an element of an
input becomes another. What the run made of it goes along with the times; whoever asked compares it
with the double-precision reference (src/measure/changed_runs.hpp).
"""
from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from peer_workers.sampling import time_runs

if TYPE_CHECKING:
    from peer_workers.peer import Arrays, Plan
    from peer_workers.problem import Problem, Tensor

CHANGES = 3  # of a series
FEW = 12  # runs: each of a series of so few is behind a change
LOOKED_AT = 16  # elements of an output row
FLOATS = ("float32", "float16", "bfloat16")
CHOOSE = random.SystemRandom()  # nobody can say beforehand what it chooses


def place_in(tensor: Tensor, output: Tensor, row: int, col: int) -> int:
    """An element of an input that affects an element of the output, as far as their shapes show: of
    the same row, or of the same column."""
    cols = tensor.shape[-1]
    rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    if tensor.shape[:-1] != output.shape[:-1]:
        row = CHOOSE.randrange(rows)
    return row * cols + (col if cols == output.shape[-1] else CHOOSE.randrange(cols))


def change(problem: Problem, arrays: Arrays) -> dict[str, Any] | None:
    """Changes an input in place and says where; nothing where there is none to change."""
    inputs = [tensor for tensor in problem.tensors
              if tensor.role == "input" and tensor.dtype in FLOATS and 0 not in tensor.shape]
    outputs = [tensor for tensor in problem.outputs if 0 not in tensor.shape]
    if not inputs or not outputs:
        return None
    tensor, output = CHOOSE.choice(inputs), CHOOSE.choice(outputs)
    cols = output.shape[-1]
    row = CHOOSE.randrange(int(np.prod(output.shape[:-1], dtype=np.int64)))
    col = CHOOSE.randrange(cols)
    flat = arrays[tensor.name].reshape(-1)
    element, other = place_in(tensor, output, row, col), CHOOSE.randrange(flat.size)
    before = flat[element].copy()
    flat[element] = flat[other]
    return {"tensor": tensor.name, "element": element, "from": other, "output": output.name,
            "row": row, "first": max(0, min(col, cols - LOOKED_AT)), "before": before}


def looked_at(plan: Plan, problem: Problem, made: dict[str, Any]) -> str:
    """The elements of the output that are compared, as bytes in hexadecimal."""
    names = [tensor.name for tensor in problem.outputs]
    output = np.asarray(plan.outputs()[names.index(made["output"])])
    row = np.ascontiguousarray(output).reshape(-1, output.shape[-1])[made["row"]]
    return row[made["first"]:made["first"] + LOOKED_AT].tobytes().hex()


def time_watched(plan: Plan, problem: Problem, arrays: Arrays,
                 runs: int) -> tuple[float, list[dict[str, Any]]]:
    """Mean time in ns of one of `runs` runs, and the changes within, in order; the inputs are then
    as before."""
    calls = sorted(CHOOSE.sample(range(runs), runs if runs <= FEW else CHANGES))
    total, done = 0.0, 0
    changes: list[dict[str, Any]] = []
    for call in calls:
        if call > done:
            total += time_runs(plan.run, call - done) * (call - done)
        made = change(problem, arrays)
        if made is not None:
            kept = looked_at(plan, problem, made)
            plan.upload()
        total += time_runs(plan.run, 1)
        done = call + 1
        if made is not None:
            made["bytes"] = looked_at(plan, problem, made)
            made["same"] = made["bytes"] == kept
            changes.append(made)
    if runs > done:
        total += time_runs(plan.run, runs - done) * (runs - done)
    for made in reversed(changes):
        arrays[made["tensor"]].reshape(-1)[made["element"]] = made.pop("before")
    plan.upload()
    return total / runs, changes
