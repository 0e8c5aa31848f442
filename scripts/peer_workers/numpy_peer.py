"""NumPy at its best: np.matmul for products, and rows in blocks that stay in cache for the rest.

Everything writes into arrays made beforehand (out=). Only np.matmul uses threads: its BLAS does.
"""
from __future__ import annotations

import ctypes
import re

import numpy as np

from peer_workers import numpy_elements, numpy_indices
from peer_workers.peer import (
    Arrays,
    Peer,
    Plan,
    aligned_array,
    no_attention_options,
    no_epilogue,
    no_prepack,
)
from peer_workers.problem import Problem

# Rows are worked on in blocks of about this many elements: 256 KiB in and as much out, which stays
# in a second-level cache while NumPy's passes go over it, and is long beside a call's 1 µs.
BLOCK = 1 << 16
# Scores of attention at a time: 1 MiB, written and read by two products and five passes.
SCORES = 1 << 18


class OpenBlas:
    """The OpenBLAS that NumPy loaded, by its own functions; `name` is NumPy's word, and threads are
    not ours to set, when it is another library."""

    def __init__(self) -> None:
        self.name = str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"])
        self._set_threads = None
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(None, 5)[-1].strip() for line in maps if "openblas" in line}
        for path in sorted(paths):
            library = ctypes.CDLL(path)
            for form in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_",
                         "openblas_{}"):
                if hasattr(library, form.format("get_corename")):
                    self._bind(library, form)
                    return

    def _bind(self, library: ctypes.CDLL, form: str) -> None:
        words = []
        for call in ("get_config", "get_corename"):
            function = getattr(library, form.format(call))
            function.restype = ctypes.c_char_p
            words.append(function().decode())
        version = re.search(r"OpenBLAS\s+(\S+)", words[0])
        self.name = f"OpenBLAS {version[1] if version else ''} {words[1]}"
        self._set_threads = getattr(library, form.format("set_num_threads"))

    def set_threads(self, threads: int) -> None:
        if self._set_threads is not None:
            self._set_threads(ctypes.c_int(threads))


class NumpyPlan(Plan):
    """What the plans below share: the output is the caller's array."""

    def __init__(self, output: np.ndarray):
        self._output = output

    def output(self) -> np.ndarray:
        return self._output


class Gemm(NumpyPlan):
    """c = alpha·op(a)·op(b) + beta·c0 with one np.matmul, which hands transposed views to BLAS as
    they are."""

    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["c"])
        self.a = arrays["a"].swapaxes(1, 2) if problem.trans_a else arrays["a"]
        self.b = arrays["b"].swapaxes(1, 2) if problem.trans_b else arrays["b"]
        self.c = arrays["c"]
        if problem.batch == 1:  # two axes: no loop over matrices inside NumPy
            self.a, self.b, self.c = self.a[0], self.b[0], self.c[0]
        self.alpha = np.float32(problem.alpha)
        self.beta = np.float32(problem.beta)
        self.c0 = self.scaled = None
        if self.beta != 0:
            self.c0 = arrays["c0"].reshape(self.c.shape)
            self.scaled = aligned_array(self.c.shape)
            self.scaled.fill(0)
            self.workspace_bytes = self.scaled.nbytes

    def run(self) -> None:
        if self.alpha == 0:
            self.c.fill(0)
        else:
            np.matmul(self.a, self.b, out=self.c)
            if self.alpha != 1:
                np.multiply(self.c, self.alpha, out=self.c)
        if self.c0 is not None:
            np.multiply(self.c0, self.beta, out=self.scaled)
            np.add(self.c, self.scaled, out=self.c)


def softmax_rows(x: np.ndarray, y: np.ndarray, column: np.ndarray) -> None:
    """y = softmax of x over the last axis; `column` is scratch of one value a row."""
    np.max(x, axis=-1, keepdims=True, out=column)
    np.subtract(x, column, out=y)
    np.exp(y, out=y)
    np.sum(y, axis=-1, keepdims=True, out=column)
    np.divide(y, column, out=y)


