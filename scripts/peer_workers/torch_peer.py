"""PyTorch on the CPU, eager and compiled. The kernels are in torch_kernels.py."""
from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable

import numpy as np
import torch

from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_prepack
from peer_workers.problem import Problem
from peer_workers.torch_kernels import function_into, function_of, operands_of


class TorchPlan(Plan):
    """A call that writes into the caller's output, or returns a tensor of its own. In the latter
    case the last result is let go before a run, so that the next one takes its memory."""

    def __init__(self, call: Callable[..., torch.Tensor], operands: list[torch.Tensor],
                 shape: tuple[int, ...], writes_output: bool):
        self.call = call
        self.operands = operands
        self.shape = shape
        self.writes_output = writes_output
        self.result = None
        self.run()

    @torch.inference_mode()
    def run(self) -> None:
        if not self.writes_output:
            self.result = None
        self.result = self.call(*self.operands)

    def output(self) -> np.ndarray:
        result = self.result
        if result.dtype == torch.bfloat16:
            return result.view(torch.int16).numpy().view(np.uint16).reshape(self.shape)
        return result.numpy().reshape(self.shape)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory; what is stored as bits is bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class TorchPeer(Peer):
    """Eager PyTorch: one library call a run."""

    kernels = {"gemm": "many", "softmax": "many", "layernorm": "many", "attention": "many"}
    dtypes = ("float32", "float16", "bfloat16")

    def library(self) -> str:
        """PyTorch's version with those of its MKL and oneDNN, and the float32 it computes in."""
        config = torch.__config__.show()
        mkl = re.search(r"Math Kernel Library Version ([\d.]+)", config)
        onednn = re.search(r"MKL-DNN v([\d.]+)", config)
        words = [f"PyTorch {torch.__version__}"]
        words += [f"MKL {mkl[1]}"] if mkl else []
        words += [f"oneDNN {onednn[1]}"] if onednn else []
        return " ".join(words + [torch.get_float32_matmul_precision()])

    def call_of(self, problem: Problem, operands: list[torch.Tensor], out: torch.Tensor
                ) -> tuple[Callable[..., torch.Tensor], bool]:
        """What a run calls, and whether it writes into `out`."""
        into = function_into(problem, out)
        return (function_of(problem), False) if into is None else (into, True)

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_prepack(problem, "PyTorch")
        if len({tensor.dtype for tensor in problem.tensors}) > 1:
            raise Unsupported("PyTorch's operations take tensors of one type")
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        operands = operands_of(problem, tensors)
        out = problem.output
        call, writes_output = self.call_of(problem, operands, tensors[out.name])
        return TorchPlan(call, operands, out.shape, writes_output)


class CompiledTorchPeer(TorchPeer):
    """torch.compile of the same functions; compiling is part of the plan."""

    def absent(self) -> str | None:
        compiler = os.environ.get("CXX", "g++").split()[-1]
        if shutil.which(compiler) is None:
            return f"torch.compile needs a C++ compiler; there is no {compiler}"
        return None

    def library(self) -> str:
        return super().library() + " compiled"

    def call_of(self, problem: Problem, operands: list[torch.Tensor], out: torch.Tensor
                ) -> tuple[Callable[..., torch.Tensor], bool]:
        torch.compiler.reset()
        return torch.compile(function_of(problem), fullgraph=True, dynamic=False), False
