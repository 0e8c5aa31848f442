"""Who is compared: our variant, its peers, and how `rooflane bench` is asked for them.

Data only. CPU is what speed_vs_peers.py measures, LOW_PRECISION with --low-precision, DEVICE with
--opencl.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from target_table.goals import FP32


@dataclass(frozen=True)
class Sides:
    """`ours` against `peers`: variant -> the argument of --peers that brings it; nothing: it is
    part of the build."""
    ours: str
    peers: dict[str, str | None]
    # Family -> its kernels and peers. A family shares one run: its ceilings are measured once, and
    # its Python workers start once a launch.
    families: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    # Level -> launches and the seconds for the rounds of a problem in one launch.
    effort: dict[str, tuple[int, float]]
    threads: str | None = None  # of every run that is not told others; nothing: bench's own
    options: tuple[str, ...] = ()  # further arguments of every run
    on_device: bool = False
    # Further variants of ours and the kernels that they have: a class counts the one that is best.
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # The maths besides fp32 that peers compute in too. In other maths those of the fp32 run of the
    # same problems are shown beside ours.
    maths_of_peers: frozenset[str] = frozenset()
    data: str = ""  # what the names of its files in bench/targets begin with
    machines: dict[str, str] = field(default_factory=dict)  # with goals -> name in text

    def is_alone(self, math: str) -> bool:
        """Whether no peer computes in this math."""
        return math != FP32 and math not in self.maths_of_peers

    def peers_of(self, kernels: set[str]) -> set[str]:
        """The peers that are expected in rows of these kernels."""
        return {name for of_family, names in self.families.values() if kernels & set(of_family)
                for name in names}


# Left out is what can win nothing: compiled PyTorch calls the same GEMM; softmax and LayerNorm by
# BLAS calls are an exercise, not a library's kernels, and of attention by two GEMMs the fastest
# BLAS is enough. Effort: minutes for all.
CPU = Sides(
    ours="hwy",
    peers={"blas": None, "blis": None, "onednn": None, "blas-mkl": "mkl",
           "blas-openblas": "openblas", "numpy": "numpy", "numba": "numba", "torch": "torch",
           "torch-compile": "torch-compile", "onnxruntime": "onnxruntime"},
    families={
        "gemm": (("gemm",), ("blas", "blis", "onednn", "blas-mkl", "blas-openblas", "numpy",
                             "torch", "onnxruntime")),
        "rows": (("softmax", "layernorm"), ("onednn", "numpy", "numba", "torch", "torch-compile",
                                            "onnxruntime")),
        "attention": (("attention",), ("blas", "onednn", "blas-mkl", "numpy", "torch",
                                       "torch-compile", "onnxruntime")),
    },
    effort={"quick": (2, 0.3), "default": (2, 0.5), "full": (3, 1)},
    machines={"zen5": "Zen 5", "sapphire-rapids": "Sapphire Rapids",
              "any": "any machine (this CPU has no column of its own)"})

# Short operands, quantised weights and fused functions: every peer that has some of these.
LOW_PRECISION = Sides(
    ours="hwy", others={"avx512": ("gemm",), "amx": ("gemm",)},
    peers={"onednn": None, "blas-mkl": "mkl", "torch": "torch", "torch-compile": "torch-compile",
           "torch-int8": "torch-int8", "onnxruntime": "onnxruntime",
           "onnxruntime-int8": "onnxruntime-int8", "llama-cpp": "llama-cpp"},
    families={
        "gemm": (("gemm",), ("onednn", "blas-mkl", "torch", "torch-compile", "torch-int8",
                             "onnxruntime", "onnxruntime-int8", "llama-cpp")),
        "rows": (("softmax", "layernorm"), ("onednn", "torch", "torch-compile", "onnxruntime")),
    },
    effort=CPU.effort, maths_of_peers=frozenset({"bf16", "f16", "int8", "int8-dynamic"}),
    data="lowp_",
    machines=CPU.machines)

# Few families, since a GPU's minutes are dear; times by the device's clock. Triton is left out: its
# kernels there are ours, and PyTorch's and NVIDIA's are the ones to beat.
DEVICE = Sides(
    ours="opencl",
    peers={"clblast": None, "torch-cuda": "torch-cuda"},
    families={
        "gemm": (("gemm",), ("clblast", "torch-cuda")),
        "others": (("softmax", "layernorm", "attention"), ("torch-cuda",)),
    },
    effort={"quick": (1, 0.3), "default": (1, 0.5), "full": (2, 1)},
    threads="1", options=("--timer", "event"), on_device=True,
    maths_of_peers=frozenset({"bf16", "f16", "int8"}), data="opencl_",
    machines={"h200": "H200", "any": "an H200 (this device has no column of its own)"})