class Softmax(NumpyPlan):
    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["y"])
        step = max(1, BLOCK // problem.cols)
        column = np.zeros((min(step, problem.rows), 1), np.float32)
        self.workspace_bytes = column.nbytes
        self.blocks = [(arrays["x"][r:r + step], arrays["y"][r:r + step],
                        column[:min(step, problem.rows - r)])
                       for r in range(0, problem.rows, step)]

    def run(self) -> None:
        for x, y, column in self.blocks:
            softmax_rows(x, y, column)


class LayerNorm(NumpyPlan):
    """Mean, difference from it, sum of squares, then scale, gamma and beta, block by block."""

    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["y"])
        self.gamma, self.beta = arrays["gamma"], arrays.get("beta")
        self.cols = np.float32(problem.cols)
        self.eps = np.float32(problem.eps)
        step = max(1, BLOCK // problem.cols)
        column = np.zeros((min(step, problem.rows), 1), np.float32)
        self.workspace_bytes = column.nbytes
        self.blocks = [(arrays["x"][r:r + step], arrays["y"][r:r + step],
                        column[:min(step, problem.rows - r)])
                       for r in range(0, problem.rows, step)]

    def run(self) -> None:
        for x, y, column in self.blocks:
            np.mean(x, axis=-1, keepdims=True, out=column)
            np.subtract(x, column, out=y)
            np.einsum("rc,rc->r", y, y, out=column[:, 0])
            np.divide(column, self.cols, out=column)
            np.add(column, self.eps, out=column)
            np.sqrt(column, out=column)
            np.divide(y, column, out=y)
            np.multiply(y, self.gamma, out=y)
            np.add(y, self.beta, out=y)


class RmsNorm(LayerNorm):
    """Sum of squares, then scale and gamma, block by block."""

    def run(self) -> None:
        for x, y, column in self.blocks:
            np.einsum("rc,rc->r", x, x, out=column[:, 0])
            np.divide(column, self.cols, out=column)
            np.add(column, self.eps, out=column)
            np.sqrt(column, out=column)
            np.divide(x, column, out=y)
            np.multiply(y, self.gamma, out=y)


class Attention(NumpyPlan):
    """softmax(scale·q·kᵀ)·v in blocks of queries, and of heads when they are short, so that scores
    stay in cache. In a causal problem, keys that no query of a block sees are left out."""

    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["o"])
        p = problem
        group = p.heads // p.kv_heads
        masked = p.causal and p.q_len > 0 and p.visible(0) < p.kv_len
        # [batch·kv_heads, matrices that share a kv head, queries, head_dim]. Without a mask the
        # queries of a group are rows of one matrix.
        shape = (p.batch * p.kv_heads, group, p.q_len, p.head_dim)
        if not masked:
            shape = (shape[0], 1, group * p.q_len, p.head_dim)
        q, o = arrays["q"].reshape(shape), arrays["o"].reshape(shape)
        k = arrays["k"].reshape(shape[0], 1, p.kv_len, p.head_dim)
        v = arrays["v"].reshape(shape[0], 1, p.kv_len, p.head_dim)
        self.scale = np.float32(p.scale)
        self.tasks = []
        self.masks: dict[int, np.ndarray] = {}
        # Queries that see no key, and everything when there are no keys.
        unseen = max(0, p.q_len - p.kv_len) if p.causal else 0
        self.zeros = o if p.kv_len == 0 else o[:, :, :unseen]
        if o.size == 0 or p.kv_len == 0:
            return
        rows = min(shape[2], max(1, SCORES // (shape[1] * p.kv_len)))
        heads = min(shape[0], max(1, SCORES // (shape[1] * rows * p.kv_len)))
        scores = np.zeros(heads * shape[1] * rows * p.kv_len, np.float32)
        column = np.zeros(heads * shape[1] * rows, np.float32)
        self.workspace_bytes = scores.nbytes + column.nbytes
        for h in range(0, shape[0], heads):
            for r in range(unseen if masked else 0, shape[2], rows):
                block = q[h:h + heads, :, r:r + rows]
                last = r + block.shape[2] - 1
                keys = p.visible(last) if masked else p.kv_len
                size = block.shape[:3] + (keys,)
                first, mask = self._mask(p, r, last) if masked else (keys, None)
                self.tasks.append((
                    block, k[h:h + heads, :, :keys].swapaxes(2, 3), v[h:h + heads, :, :keys],
                    o[h:h + heads, :, r:r + rows], scores[:np.prod(size)].reshape(size),
                    column[:np.prod(size[:3])].reshape(size[:3] + (1,)), mask, first))

    def _mask(self, p: Problem, first: int, last: int) -> tuple[int, np.ndarray | None]:
        """What to add to the scores of queries first..last: the first key that some of them do not
        see, and from there on 0 or -inf; nothing when all see the same keys. All heads share it."""
        start, end = p.visible(first), p.visible(last)
        if start == end:
            return end, None
        if first not in self.masks:
            seen = np.array([[p.visible(i)] for i in range(first, last + 1)])
            hidden = np.arange(start, end) >= seen
            self.masks[first] = np.where(hidden, np.float32(-np.inf), np.float32(0))
            self.workspace_bytes += self.masks[first].nbytes
        return start, self.masks[first]

    def run(self) -> None:
        if self.zeros.size:
            self.zeros.fill(0)
        for q, k, v, o, scores, column, mask, first in self.tasks:
            np.matmul(q, k, out=scores)
            np.multiply(scores, self.scale, out=scores)
            if mask is not None:
                tail = scores[..., first:]
                np.add(tail, mask, out=tail)
            np.max(scores, axis=-1, keepdims=True, out=column)
            np.subtract(scores, column, out=scores)
            np.exp(scores, out=scores)
            np.sum(scores, axis=-1, keepdims=True, out=column)
            np.matmul(scores, v, out=o)
            np.divide(o, column, out=o)  # head_dim divisions a row instead of kv_len


class NumpyPeer(Peer):
    kernels = {"gemm": "many", "softmax": "one", "layernorm": "one", "attention": "many",
               "rmsnorm": "one",
               **dict.fromkeys([*numpy_indices.PLANS, *numpy_elements.PLANS], "one")}
    plans = {"gemm": Gemm, "softmax": Softmax, "layernorm": LayerNorm, "attention": Attention,
             "rmsnorm": RmsNorm, **numpy_indices.PLANS, **numpy_elements.PLANS}
    dtypes = ("float32", "int32")

    def __init__(self) -> None:
        # NaN and infinities are legitimate values here; warnings about them are not.
        np.seterr(all="ignore")
        self.blas = OpenBlas()

    def library(self) -> str:
        return f"NumPy {np.__version__} {self.blas.name}"

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_prepack(problem, "NumPy")
        no_attention_options(problem, "NumPy")
        no_epilogue(problem, "NumPy")
        self.blas.set_threads(threads)
        return self.plans[problem.kernel](problem, arrays)
