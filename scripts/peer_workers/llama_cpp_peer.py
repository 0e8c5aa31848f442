"""llama.cpp's matrix products, through the ggml libraries that llama-cpp-python brings along:
mul_mat of weights as GGUF files store them, by the same backend and buffers as llama.cpp's.

ggml multiplies in the format of its weights: float32 activations become bfloat16 or float16
numbers, and beside quantised weights 8-bit integers with a float16 scale per 32 of a row
(int8-block), in the run.
With prepack=1 weights may lie in a buffer that repacks them, which is chosen by the time that it
takes.
"""
from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from pathlib import Path

import numpy as np

from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_epilogue
from peer_workers.problem import Problem
from peer_workers.sampling import undisturbed_run_ns

# enum ggml_type, and the math that ggml multiplies such weights in.
TYPES = {"float32": 0, "float16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 8, "bfloat16": 30}
MATHS = {"float32": "fp32", "float16": "f16", "bfloat16": "bf16"}
SUCCESS, WEIGHTS = 0, 1  # GGML_STATUS_SUCCESS, GGML_BACKEND_BUFFER_USAGE_WEIGHTS
CONTEXT_BYTES = 1 << 20  # three tensors and a graph, without their data
POINTERS = ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph",
            "ggml_backend_cpu_init", "ggml_backend_cpu_reg", "ggml_backend_reg_dev_get",
            "ggml_backend_reg_get_proc_address", "ggml_backend_cpu_buffer_from_ptr",
            "ggml_backend_buft_alloc_buffer", "ggml_backend_buffer_get_base")
FEATURES = ("avx2", "avx_vnni", "avx512", "avx512_vbmi", "avx512_vnni", "avx512_bf16", "amx_int8")
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _InitParams(ctypes.Structure):
    """struct ggml_init_params."""
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p),
                ("no_alloc", ctypes.c_bool)]


