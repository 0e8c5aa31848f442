"""A worker (protocol 1, src/measure/worker.hpp) for a function under @rooflane.variant:
python -m rooflane.function_worker FUNCTIONS.json NAME, started by function_peers.py."""
from __future__ import annotations

import importlib
import inspect
import json
import pickle
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from peer_workers.peer import Arrays, Peer, Plan, Unsupported
from peer_workers.problem import Problem
from peer_workers.serve import Server, serve
from rooflane import user_variants
from rooflane.user_variants import UserVariant

MAIN = "__rooflane_worker__"  # a script's __name__ here, so that what it guards stays undone


def load(source: dict[str, str]) -> None:
    """Makes this process know the variants of a file, module or pickle."""
    if "module" in source:
        importlib.import_module(source["module"])
    elif "file" in source:
        sys.argv = [source["file"]]
        try:
            runpy.run_path(source["file"], run_name=MAIN)
        except user_variants.Enough:
            pass
    else:
        one = pickle.loads(Path(source["pickle"]).read_bytes())
        user_variants.registered[one.kernel, one.name] = one


def tell_threads(threads: int) -> None:
    """Sets the thread counts of the libraries that the function's module imported."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    if numba := sys.modules.get("numba"):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def converter(arrays: str) -> Callable[[np.ndarray], Any]:
    """From NumPy's arrays to what the function takes. PyTorch's share their memory."""
    if arrays == "torch":
        return importlib.import_module("torch").from_numpy
    if arrays == "jax":
        return importlib.import_module("jax.numpy").array
    return lambda array: array


class FunctionPlan(Plan):
    """The function with its arguments: tensors by name, parameters by name."""

    def __init__(self, one: UserVariant, problem: Problem, arrays: Arrays, threads: int):
        self.function, self.convert = one.function, converter(one.arrays)
        self.host = arrays
        self.wanted = {tensor.name for tensor in problem.outputs}
        self.names = [tensor.name for tensor in problem.outputs]
        values = {"threads": threads, **problem.values}
        self.arguments: dict[str, Any] = {}
        for name in parameters_of(one.function):
            if name not in arrays and name not in values:
                raise Unsupported(f"{one.name}: its parameter {name} is none of "
                                  f"{', '.join([*arrays, *values])}")
            self.arguments[name] = None if name in arrays else values[name]
        self.returns = not self.wanted & set(self.arguments)
        if not self.returns and one.arrays == "jax":
            raise Unsupported(f"{one.name}: JAX's arrays cannot be written to: return the result")
        self.results: list[Any] = []
        self.upload()
        self.run()  # compiles

    def upload(self) -> None:
        for name in self.arguments:
            if name in self.host:
                self.arguments[name] = self.convert(self.host[name])

    def run(self) -> None:
        result = self.function(**self.arguments)
        if self.returns:
            self.results = list(result) if isinstance(result, (tuple, list)) else [result]
            for each in self.results:
                if hasattr(each, "block_until_ready"):
                    each.block_until_ready()

    def outputs(self) -> list[np.ndarray]:
        if not self.returns:
            return [self.host[name] for name in self.names]
        if len(self.results) != len(self.names):
            raise ValueError(f"{len(self.results)} results, expected {', '.join(self.names)}")
        return [shaped(np.asarray(result), self.host[name], name)
                for result, name in zip(self.results, self.names)]

    def poison(self) -> None:
        if self.returns:
            self.results = []
        else:
            super().poison()


def shaped(result: np.ndarray, like: np.ndarray, name: str) -> np.ndarray:
    """A result where it has the shape of its tensor."""
    if result.shape != like.shape:
        raise ValueError(f"{name} has shape {list(result.shape)}, expected {list(like.shape)}")
    return result


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters; for a compiled function those of its source."""
    plain = getattr(function, "py_func", function)  # Numba's
    return list(inspect.signature(plain).parameters)


class FunctionPeer(Peer):
    """The functions of one name, one for each kernel."""

    watched = True

    def __init__(self, ones: dict[str, UserVariant]):
        self.ones = ones
        self.kernels = {kernel: one.threads for kernel, one in ones.items()}
        self.dtypes = tuple(dict.fromkeys(d for one in ones.values() for d in one.dtypes))

    def library(self) -> str:
        beside_numpy = {one.arrays for one in self.ones.values()} - {"numpy"}
        name = min(beside_numpy, default="numba" if "numba" in sys.modules else "numpy")
        version = getattr(sys.modules.get(name), "__version__", "")
        return f"Python function, {name} {version}".strip()

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        one = self.ones[problem.kernel]
        tell_threads(threads if one.threads == "many" else 1)
        return FunctionPlan(one, problem, arrays, threads)


def main() -> int:
    """Serves until end of input."""
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    name = sys.argv[2]
    mine = [one for one in told["functions"] if one["name"] == name]

    def make() -> Peer:
        user_variants.enter_worker()
        for one in mine:
            if (one["kernel"], name) not in user_variants.registered:
                load(one["source"])
        return FunctionPeer({one["kernel"]: user_variants.registered[one["kernel"], name]
                             for one in mine})

    return serve(lambda: Server(name, None, make, tuple(one["kernel"] for one in mine)))


if __name__ == "__main__":
    sys.exit(main())
