"""PyTorch on an NVIDIA GPU, eager: cuBLAS and PyTorch's own CUDA kernels, strict float32. The
kernels are in torch_kernels.py, device memory and its clock in cuda_plan.py."""
from __future__ import annotations

from collections.abc import Callable

import torch

from peer_workers.cuda_plan import CudaPlan, Tensors, device_names
from peer_workers.peer import Arrays, Peer, Plan, no_prepack
from peer_workers.problem import Problem
from peer_workers.torch_kernels import function_into, function_of, operands_of


class TorchCudaPeer(Peer):
    kernels = dict.fromkeys(("gemm", "softmax", "layernorm", "attention"), "device")

    def absent(self) -> str | None:
        return None if torch.cuda.is_available() else "this PyTorch sees no CUDA device"

    def library(self) -> str:
        return (f"PyTorch {torch.__version__} CUDA {torch.version.cuda} cuBLAS "
                f"{torch.get_float32_matmul_precision()}")

    def device(self) -> tuple[str, str]:
        return device_names()

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_prepack(problem, "PyTorch")
        torch.set_float32_matmul_precision("highest")

        def make_call(tensors: Tensors) -> Callable[[], torch.Tensor]:
            operands = operands_of(problem, tensors)
            into = function_into(problem, tensors[problem.tensors()[-1].name])
            function = into or function_of(problem)
            return lambda: function(*operands)

        return CudaPlan(problem, arrays, make_call)
