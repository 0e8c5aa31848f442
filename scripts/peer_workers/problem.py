"""Cases and problems as text, their tensors, and inputs from a seed: what the C++ side does in
src/measure/case.cpp, src/core/problem.cpp and src/core/seeds.cpp, for workers in Python.

A case has been checked by whoever sends it; what cannot be read is still refused by name.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote

import numpy as np

# Kernel -> its keys with their defaults; None: required. Keys in REALS are real numbers.
PARAMS: dict[str, dict[str, float | None]] = {
    "gemm": {"m": None, "n": None, "k": None, "batch": 1, "trans_a": 0, "trans_b": 0,
             "alpha": 1.0, "beta": 0.0, "prepack": 0},
    "softmax": {"rows": None, "cols": None},
    "layernorm": {"rows": None, "cols": None, "eps": 1e-5},
    "attention": {"batch": None, "heads": None, "kv_heads": math.nan, "q_len": None,
                  "kv_len": None, "head_dim": None, "causal": 0, "scale": math.nan},
}
REALS = {"alpha", "beta", "eps", "scale"}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a problem. Inputs are seeded with values in (-scale, scale)."""
    name: str
    shape: tuple[int, ...]
    role: str  # "input", "constant" or "output"
    scale: float = 1.0


@dataclass(frozen=True)
class Problem:
    """A kernel with its sizes and flags: problem.m, problem.causal, ..."""
    kernel: str
    values: dict[str, float] = field(hash=False)

    def __getattr__(self, name: str):
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def tensors(self) -> list[Tensor]:
        """Inputs and constants in the kernel's order, then the one output."""
        p = self.values
        if self.kernel == "gemm":
            a = (p["k"], p["m"]) if p["trans_a"] else (p["m"], p["k"])
            b = (p["n"], p["k"]) if p["trans_b"] else (p["k"], p["n"])
            batch = (p["batch"],)
            tensors = [Tensor("a", batch + a, "input"),
                       Tensor("b", batch + b, "constant" if p["prepack"] else "input")]
            if p["beta"] != 0:
                tensors.append(Tensor("c0", batch + (p["m"], p["n"]), "input"))
            return tensors + [Tensor("c", batch + (p["m"], p["n"]), "output")]
        if self.kernel == "softmax":
            shape = (p["rows"], p["cols"])
            return [Tensor("x", shape, "input", 8.0), Tensor("y", shape, "output")]
        if self.kernel == "layernorm":
            shape = (p["rows"], p["cols"])
            return [Tensor("x", shape, "input"), Tensor("gamma", shape[1:], "input"),
                    Tensor("beta", shape[1:], "input"), Tensor("y", shape, "output")]
        q = (p["batch"], p["heads"], p["q_len"], p["head_dim"])
        kv = (p["batch"], p["kv_heads"], p["kv_len"], p["head_dim"])
        return [Tensor("q", q, "input"), Tensor("k", kv, "input"), Tensor("v", kv, "input"),
                Tensor("o", q, "output")]

    def visible(self, query: int) -> int:
        """How many keys query `query` of attention sees; they are the first ones."""
        if not self.causal:
            return self.kv_len
        return min(max(query + 1 + self.kv_len - self.q_len, 0), self.kv_len)


@dataclass(frozen=True)
class Case:
    """A measurement's identity, as far as a Python worker cares."""
    problem: Problem
    variant: str
    fields: dict[str, str] = field(hash=False)

    @property
    def threads(self) -> int:
        return int(self.fields.get("threads", "1"))

    @property
    def seed(self) -> int:
        return int(self.fields.get("seed", "1"))


def parse_problem(text: str) -> Problem:
    """`gemm:m=8,n=8,k=8` -> the problem with all defaults filled in. Raises ValueError."""
    kernel, colon, keys = text.partition(":")
    if not colon or kernel not in PARAMS:
        raise ValueError(f"case: unknown kernel in '{text}'; valid: {', '.join(PARAMS)}")
    defaults = PARAMS[kernel]
    values = {name: value for name, value in defaults.items() if value is not None}
    for item in keys.split(","):
        name, equals, value = item.partition("=")
        if not equals or name not in defaults:
            raise ValueError(f"case: '{item}' is no key of {kernel}; valid: {', '.join(defaults)}")
        values[name] = float(value) if name in REALS else int(value)
    for name in defaults:
        if name not in values:
            raise ValueError(f"case: {kernel} needs {name}=: it is missing")
    if kernel == "attention":
        if math.isnan(values["kv_heads"]):
            values["kv_heads"] = values["heads"]
        if math.isnan(values["scale"]):
            values["scale"] = 1 / math.sqrt(values["head_dim"])
    return Problem(kernel, values)


def parse_case(text: str) -> Case:
    """One line as Case::text prints it. Raises ValueError."""
    problem, *words = text.split(" ")
    fields = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"case: '{word}' is not FIELD=VALUE")
        if re.search("%(?![0-9A-F]{2})", value):
            raise ValueError(f"case: {word}: allowed after % are two digits of 0-9 and A-F")
        fields[name] = unquote(value)
    if "variant" not in fields:
        raise ValueError("case: field variant is missing")
    return Case(parse_problem(problem), fields["variant"], fields)


def fnv1a64(text: str) -> int:
    """The 64-bit FNV-1a hash of a text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def seeded_values(stream: int, first: int, last: int) -> np.ndarray:
    """Elements [first, last) of the stream: splitmix64's finaliser of stream + (i+1)·φ, its upper
    24 bits as a float32 in (-1, 1)."""
    x = np.arange(first + 1, last + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(stream)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    x >>= np.uint64(40)
    values = x.astype(np.float64)
    values += 0.5
    values *= 2.0**-23
    values -= 1
    return values.astype(np.float32)


def _chunks(elements: int) -> Iterator[tuple[int, int]]:
    """Pieces whose intermediate values stay in a core's cache."""
    size = 1 << 15
    for first in range(0, elements, size):
        yield first, min(elements, first + size)


def _fill_piece(flat: np.ndarray, stream: int, scale: np.float32, piece: tuple[int, int]) -> None:
    first, last = piece
    np.multiply(seeded_values(stream, first, last), scale, out=flat[first:last])


def fill_inputs(problem: Problem, seed: int, arrays: dict[str, np.ndarray], threads: int) -> None:
    """Writes every input and constant of the problem from the seed, on `threads` threads, so that
    pages are first touched where they will be read."""
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for tensor in problem.tensors():
            if tensor.role == "output":
                continue
            flat = arrays[tensor.name].reshape(-1)
            stream = seed ^ fnv1a64(f"{problem.kernel}/{tensor.name}")
            fill = partial(_fill_piece, flat, stream, np.float32(tensor.scale))
            list(pool.map(fill, _chunks(flat.size)))
