"""What each peer is installed from, and the variables it is started with.

Standard library only: it runs before any environment exists. The making itself is in
python_environment.py; the workers that live in these environments start at serve.py.
"""
from __future__ import annotations

import ctypes
import glob
import os
import subprocess
import sys
from pathlib import Path

import llm_server
import python_environment
from python_environment import Pip, Unavailable

# Peer -> the environment it lives in. Environments are separate because Numba holds NumPy back, and
# because a package that cannot be had must not take others along.
PEERS = {
    "numpy": "numpy",
    "numba": "numba",
    "torch": "torch",
    "torch-compile": "torch",
    "torch-int8": "torch",
    "torch-cuda": "torch",
    "triton": "torch",
    "onnxruntime": "onnxruntime",
    "onnxruntime-int8": "onnxruntime",
    "llama-cpp": "llama-cpp",
    "mkl": "mkl",
    "openblas": "openblas",
}
# These are no workers but libraries for `--blas NAME=PATH`.
LIBRARIES = {"mkl": "lib/libmkl_rt.so*",
             "openblas": "lib/python*/site-packages/scipy_openblas32/lib/libscipy_openblas*.so"}
NEED_GPU = ("torch-cuda", "triton")

PACKAGES = {
    "numpy": ["numpy"],
    "numba": ["numba"],
    "onnxruntime": ["onnxruntime", "onnx"],
    "mkl": ["mkl"],
    "openblas": ["scipy-openblas32"],
}
# PyPI's PyTorch is the CUDA build. Where its GPU parts are of no use and a CUDA toolkit lends the
# libraries that its import asks for, these are enough beside `torch` itself: 2 GB instead of 7.
TORCH_NEEDS = ["filelock", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy",
               "setuptools"]
# Not in a toolkit. torch's own requirements give the versions of all but the first.
TORCH_NVIDIA = ("nvidia-cufile", "nvidia-cusparselt-", "nvidia-nvshmem-", "nvidia-nccl-")


def gpu_missing() -> str | None:
    """Why there is no NVIDIA GPU to use; nothing when there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA GPU: the driver's libcuda.so.1 is not here"
    count = ctypes.c_int(0)
    started = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    if not started or count.value < 1:
        return "no NVIDIA GPU: the driver finds none"
    return None


def lacks_gpu(name: str) -> str | None:
    """Why peer `name` cannot work on this machine, if it is one for GPUs."""
    return gpu_missing() if name in NEED_GPU else None


def toolkit_folders() -> list[str]:
    """The library folders of the newest CUDA toolkit that is installed; empty without one."""
    def version(path: str) -> tuple[int, ...]:
        return tuple(int(part) for part in path.split("cuda-")[-1].split("/")[0].split(".")
                     if part.isdigit())

    found = glob.glob("/usr/local/cuda-*/lib64") + glob.glob("/usr/local/cuda-*/targets/*/lib")
    found = [path for path in found if glob.glob(path + "/libcublas.so.*")]
    if not found:
        return []
    newest = max(version(path) for path in found)
    return [path for path in found if version(path) == newest]


def _needs_toolkit() -> bool:
    return gpu_missing() is not None and bool(toolkit_folders())


def _has_own_cuda(environment: str) -> bool:
    """Whether an environment of torch holds NVIDIA's libraries itself."""
    site = python_environment.folder_of(environment) / "lib"
    return bool(glob.glob(f"{site}/python*/site-packages/nvidia/**/libcublas.so.*", recursive=True))


def install_torch(pip: Pip, environment: str = "torch") -> None:
    """Installs PyTorch and NumPy, unless NumPy is there already, into an environment."""
    if _needs_toolkit():
        python = str(python_environment.folder_of(environment) / "bin" / "python")
        pip(["--no-deps", "torch"])
        pip(["--no-warn-conflicts", *TORCH_NEEDS])
        asks = "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')"
        listed = subprocess.run([python, "-c", asks], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.splitlines()
        wanted = [line.split(";")[0].strip() for line in listed]
        pip(["--no-deps", TORCH_NVIDIA[0],
             *[want for want in wanted if want.startswith(TORCH_NVIDIA[1:])]])
        imported = subprocess.run([python, "-c", "import torch"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, check=False,
                                  env={**os.environ, **torch_variables(environment)})
        if imported.returncode == 0:
            return
        print("the CUDA toolkit does not fit this PyTorch; installing its own", file=sys.stderr)
    pip(["torch", "numpy"])


def torch_recipe() -> str:
    """Changes when install_torch would do something else."""
    return "torch with the toolkit's CUDA" if _needs_toolkit() else "torch"


def torch_variables(environment: str) -> dict[str, str]:
    """The environment variables without which the torch of an environment cannot be imported."""
    if not _needs_toolkit() or _has_own_cuda(environment):
        return {}
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join(toolkit_folders() + ([inherited] if inherited else []))}


def _recipe(environment: str) -> str:
    if environment == "torch":
        return torch_recipe()
    if environment == llm_server.ENVIRONMENT:
        return llm_server.recipe()
    return " ".join(PACKAGES[environment])


def prepare(name: str) -> None:
    """Makes what peer `name` needs, or returns at once. Raises Unavailable."""
    if os.environ.get("ROOFLANE_PEERS_PYTHON") and name not in LIBRARIES:
        return
    environment = PEERS[name]

    def install(pip: Pip) -> None:
        if environment == "torch":
            install_torch(pip)
        elif environment == llm_server.ENVIRONMENT:
            llm_server.install(pip)
        else:
            pip(["--only-binary=:all:", *PACKAGES[environment]])

    python_environment.ensure(environment, _recipe(environment), install)


def interpreter(name: str) -> Path:
    """The interpreter of peer `name`. Raises Unavailable with the reason when there is none."""
    if reason := lacks_gpu(name):
        raise Unavailable(reason)
    if given := os.environ.get("ROOFLANE_PEERS_PYTHON"):
        if not os.access(given, os.X_OK):
            raise Unavailable(f"ROOFLANE_PEERS_PYTHON={given} is not a program")
        return Path(given)
    environment = PEERS[name]
    if python := python_environment.ready(environment, _recipe(environment)):
        return python
    raise Unavailable(python_environment.failure(environment)
                      or f"not prepared; run: scripts/peers.py --prepare {name}")


def library(name: str) -> Path:
    """The CBLAS library `mkl` or `openblas` from PyPI, installed now if need be. Raises
    Unavailable."""
    prepare(name)
    folder = python_environment.folder_of(PEERS[name])
    found = sorted(glob.glob(str(folder / LIBRARIES[name])))
    if not found:
        raise Unavailable(f"its package holds no {LIBRARIES[name]}")
    return Path(found[0])


def variables(name: str) -> dict[str, str]:
    """The environment variables that the worker of a peer is started with."""
    changes = {
        # Freed memory is kept and in huge pages: a library that allocates its result is not timed
        # on page faults.
        "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
                          ":glibc.malloc.hugetlb=1",
        # Strict float32, whatever the user's shell says.
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
        "NVIDIA_TF32_OVERRIDE": "0",
        # Compile in the worker itself: a pool of compilers would keep CPUs busy between slots.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCH_LOGS": "-all",  # errors only
    }
    if PEERS[name] == "torch" and not os.environ.get("ROOFLANE_PEERS_PYTHON"):
        changes |= torch_variables("torch")
    return changes
