"""Kernels that gather, add by segment, choose and rearrange, by NumPy.

What depends on the values of ids, as their order does, is part of a run.
"""
from __future__ import annotations

import numpy as np

from peer_workers.peer import Arrays, Plan
from peer_workers.problem import Problem


class Embed(Plan):
    def __init__(self, problem: Problem, arrays: Arrays):
        self.table, self.ids, self.y = (arrays[name] for name in ("table", "ids", "y"))

    def run(self) -> None:
        if self.ids.size:  # "clip", since "raise" writes into a copy first
            np.take(self.table, self.ids, axis=0, out=self.y, mode="clip")

    def output(self) -> np.ndarray:
        return self.y


class Segments(Plan):
    """Edges segment by segment, for ufunc.reduceat over those that have any."""

    def __init__(self, problem: Problem, arrays: Arrays):
        self.sorted = bool(problem.sorted)
        self.x, self.segment, self.y = (arrays[name] for name in ("x", "segment", "y"))

    def output(self) -> np.ndarray:
        return self.y

    def ordered(self) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """The order of the edges (nothing: as they come), their segments in it, and where a
        segment begins."""
        order = None if self.sorted else np.argsort(self.segment, kind="stable")
        segment = self.segment if order is None else self.segment[order]
        return order, segment, np.flatnonzero(np.diff(segment, prepend=-1))


class SegmentSum(Segments):
    def run(self) -> None:
        self.y.fill(0)
        if not self.segment.size:
            return
        order, segment, starts = self.ordered()
        x = self.x if order is None else self.x[order]
        self.y[segment[starts]] = np.add.reduceat(x, starts, axis=0)


class SegmentSoftmax(Segments):
    def run(self) -> None:
        if not self.segment.size:
            return
        order, _, starts = self.ordered()
        x = self.x if order is None else self.x[order]
        counts = np.diff(starts, append=len(x))
        y = x - np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0)
        np.exp(y, out=y)
        y /= np.repeat(np.add.reduceat(y, starts, axis=0), counts, axis=0)
        if order is None:
            self.y[:] = y
        else:
            self.y[order] = y


class TopK(Plan):
    """The largest by argmax; more by a partition, which is then sorted."""

    def __init__(self, problem: Problem, arrays: Arrays):
        self.k = problem.k
        self.x, self.values, self.ids = (arrays[name] for name in ("x", "values", "ids"))

    def run(self) -> None:
        if not self.values.size:
            return
        if self.k == 1:
            ids = np.argmax(self.x, axis=-1, keepdims=True)
        else:
            ids = np.argpartition(self.x, -self.k, axis=-1)[:, -self.k:]
            found = np.take_along_axis(self.x, ids, axis=-1)
            ids = np.take_along_axis(ids, np.lexsort((ids, -found), axis=-1), axis=-1)
        self.ids[:] = ids
        self.values[:] = np.take_along_axis(self.x, ids, axis=-1)

    def outputs(self) -> list[np.ndarray]:
        return [self.values, self.ids]


class Im2Patch(Plan):
    def __init__(self, problem: Problem, arrays: Arrays):
        p = problem
        down, across = p.height // p.patch, p.width // p.patch
        self.patches = arrays["patches"]
        self.image = arrays["image"].reshape(p.batch, p.channels, down, p.patch, across, p.patch)
        self.to = self.patches.reshape(p.batch, down, across, p.channels, p.patch, p.patch)

    def run(self) -> None:
        np.copyto(self.to, self.image.transpose(0, 2, 4, 1, 3, 5))

    def output(self) -> np.ndarray:
        return self.patches


PLANS = {"embed": Embed, "segment_sum": SegmentSum, "segment_softmax": SegmentSoftmax,
         "topk": TopK, "im2patch": Im2Patch}
