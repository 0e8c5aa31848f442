"""PyTorch on the CPU, eager and compiled. The kernels are in torch_kernels.py."""
from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch._inductor import config as inductor

from peer_workers import torch_gemm, torch_indices
from peer_workers.formats import BLOCK_BYTES, STORED
from peer_workers.kernels import KERNELS
from peer_workers.peer import Arrays, Peer, Plan, Unsupported
from peer_workers.problem import Problem
from peer_workers.sampling import undisturbed_run_ns
from peer_workers.torch_gemm import Way
from peer_workers.torch_kernels import Tensors, function_into, function_of, operands_of


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


def one_type(problem: Problem) -> None:
    """The type of all tensors but ids. Raises Unsupported."""
    if len({tensor.dtype for tensor in problem.tensors} - {"int32"}) > 1:
        raise Unsupported("PyTorch's operations take tensors of one type")


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory; what is stored as bits is bfloat16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class TorchPeer(Peer):
    """Eager PyTorch: one library call a run."""

    kernels = dict.fromkeys((*KERNELS, *torch_indices.KERNELS), "many")
    dtypes = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "int8_per_channel",
              *BLOCK_BYTES)
    maths = ("fp32", "bf16", "f16", "int8", "int8-dynamic")

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
        if problem.values.get("residual") and out.dtype != torch.float32:
            raise Unsupported(f"residual=1: PyTorch rounds the sum to {problem.output.dtype} first")
        into = function_into(problem, out)
        return (function_of(problem), False) if into is None else (into, True)

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        if problem.kernel in torch_indices.KERNELS:
            one_type(problem)
            return self.plan_of_indices(problem, tensors)
        if problem.kernel == "gemm" and (ways := self.special_ways(problem, tensors)):
            return self.fastest(self.plans_of_ways(problem, ways))
        if problem.kernel not in ("layernorm", "rmsnorm"):
            one_type(problem)
        operands = operands_of(problem, tensors)
        call, writes_output = self.call_of(problem, operands, tensors[problem.output.name])
        plan = TorchPlan(call, operands, problem, writes_output)
        if problem.kernel == "attention":
            plan.math = torch_gemm.rounding_of(problem)  # of the weights
        return plan

    def special_ways(self, problem: Problem, tensors: Tensors) -> dict[str, Way] | None:
        """Ways for problems other than a product of one type; nothing for such a product. Raises
        Unsupported."""
        return torch_gemm.special_ways(problem, tensors)

    def plans_of_ways(self, problem: Problem, ways: dict[str, Way]) -> dict[str, TorchPlan]:
        """Plans of the ways that this CPU has; raises the last one's RuntimeError when it has
        none."""
        plans: dict[str, TorchPlan] = {}
        failure: Exception = RuntimeError("there is no way to compute it")
        for name, way in ways.items():
            try:
                plans[name] = self.plan_of_way(problem, way)
            except RuntimeError as error:
                failure = error
        if not plans:
            raise failure
        return plans

    def plan_of_way(self, problem: Problem, way: Way) -> TorchPlan:
        plan = TorchPlan(way.call, way.operands, problem, way.writes)
        plan.math, plan.packed_bytes = way.math, way.packed_bytes
        return plan

    def plan_of_indices(self, problem: Problem, tensors: Tensors) -> Plan:
        """The fastest of PyTorch's ways, which the row names."""
        operands = torch_indices.operands_of(problem, tensors)
        outs = [tensors[tensor.name] for tensor in problem.outputs]
        return self.fastest({name: TorchPlan(call, operands, problem, True)
                             for name, call in torch_indices.ways(problem, outs).items()})

    def fastest(self, plans: dict[str, TorchPlan]) -> TorchPlan:
        """The fastest of several ways; the row names it."""
        name = next(iter(plans))
        if len(plans) > 1:
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
        inductor.freezing = False
        return torch.compile(function_of(problem), fullgraph=True, dynamic=False), False

    def special_ways(self, problem: Problem, tensors: Tensors) -> dict[str, Way] | None:
        """Ways of its own are of constants, which it freezes, and of rows that it quantises."""
        ways = super().special_ways(problem, tensors)
        b = problem.tensors[1].dtype
        one = {problem.tensors[0].dtype, b, problem.output.dtype} == {b}
        if ways is None or problem.math == "int8-dynamic":
            return ways
        if not problem.prepack and one:
            return None
        if not problem.prepack or not one or b not in ("float32", *torch_gemm.SHORT):
            raise Unsupported("torch.compile would call what eager PyTorch calls")
        return {"frozen": torch_gemm.frozen(problem, tensors)}

    def plan_of_way(self, problem: Problem, way: Way) -> TorchPlan:
        torch.compiler.reset()
        inductor.freezing = problem.prepack == 1
        way.call = torch.compile(way.call, fullgraph=True, dynamic=False)
        return super().plan_of_way(problem, way)

    def plan_of_indices(self, problem: Problem, tensors: Tensors) -> Plan:
        torch.compiler.reset()
        call = torch.compile(torch_indices.function_of(problem), fullgraph=True, dynamic=False)
        return TorchPlan(call, torch_indices.operands_of(problem, tensors), problem, False)


class QuantisedTorchPeer(TorchPeer):
    """Dynamically quantised layers: engine x86 of torch.ao."""

    kernels = {"gemm": "many"}
    maths = ("fp32", "int8-dynamic", "int8-tensor")

    def library(self) -> str:
        return f"{super().library()} quantized::linear_dynamic {torch.backends.quantized.engine}"

    def special_ways(self, problem: Problem, tensors: Tensors) -> dict[str, Way]:
        warnings.simplefilter("ignore")  # quantised tensors are told to be deprecated
        return {"": torch_gemm.quantised_linear(problem, tensors)}
