"""Who is compared: our variant, its peers, and how `rooflane bench` is asked for them.

Data only. CPU is what speed_vs_peers.py measures, DEVICE what opencl_vs_peers.py does.
"""
from __future__ import annotations

from dataclasses import dataclass, field


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
    machines: dict[str, str] = field(default_factory=dict)  # whose goals there are -> as told

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
    machines={"h200": "H200", "any": "an H200 (this device has no column of its own)"})
