"""What a peer is to the serve loop: a Peer plans problems, a Plan runs one.

Add a peer: a module NAME_peer.py with a Peer, a line in serve.py's table, its packages in
environments.py.
"""
from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from peer_workers.formats import STORED, stored_shape
from peer_workers.problem import Problem

Arrays = dict[str, np.ndarray]

HUGE_PAGE = 2 << 20
LINE = 64


class Unsupported(Exception):
    """The peer refuses a problem; the text is the row's reason."""


@dataclass(frozen=True)
class DeviceTimes:
    """Nanoseconds of an upload, a run and a download by the device's own clock."""
    h2d_ns: float
    kernel_ns: float
    d2h_ns: float


class Plan(ABC):
    """A peer made ready for one problem, bound to its arrays."""

    workspace_bytes = 0  # beyond inputs, outputs and their device copies
    packed_bytes = 0     # constants packed by prepack=1
    library = ""         # what computes this problem, where it is not simply Peer.library()
    path = ""            # the instructions that multiply, if the library names them
    math = ""            # what it computes in, where that is not the math asked for

    @abstractmethod
    def run(self) -> None:
        """Computes once and returns when the output is complete."""

    def output(self) -> np.ndarray:
        """The last run's output in host memory; of a device after download()."""
        raise NotImplementedError

    def outputs(self) -> list[np.ndarray]:
        """The same of a kernel with several, in the problem's order."""
        return [self.output()]

    def poison(self) -> None:
        """Fills what the output will occupy with NaN, integers with -1, so that a run which skips
        work is seen."""
        for output in self.outputs():
            if output.dtype == np.uint16:
                output.fill(0xFFFF)  # bits of a bfloat16
            else:
                output.fill(-1 if output.dtype == np.int32 else np.nan)

    def upload(self) -> None:
        """Copies the inputs to the device. Nothing on a CPU."""

    def download(self) -> None:
        """Copies the output back from the device. Nothing on a CPU."""

    def kernel_ns(self, runs: int) -> float:
        """Runs so often; the device's own time of a run. Devices only."""
        raise NotImplementedError

    def device_times(self) -> DeviceTimes:
        """Uploads, runs and downloads once; the device's own times of it. Devices only."""
        raise NotImplementedError


class Peer(ABC):
    """One library. Its module is imported in the environment that holds the library, and an
    ImportError on the way makes the peer absent."""

    # Kernel -> what it does with threads: "one", "many" or "device".
    kernels: dict[str, str]
    # Number formats that tensors may have.
    dtypes: tuple[str, ...] = ("float32",)
    # Arithmetics that plan() may be asked for.
    maths: tuple[str, ...] = ("fp32",)
    # Anybody's code: inputs change within its timed series (watching.py).
    watched = False

    def absent(self) -> str | None:
        """Why the peer cannot work here although it could be imported."""
        return None

    @abstractmethod
    def library(self) -> str:
        """The library with its version and settings, for the row."""

    def device(self) -> tuple[str, str]:
        """Names of device and driver; empty on a CPU."""
        return "", ""

    @abstractmethod
    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        """A plan for the problem, bound to `arrays` (inputs filled, output named as in the
        problem). It may put arrays of its own in their place. Raises Unsupported."""


def aligned_array(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """An untouched array for a tensor of a shape, aligned to a cache line; from 2 MiB on to huge
    pages, which it asks for, as the C++ side's buffers do. Block formats: the bytes."""
    shape = stored_shape(shape, dtype)
    elements = int(np.prod(shape, dtype=np.int64))
    element = np.dtype(STORED[dtype])
    size = elements * element.itemsize
    if size < HUGE_PAGE:
        memory = np.empty(size + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
    else:
        try:
            area = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError from error
        try:
            area.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # advice only: a kernel without transparent huge pages refuses it
        memory = np.frombuffer(area, np.uint8)
        start = -memory.ctypes.data % HUGE_PAGE
    return memory[start:start + size].view(element).reshape(shape)


def no_prepack(problem: Problem, name: str) -> None:
    """For peers without a facility for constants."""
    if problem.kernel == "gemm" and problem.prepack:
        raise Unsupported(f"prepack=1: {name} has no way to pack a constant matrix beforehand")


def no_epilogue(problem: Problem, name: str) -> None:
    """For peers that compute a product or a norm alone."""
    if problem.kernel == "gemm" and (functions := problem.functions):
        raise Unsupported(f"{'+'.join(functions)}: {name}'s product has no epilogue here")
    if problem.values.get("residual"):
        raise Unsupported(f"residual=1: {name} has no sum in front of the norm here")


def no_attention_options(problem: Problem, name: str) -> None:
    """For peers that compute plain and causal attention only."""
    if problem.kernel == "attention" and (options := problem.attention_options()):
        raise Unsupported(f"{', '.join(options)}: {name}'s attention is plain or causal here")
