"""The elementwise kernels (add, activation) by NumPy, on one thread."""
from __future__ import annotations

import numpy as np

from peer_workers.peer import Arrays, Plan, Unsupported
from peer_workers.problem import Problem

# As in numpy_peer.py: what a function leaves in y is still in cache for the next one.
BLOCK = 1 << 16


class ElementsPlan(Plan):
    def __init__(self, output: np.ndarray):
        self._output = output

    def output(self) -> np.ndarray:
        return self._output


class Add(ElementsPlan):
    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["y"])
        self.x, self.r = arrays["x"], arrays["r"]

    def run(self) -> None:
        np.add(self.x, self.r, out=self._output)


def relu(x: np.ndarray, y: np.ndarray) -> None:
    np.maximum(x, np.float32(0), out=y)


def divided_by_one_more_than_exp(x: np.ndarray, y: np.ndarray) -> None:
    """y = x / (1 + exp(y))."""
    np.exp(y, out=y)
    np.add(y, np.float32(1), out=y)
    np.divide(x, y, out=y)


def silu(x: np.ndarray, y: np.ndarray) -> None:
    np.negative(x, out=y)
    divided_by_one_more_than_exp(x, y)


def gelu_tanh(x: np.ndarray, y: np.ndarray) -> None:
    """As x / (1 + exp(-2t)), which is x/2 * (1 + tanh(t))."""
    scale = 2 * np.sqrt(2 / np.pi)
    np.multiply(x, x, out=y)
    np.multiply(y, np.float32(-0.044715 * scale), out=y)
    np.subtract(y, np.float32(scale), out=y)
    np.multiply(y, x, out=y)
    divided_by_one_more_than_exp(x, y)


class Activation(ElementsPlan):
    """The function, then the product with the gate, block by block."""

    functions = {"relu": relu, "silu": silu, "gelu_tanh": gelu_tanh,
                 "tanh": lambda x, y: np.tanh(x, out=y)}

    def __init__(self, problem: Problem, arrays: Arrays):
        super().__init__(arrays["y"])
        if problem.kind not in self.functions:
            raise Unsupported(f"NumPy has nothing for {problem.kind}: no erf")
        self.function = self.functions[problem.kind]
        x, y = arrays["x"].reshape(-1), arrays["y"].reshape(-1)
        gate = arrays["g"].reshape(-1) if problem.gate else None
        self.blocks = [(x[i:i + BLOCK], y[i:i + BLOCK],
                        None if gate is None else gate[i:i + BLOCK])
                       for i in range(0, x.size, BLOCK)]

    def run(self) -> None:
        for x, y, gate in self.blocks:
            self.function(x, y)
            if gate is not None:
                np.multiply(y, gate, out=y)


PLANS = {"add": Add, "activation": Activation}
