"""PyTorch on an NVIDIA GPU, eager, strict float32: cuBLAS for gemm, PyTorch's own CUDA kernels for
the rest. What is computed stands in torch_kernels.py, device memory and its clock in cuda_plan.py;
here PyTorch is asked which of its ways to compute a problem is the fastest."""
from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from peer_workers.cuda_plan import CudaPlan, Tensors, device_names, fastest
from peer_workers.kernels import KERNELS
from peer_workers.peer import Arrays, Peer, Plan, no_prepack
from peer_workers.problem import Problem
from peer_workers.torch_kernels import attention_ways, function_into, function_of, operands_of

Call = Callable[[], torch.Tensor]


def cublas_version() -> str:
    """The version of the cuBLAS that this process has loaded; empty where it does not say."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libcublas.so" in line}
    parts = []
    try:
        library = ctypes.CDLL(min(paths))
        for part in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
            value = ctypes.c_int()
            if library.cublasGetProperty(part, ctypes.byref(value)) != 0:
                return ""
            parts.append(str(value.value))
    except (ValueError, OSError, AttributeError):  # none is loaded, or it is another library
        return ""
    return ".".join(parts)


def vector_call(problem: Problem, operands: list[torch.Tensor], out: torch.Tensor) -> Call | None:
    """A product of a matrix and a vector as the call that libraries have for it."""
    p = problem
    if p.batch != 1 or p.beta != 0 or p.alpha != 1 or 1 not in (p.m, p.n):
        return None
    a, b = operands
    matrix, vector = (b.t(), a[0]) if p.m == 1 else (a, b[:, 0])
    into = out.view(-1)

    def call() -> torch.Tensor:
        torch.mv(matrix, vector, out=into)
        return out

    return call


def ways_of(problem: Problem, tensors: Tensors) -> dict[str, Call]:
    """Every way in which PyTorch computes the problem, by name."""
    operands = operands_of(problem, tensors)
    out = tensors[problem.output.name]
    if problem.kernel == "attention":
        return {name: lambda way=way: way(*operands)
                for name, way in attention_ways(problem).items()}
    function = function_into(problem, out) or function_of(problem)
    ways: dict[str, Call] = {"": lambda: function(*operands)}
    is_product = problem.kernel == "gemm" and not problem.functions
    if is_product and (vector := vector_call(problem, operands, out)):
        ways["gemv"] = vector
    return ways


class TorchCudaPeer(Peer):
    kernels = dict.fromkeys(KERNELS, "device")

    def absent(self) -> str | None:
        return None if torch.cuda.is_available() else "this PyTorch sees no CUDA device"

    def library(self) -> str:
        return f"PyTorch {torch.__version__} {torch.get_float32_matmul_precision()}"

    def device(self) -> tuple[str, str]:
        return device_names()

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_prepack(problem, "PyTorch")
        torch.set_float32_matmul_precision("highest")  # no TF32 in products
        torch.backends.cudnn.allow_tf32 = False
        chosen = ""

        @torch.inference_mode()
        def make_call(tensors: Tensors) -> Call:
            nonlocal chosen
            ways = ways_of(problem, tensors)
            chosen = fastest(ways) if len(ways) > 1 else next(iter(ways))
            return ways[chosen]

        plan = CudaPlan(problem, arrays, make_call)
        words = [f"cuBLAS {cublas_version()} by"] if problem.kernel == "gemm" else []
        plan.library = " ".join([*words, self.library(), *([chosen] if chosen else [])])
        return plan
