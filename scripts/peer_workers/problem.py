"""Problems as the `open` request of protocol 1 resolves them (src/measure/worker.hpp), and inputs
from a seed as src/core/seeds.cpp makes them, for workers in Python.

Nothing here knows a kernel: parameters, tensors and defaults come from whoever asks.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from peer_workers.formats import BLOCK, BLOCK_BYTES, RANGES, stored


@dataclass(frozen=True)
class Tensor:
    """A tensor of a problem. Inputs are seeded with values in (-scale, scale), int32 ones with
    integers from 0 to end - 1, sorted where they ascend, all the last where they are counts."""
    name: str
    shape: tuple[int, ...]
    role: str  # "input", "constant" or "output"
    scale: float = 1.0
    dtype: str = "float32"
    end: int = 0
    ascending: bool = False
    full: bool = False


@dataclass(frozen=True)
class Problem:
    """A kernel with its sizes and flags: problem.m, problem.causal, ...; tensors in the kernel's
    order, outputs last."""
    kernel: str
    values: dict[str, float] = field(hash=False)
    tensors: tuple[Tensor, ...]
    math: str = "fp32"  # the arithmetic asked for, as core/math.hpp names it

    def __getattr__(self, name: str):
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def outputs(self) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.role == "output"]

    @property
    def output(self) -> Tensor:
        """The output of the many kernels that have one."""
        return self.tensors[-1]

    def visible(self, query: int) -> int:
        """How many keys query `query` of attention sees; without a window they are the first
        ones."""
        if not self.causal:
            return self.kv_len
        return min(max(query + 1 + self.kv_len - self.q_len, 0), self.kv_len)

    @property
    def functions(self) -> list[str]:
        """The functions of gemm's epilogue, in its order; gate=1 is one by itself."""
        if self.values.get("gate"):
            return ["gate"]
        chain = self.values.get("epilogue", "none")
        return [] if chain == "none" else chain.split("+")

    def attention_options(self) -> list[str]:
        """What attention is asked for beyond plain and causal, as key=value."""
        plain = {"v_dim": self.head_dim, "window": 0, "softcap": 0, "mask": 0, "lengths": 0}
        return [f"{name}={self.values[name]:g}" for name, value in plain.items()
                if self.values.get(name, value) != value]


def problem_of(resolved: dict[str, Any], math: str = "fp32") -> Problem:
    """The problem of a request. Raises KeyError for one that is not resolved."""
    parameters = resolved["parameters"]

    def end(tensor: dict[str, Any]) -> int:
        if "counts_to" in tensor:
            return parameters[tensor["counts_to"]] + 1
        return parameters[tensor["ids_below"]] if "ids_below" in tensor else 0

    return Problem(resolved["kernel"], parameters, tuple(
        Tensor(tensor["name"], tuple(tensor["shape"]), tensor["role"], tensor["seed_scale"],
               tensor["dtype"], end(tensor), tensor.get("ascending", False),
               "counts_to" in tensor)
        for tensor in resolved["tensors"]), math)


