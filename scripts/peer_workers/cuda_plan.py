"""A plan on an NVIDIA GPU: tensors in device memory, operands in pinned host memory, times by CUDA
events. What is computed is a call that torch_cuda_peer.py or triton_peer.py hands in."""
from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

from peer_workers.peer import Arrays, DeviceTimes, Plan
from peer_workers.problem import Problem

Tensors = dict[str, torch.Tensor]

# Before runs are timed by events the device is kept busy while the host queues everything behind
# it, so that the events see no gap in which the host was late: 200 µs, or half as long again as the
# host took for as many runs before. The device's clock is taken for 2 GHz.
BUSY_NS = 200e3
CYCLES_PER_NS = 2
# Runs between two events: the pair costs one or two microseconds, which short runs must share; the
# driver queues about a thousand launches before it makes the host wait.
RUNS_PER_PAIR = 50


def device_names() -> tuple[str, str]:
    """The GPU as OpenCL spells it, and the driver's version."""
    version = ctypes.create_string_buffer(96)
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
        management.nvmlInit_v2()
        management.nvmlSystemGetDriverVersion(version, ctypes.c_uint(len(version)))
    except OSError:
        pass  # the driver's library of facts is optional; the row's driver stays empty
    return torch.cuda.get_device_name(0), version.value.decode()


def pinned(array: np.ndarray) -> torch.Tensor:
    """A copy in memory that the device reads at full speed; what is stored as bits is bfloat16."""
    bits = array.dtype == np.uint16
    given = torch.from_numpy(array.view(np.int16) if bits else array)
    tensor = torch.empty(array.shape, dtype=given.dtype, pin_memory=array.size > 0)
    tensor.copy_(given)
    return tensor.view(torch.bfloat16) if bits else tensor


def stored(tensor: torch.Tensor) -> np.ndarray:
    """The same memory as the lab stores it."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def fill_wrong(tensor: torch.Tensor) -> None:
    """With what no right result holds."""
    tensor.fill_(float("nan") if tensor.is_floating_point() else -1)


def events(count: int) -> list[torch.cuda.Event]:
    """Events that hold times."""
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


def keep_busy(ns: float) -> None:
    """Queues an idle loop on the device, of at least BUSY_NS."""
    torch.cuda._sleep(int(max(ns, BUSY_NS) * CYCLES_PER_NS))


def fastest(calls: dict[str, Callable[[], torch.Tensor]]) -> str:
    """The name of the call that takes the device least time; calls that fail do not count. Raises
    the last failure when all do."""
    times: dict[str, float] = {}
    failure: Exception = RuntimeError("there is no way to compute it")
    warnings.simplefilter("ignore")  # backends that refuse explain themselves at length
    for name, call in calls.items():
        start, end = events(2)
        try:
            call()  # compiles, allocates
            call()
            keep_busy(0)
            start.record()
            for _ in range(3):
                call()
            end.record()
            end.synchronize()
        except RuntimeError as error:  # this backend does not take the problem, or its memory
            failure = error
            continue
        times[name] = start.elapsed_time(end)
    if not times:
        raise failure
    return min(times, key=times.__getitem__)


class CudaPlan(Plan):
    """Moves `arrays` into pinned memory (they are replaced in the dictionary, so that whoever fills
    them fills what upload() reads) and runs `call()`, which returns the output on the device."""

    def __init__(self, problem: Problem, arrays: Arrays,
                 make_call: Callable[[Tensors], Callable[[], torch.Tensor]]):
        before = torch.cuda.memory_allocated()
        *inputs, output = [tensor.name for tensor in problem.tensors]
        host = {name: pinned(arrays[name]) for name in arrays}
        arrays.update({name: stored(tensor) for name, tensor in host.items()})
        tensors = {name: tensor.to("cuda") for name, tensor in host.items()}
        self.pairs = [(tensors[name], host[name]) for name in inputs]
        self.host_output = host[output]
        self.call = make_call(tensors)
        self.result = None
        self.host_ns = 0.0  # what queueing a run takes the host
        self.run()  # compiles, chooses among kernels
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.run()
        held = sum(tensor.nbytes for tensor in tensors.values())
        own = 0 if self.result.data_ptr() == tensors[output].data_ptr() else self.result.nbytes
        self.workspace_bytes = max(0, torch.cuda.max_memory_allocated() - before - held - own)

    def _compute(self) -> None:
        self.result = None  # where the library makes a tensor, the next one takes its place
        self.result = self.call()

    @torch.inference_mode()
    def run(self) -> None:
        self._compute()
        torch.cuda.synchronize()

    @torch.inference_mode()
    def poison(self) -> None:
        fill_wrong(self.host_output)
        fill_wrong(self.result)

    def output(self) -> np.ndarray:
        return stored(self.host_output)

    def _copy_in(self) -> None:
        for device, host in self.pairs:
            device.copy_(host, non_blocking=True)

    def _copy_out(self) -> None:
        self.host_output.copy_(self.result.view(self.host_output.shape), non_blocking=True)

    def upload(self) -> None:
        self._copy_in()
        torch.cuda.synchronize()

    def download(self) -> None:
        self._copy_out()
        torch.cuda.synchronize()

    @torch.inference_mode()
    def kernel_ns(self, runs: int) -> float:
        total = 0.0
        for first in range(0, runs, RUNS_PER_PAIR):
            total += self._queued_ns(min(RUNS_PER_PAIR, runs - first))
        return total / runs

    def _queued_ns(self, runs: int) -> float:
        """The device's time of `runs` runs, one right behind the other."""
        start, end = events(2)
        keep_busy(1.5 * self.host_ns * runs)
        start.record()
        begin = time.perf_counter_ns()
        for _ in range(runs):
            self._compute()
        queued = time.perf_counter_ns()
        end.record()
        end.synchronize()
        self.host_ns = (queued - begin) / runs
        return start.elapsed_time(end) * 1e6

    @torch.inference_mode()
    def device_times(self) -> DeviceTimes:
        marks = events(4)
        keep_busy(0)
        for mark, step in zip(marks, (self._copy_in, self._compute, self._copy_out)):
            mark.record()
            step()
        marks[-1].record()
        marks[-1].synchronize()
        return DeviceTimes(*(a.elapsed_time(b) * 1e6 for a, b in zip(marks, marks[1:])))
