"""Numba: the row kernels as loops, rows shared among its threads.

A product is a matter for a library, not for loops: there is no gemm and no attention here. Sums
may be reordered (reassoc) and products joined with sums (contract), or they would not be
vectorised; every product and sum stays float32, NaN and infinities keep their meaning.
"""
from __future__ import annotations

import math

import numba
import numpy as np
from numba import njit, prange

from peer_workers.peer import Arrays, Peer, Plan, no_epilogue
from peer_workers.problem import Problem

FAST = {"reassoc", "contract"}


@njit(parallel=True, fastmath=FAST)
def softmax(x, y):
    for r in prange(x.shape[0]):
        row, out = x[r], y[r]
        largest = np.float32(-np.inf)
        for i in range(row.size):
            largest = max(largest, row[i])
        for i in range(row.size):
            out[i] = math.exp(row[i] - largest)
        total = 0.0  # in double: long rows lose digits in a float32 sum
        for i in range(row.size):
            total += out[i]
        scale = np.float32(1 / total)
        for i in range(row.size):
            out[i] *= scale


@njit(parallel=True, fastmath=FAST)
def layernorm(x, gamma, beta, eps, y):
    for r in prange(x.shape[0]):
        row, out = x[r], y[r]
        total = np.float32(0)
        for i in range(row.size):
            total += row[i]
        mean = total / np.float32(row.size)
        squares = np.float32(0)
        for i in range(row.size):
            apart = row[i] - mean
            squares += apart * apart
        scale = np.float32(1) / math.sqrt(squares / np.float32(row.size) + eps)
        for i in range(row.size):
            out[i] = (row[i] - mean) * scale * gamma[i] + beta[i]


class NumbaPlan(Plan):
    def __init__(self, problem: Problem, arrays: Arrays):
        self.arrays = arrays
        self.eps = np.float32(problem.eps) if problem.kernel == "layernorm" else None
        self.run()  # compiles

    def run(self) -> None:
        arrays = self.arrays
        if self.eps is None:
            softmax(arrays["x"], arrays["y"])
        else:
            layernorm(arrays["x"], arrays["gamma"], arrays["beta"], self.eps, arrays["y"])

    def output(self) -> np.ndarray:
        return self.arrays["y"]


class NumbaPeer(Peer):
    kernels = {"softmax": "many", "layernorm": "many"}

    def library(self) -> str:
        try:
            layer = numba.threading_layer()
        except ValueError:  # no parallel loop has run yet
            layer = ""
        return f"Numba {numba.__version__} {layer} {' '.join(sorted(FAST))}".replace("  ", " ")

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_epilogue(problem, "Numba")
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        return NumbaPlan(problem, arrays)