def fnv1a64(text: str) -> int:
    """The 64-bit FNV-1a hash of a text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def seeded_bits(stream: int, first: int, last: int) -> np.ndarray:
    """Elements [first, last) of the stream: splitmix64's finaliser of stream + (i+1)·φ."""
    x = np.arange(first + 1, last + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(stream)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def seeded_integers(stream: int, first: int, last: int, end: int) -> np.ndarray:
    """Those elements as int32 from 0 to end - 1: the upper 32 bits times `end`, over 2^32."""
    x = seeded_bits(stream, first, last)
    x >>= np.uint64(32)
    x *= np.uint64(end)
    x >>= np.uint64(32)
    return x.astype(np.int32)


def seeded_values(stream: int, first: int, last: int) -> np.ndarray:
    """Those elements as float32 in (-1, 1), from their upper 24 bits."""
    x = seeded_bits(stream, first, last)
    x >>= np.uint64(40)
    values = x.astype(np.float64)
    values += 0.5
    values *= 2.0**-23
    values -= 1
    return values.astype(np.float32)


@dataclass(frozen=True)
class Range:
    """What limits the values of a tensor (core/distribution.hpp, SeedRange)."""
    low: int
    high: int
    least_normal: int
    far: float
    largest: float


def _distributed(name: str, limits: Range, tensor: Tensor, streams: tuple[int, int, int],
                 first: int, last: int) -> np.ndarray:
    """Elements [first, last) in the distribution of that name, as core/distribution.cpp has them.
    `streams`: of elements, of rows, of exponents."""
    elements, rows, exponents = streams
    cols = tensor.shape[-1]
    index = np.arange(first, last, dtype=np.int64)
    row, col = index // cols, index % cols
    first_row = first // cols
    even = row % 2 == 0
    unit = seeded_values(elements, first, last).astype(np.float64)

    def of_rows(values: np.ndarray) -> np.ndarray:
        return values[row - first_row]

    def integers(end: int) -> np.ndarray:
        return of_rows(seeded_integers(rows, first_row, int(row[-1]) + 1, end)).astype(np.int64)

    powers = limits.high - limits.low + 1
    if name == "wide":
        own = seeded_integers(exponents, first, last, powers).astype(np.int64)
        values = np.ldexp(unit, limits.low + np.where(even, integers(powers), own))
    elif name == "cancelling":
        before = seeded_values(elements, max(first - 1, 0), last).astype(np.float64)
        before = before[:-1] if first > 0 else np.concatenate([unit[:1], before[:-1]])
        pairs = np.where(col % 2 == 0, limits.far * unit, unit - limits.far * before)
        values = tensor.scale * np.where(even, limits.far + unit, pairs)
    elif name == "constant":
        of_row = of_rows(seeded_values(rows, first_row, int(row[-1]) + 1).astype(np.float64))
        values = np.where(even, tensor.scale * of_row,
                          np.ldexp(of_row, limits.low + integers(powers)))
    elif name == "outlier":
        values = tensor.scale * np.where(col == integers(cols), np.copysign(limits.far, unit), unit)
    elif name == "ties":
        values = tensor.scale * 0.5 * (seeded_integers(exponents, first, last, 5) - 2.0)
    elif name == "denormals":
        values = np.ldexp(unit, np.where(even, limits.least_normal, min(48, limits.high)))
    else:
        raise ValueError(f"unknown distribution {name!r}")
    return np.clip(values, -limits.largest, limits.largest).astype(np.float32)


def _chunks(elements: int) -> Iterator[tuple[int, int]]:
    """Pieces with intermediate values that stay in a core's cache."""
    size = 1 << 15
    for first in range(0, elements, size):
        yield first, min(elements, first + size)


def _fill_piece(flat: np.ndarray, stream: int, tensor: Tensor,
                drawn: Callable[[int, int], np.ndarray] | None, piece: tuple[int, int]) -> None:
    first, last = piece
    if tensor.dtype == "int32":
        flat[first:last] = (tensor.end - 1 if tensor.full else
                            seeded_integers(stream, first, last, tensor.end))
        return
    if drawn is not None:
        values = drawn(first, last)
    else:
        values = seeded_values(stream, first, last)
        if tensor.dtype not in RANGES:
            values *= np.float32(tensor.scale)
    encoded = stored(values, tensor.dtype)
    start = first
    if tensor.dtype in BLOCK_BYTES:  # pieces are whole blocks
        start = first // BLOCK * BLOCK_BYTES[tensor.dtype]
    flat[start:start + encoded.size] = encoded


def fill_inputs(problem: Problem, seed: int, arrays: dict[str, np.ndarray], threads: int,
                distribution: dict[str, Any] | None = None) -> None:
    """Writes every input and constant of the problem from the seed, on `threads` threads, so that
    pages are first touched where they will be read. `distribution`: as the request names it, with
    the ranges of the tensors that follow it; None: uniform."""
    ranges = distribution["ranges"] if distribution else {}
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for tensor in problem.tensors:
            if tensor.role == "output":
                continue
            flat = arrays[tensor.name].reshape(-1)
            name = f"{problem.kernel}/{tensor.name}"
            stream = seed ^ fnv1a64(name)
            drawn = None
            if tensor.name in ranges:
                streams = (stream, seed ^ fnv1a64(f"{name}/row"),
                           seed ^ fnv1a64(f"{name}/exponent"))
                drawn = partial(_distributed, distribution["name"], Range(**ranges[tensor.name]),
                                tensor, streams)
            fill = partial(_fill_piece, flat, stream, tensor, drawn)
            list(pool.map(fill, _chunks(math.prod(tensor.shape))))
            if tensor.ascending:
                flat.sort()
