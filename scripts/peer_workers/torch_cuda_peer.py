"""PyTorch on an NVIDIA GPU, eager: cuBLAS for gemm in float32, float16, bfloat16 and 8-bit
integers, PyTorch's own CUDA kernels for the rest, in strict float32. torch_kernels.py has the
computations, cuda_plan.py the device memory and its clock; this file finds the fastest of PyTorch's
ways to compute a problem."""
from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from peer_workers.cuda_plan import CudaPlan, Tensors, device_names, fastest
from peer_workers.kernels import KERNELS
from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_prepack
from peer_workers.problem import Problem
from peer_workers.torch_gemm import rounding_of
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


def short_product(problem: Problem, tensors: Tensors) -> dict[str, Call] | None:
    """a·b of two matrices of 16-bit floats or of 8-bit integers; nothing: operands are float32.
    cuBLAS rounds a product once. Raises Unsupported for what PyTorch would round in between."""
    p = problem
    a_type, b_type, c_type = (tensor.dtype for tensor in (*p.tensors[:2], p.output))
    if {a_type, b_type, c_type} == {"float32"}:
        return None
    if p.functions or p.batch != 1 or p.alpha != 1 or p.beta != 0 or p.k == 0:
        raise Unsupported("PyTorch: of formats other than float32 a·b of two matrices alone")
    a, b, c = (tensors[name][0] for name in ("a", "b", "c"))
    a, b = a.t() if p.trans_a else a, b.t() if p.trans_b else b
    if b_type == "int8":
        if a_type != "int8":
            raise Unsupported("PyTorch: _int_mm multiplies s8 by s8")
        return {"_int_mm": lambda: torch._int_mm(a, b, out=c)}
    if a_type != b_type or a_type not in ("float16", "bfloat16"):
        raise Unsupported("PyTorch: both operands are of one 16-bit format")
    if c_type == a_type:
        return {"mm": lambda: torch.mm(a, b, out=c)}
    if c_type == "float32":
        return {"mm to float32": lambda: torch.mm(a, b, out_dtype=torch.float32)}
    raise Unsupported(f"PyTorch gives {a_type} or float32, not {c_type}")


def ways_of(problem: Problem, tensors: Tensors) -> dict[str, Call]:
    """Every way in which PyTorch computes the problem, by name."""
    if problem.kernel == "gemm" and (ways := short_product(problem, tensors)):
        return ways
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
    dtypes = ("float32", "float16", "bfloat16", "int8", "uint8", "int32")
    maths = ("fp32", "f16", "bf16", "int8")

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
        for short in ("fp16", "bf16"):  # sums in float32
            setattr(torch.backends.cuda.matmul, f"allow_{short}_reduced_precision_reduction", False)
        types = {tensor.dtype for tensor in problem.tensors}
        if problem.kernel == "attention" and len(types) > 1:
            raise Unsupported("PyTorch's attention takes tensors of one type")
        if problem.kernel not in ("gemm", "attention") and types != {"float32"}:
            raise Unsupported("PyTorch on CUDA: compared are formats of gemm and attention alone")
        chosen = ""

        @torch.inference_mode()
        def make_call(tensors: Tensors) -> Call:
            nonlocal chosen
            ways = ways_of(problem, tensors)
            chosen = fastest(ways) if len(ways) > 1 else next(iter(ways))
            return ways[chosen]

        plan = CudaPlan(problem, arrays, make_call)
        if problem.kernel == "attention":
            plan.math = rounding_of(problem)  # of the weights
        words = [f"cuBLAS {cublas_version()} by"] if problem.kernel == "gemm" else []
        plan.library = " ".join([*words, self.library(), *([chosen] if chosen else [])])
        return plan
