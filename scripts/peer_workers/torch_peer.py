"""PyTorch on the CPU, eager and compiled. The kernels are in torch_kernels.py."""
from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable

import numpy as np
import torch

from peer_workers import torch_indices
from peer_workers.kernels import KERNELS
from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_prepack
from peer_workers.problem import STORED, Problem
from peer_workers.sampling import undisturbed_run_ns
from peer_workers.torch_kernels import function_into, function_of, operands_of


class TorchPlan(Plan):
    """A call that writes into the caller's output, or returns a tensor of its own. In the latter
    case the last result is let go before a run, so that the next one takes its memory."""

    def __init__(self, call: Callable[..., object], operands: list[torch.Tensor],
                 problem: Problem, writes_output: bool):
        self.call = call
        self.operands = operands
        self.tensors = problem.outputs
        self.writes_output = writes_output
        self.result = None
        self.run()

    @torch.inference_mode()
    def run(self) -> None:
        if not self.writes_output:
            self.result = None
        self.result = self.call(*self.operands)

    def _results(self) -> list[torch.Tensor]:
        return list(self.result) if isinstance(self.result, tuple) else [self.result]

    def outputs(self) -> list[np.ndarray]:
        arrays = []
        for result, tensor in zip(self._results(), self.tensors, strict=True):
            if result.dtype == torch.bfloat16:
                result = result.view(torch.int16)
                arrays.append(result.numpy().view(np.uint16).reshape(tensor.shape))
            else:  # ids are int64 there
                arrays.append(result.numpy().astype(STORED[tensor.dtype], copy=False)
                              .reshape(tensor.shape))
        return arrays

    @torch.inference_mode()
    def poison(self) -> None:
        for result in self._results():
            result.fill_(float("nan") if result.is_floating_point() else -1)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory; what is stored as bits is bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class TorchPeer(Peer):
    """Eager PyTorch: one library call a run."""

    kernels = dict.fromkeys((*KERNELS, *torch_indices.KERNELS), "many")
    dtypes = ("float32", "float16", "bfloat16", "int32")

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
        if len({tensor.dtype for tensor in problem.tensors} - {"int32"}) > 1:
            raise Unsupported("PyTorch's operations take tensors of one type")
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        if problem.kernel in torch_indices.KERNELS:
            return self.plan_of_indices(problem, tensors)
        operands = operands_of(problem, tensors)
        call, writes_output = self.call_of(problem, operands, tensors[problem.output.name])
        return TorchPlan(call, operands, problem, writes_output)

    def plan_of_indices(self, problem: Problem, tensors: dict[str, torch.Tensor]) -> Plan:
        """The fastest of PyTorch's ways, which the row names."""
        operands = torch_indices.operands_of(problem, tensors)
        outs = [tensors[tensor.name] for tensor in problem.outputs]
        plans = {name: TorchPlan(call, operands, problem, True)
                 for name, call in torch_indices.ways(problem, outs).items()}
        name = min(plans, key=lambda name: undisturbed_run_ns(plans[name].run))
        plans[name].library = f"{self.library()} {name}"
        return plans[name]


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

    def plan_of_indices(self, problem: Problem, tensors: dict[str, torch.Tensor]) -> Plan:
        torch.compiler.reset()
        call = torch.compile(torch_indices.function_of(problem), fullgraph=True, dynamic=False)
        return TorchPlan(call, torch_indices.operands_of(problem, tensors), problem, False)