class Ggml:
    """The libraries' functions, by name; pointers are plain addresses."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("llama_cpp")
        if found is None or not found.submodule_search_locations:
            raise ImportError("No module named 'llama_cpp'")
        folder = Path(found.submodule_search_locations[0]) / "lib"
        self.libraries = [ctypes.CDLL(str(folder / f"lib{name}.so"), ctypes.RTLD_GLOBAL)
                          for name in ("ggml-base", "ggml-cpu")]
        for name in POINTERS:
            self.function(name).restype = ctypes.c_void_p
        for name in ("ggml_version", "ggml_backend_buft_name"):
            self.function(name).restype = ctypes.c_char_p
        for name in ("ggml_backend_buft_get_alloc_size", "ggml_nbytes"):
            self.function(name).restype = ctypes.c_size_t
        self.function("ggml_backend_dev_supports_op").restype = ctypes.c_bool
        self._silent = LOG(lambda level, text, data: None)
        self.function("ggml_log_set")(self._silent, None)

    def function(self, name: str):
        """The C function of that name. Raises AttributeError."""
        for library in self.libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise AttributeError(f"ggml has no {name}")

    def call(self, name: str, *arguments):
        """Calls it; ints are pointers or sizes."""
        return self.function(name)(*[ctypes.c_void_p(argument) if isinstance(argument, int)
                                     else argument for argument in arguments])

    def features(self) -> list[str]:
        """The instruction sets that this build was compiled for."""
        return [name for name in FEATURES if self.call(f"ggml_cpu_has_{name}")]

    def repacking_buffers(self) -> list[int]:
        """The CPU's buffer types that lay out weights in their own way."""
        registry = self.call("ggml_backend_cpu_reg")
        self.device = self.call("ggml_backend_reg_dev_get", registry, ctypes.c_size_t(0))
        address = self.call("ggml_backend_reg_get_proc_address", registry,
                            b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        ask = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
        types, found = ask(self.device), []
        while types and types[len(found)]:
            found.append(types[len(found)])
        return found


class LlamaCppPlan(Plan):
    """c = a·bᵀ as one graph of one node. `buffer_type`: where b is repacked; 0: it is read in
    place."""

    def __init__(self, ggml: Ggml, problem: Problem, arrays: Arrays, threads: int,
                 buffer_type: int = 0):
        self.ggml, self.arrays = ggml, arrays
        self.buffers: list[int] = []
        a, b, _ = problem.tensors
        self.context = ggml.call("ggml_init", _InitParams(CONTEXT_BYTES, None, True))
        self.backend = ggml.call("ggml_backend_cpu_init")
        ggml.call("ggml_backend_cpu_set_n_threads", self.backend, ctypes.c_int(threads))
        x = self._tensor(a.dtype, problem.k, problem.m)
        weights = self._tensor(b.dtype, problem.k, problem.n)
        product = ggml.call("ggml_mul_mat", self.context, weights, x)
        self._place(x, arrays["a"])
        self._place(product, arrays["c"])
        if buffer_type:
            self._repack(weights, product, arrays["b"], buffer_type)
        else:
            self._place(weights, arrays["b"])
        self.graph = ggml.call("ggml_new_graph", self.context)
        ggml.call("ggml_build_forward_expand", self.graph, product)
        self.compute = ggml.function("ggml_backend_graph_compute")
        self.operands = ctypes.c_void_p(self.backend), ctypes.c_void_p(self.graph)
        self.run()

    def __del__(self) -> None:
        for buffer in self.buffers:
            self.ggml.call("ggml_backend_buffer_free", buffer)
        self.ggml.call("ggml_backend_free", self.backend)
        self.ggml.call("ggml_free", self.context)

    def _tensor(self, dtype: str, columns: int, rows: int) -> int:
        return self.ggml.call("ggml_new_tensor_2d", self.context, ctypes.c_int(TYPES[dtype]),
                              ctypes.c_int64(columns), ctypes.c_int64(rows))

    def _place(self, tensor: int, array: np.ndarray) -> None:
        """Binds a tensor to an array's memory."""
        self.buffers.append(self.ggml.call("ggml_backend_cpu_buffer_from_ptr",
                                           array.ctypes.data, array.nbytes))
        self.ggml.call("ggml_backend_tensor_alloc", self.buffers[-1], tensor, array.ctypes.data)

    def _repack(self, weights: int, product: int, array: np.ndarray, buffer_type: int) -> None:
        call = self.ggml.call
        self.packed_bytes = call("ggml_backend_buft_get_alloc_size", buffer_type, weights)
        buffer = call("ggml_backend_buft_alloc_buffer", buffer_type, self.packed_bytes)
        self.buffers.append(buffer)
        call("ggml_backend_buffer_set_usage", buffer, ctypes.c_int(WEIGHTS))
        call("ggml_backend_tensor_alloc", buffer, weights,
             call("ggml_backend_buffer_get_base", buffer))
        if not call("ggml_backend_dev_supports_op", self.ggml.device, product):
            raise Unsupported("this buffer does not take the weights")
        call("ggml_backend_tensor_set", weights, array.ctypes.data, 0, array.nbytes)

    def run(self) -> None:
        if self.compute(*self.operands) != SUCCESS:
            raise RuntimeError("ggml_backend_graph_compute failed")

    def output(self) -> np.ndarray:
        return self.arrays["c"]


def refusal(p: Problem) -> str | None:
    """Why ggml cannot compute a product; nothing when it can."""
    a, b, c = (tensor.dtype for tensor in (p.tensors[0], p.tensors[1], p.tensors[-1]))
    if b not in TYPES or a not in ("float32", b) or c != "float32":
        return (f"{a} times {b} to {c}: its mul_mat multiplies float32, or what b is of float32, "
                "float16 and bfloat16, with b and gives float32")
    if p.batch != 1 or p.trans_a or not p.trans_b or p.alpha != 1 or p.beta != 0:
        return "its mul_mat is a·bᵀ of two matrices: batch=1, trans_a=0, trans_b=1, alpha=1, beta=0"
    if 0 in (p.m, p.n, p.k):
        return "its mul_mat takes no empty matrices"
    own = MATHS.get(b, "int8-block")
    near = ("fp32", own, "int8-dynamic") if own == "int8-block" else ("fp32", own)
    if p.math not in near:
        return f"math {p.math}: it multiplies {b} weights in {own}"
    return None


class LlamaCppPeer(Peer):
    kernels = {"gemm": "many"}
    dtypes = tuple(TYPES)
    maths = ("fp32", "f16", "bf16", "int8-dynamic", "int8-block")

    def __init__(self) -> None:
        self.ggml = Ggml()

    def library(self) -> str:
        version = self.ggml.call("ggml_version").decode()
        python = importlib.metadata.version("llama-cpp-python")
        return f"llama.cpp (llama-cpp-python {python}, ggml {version})"

    def path(self, b: str) -> str:
        """The widest instructions for products with such weights in this build."""
        has = self.ggml.features()
        if b == "bfloat16" and "avx512_bf16" in has:
            return "vdpbf16ps"
        if b in MATHS:
            return "avx512-fma" if "avx512" in has else "avx2-fma"
        if {"avx512_vnni", "avx_vnni"} & set(has):
            return "vpdpbusd"
        return "avx2-vpmaddubsw"

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_epilogue(problem, "llama.cpp")
        if reason := refusal(problem):
            raise Unsupported(f"llama.cpp: {reason}")
        plans = {"": LlamaCppPlan(self.ggml, problem, arrays, threads)}
        for buffer_type in self.ggml.repacking_buffers() if problem.prepack else ():
            name = self.ggml.call("ggml_backend_buft_name", buffer_type).decode()
            try:
                plans[name] = LlamaCppPlan(self.ggml, problem, arrays, threads, buffer_type)
            except Unsupported:
                continue
        name = min(plans, key=lambda name: undisturbed_run_ns(plans[name].run))
        plan = plans[name]
        b = problem.tensors[1].dtype
        plan.math, plan.path = MATHS.get(b, "int8-block"), self.path(b)
        words = [self.library(), *self.ggml.features(), name, f"sums of {plan.math} products"]
        plan.library = " ".join(word for word in words if word)
        return plan
