"""A plan on an NVIDIA GPU: tensors in device memory, operands in pinned host memory, times by CUDA
events. What is computed is a call that torch_cuda_peer.py or triton_peer.py hands in."""
from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import torch

from peer_workers.peer import Arrays, DeviceTimes, Plan
from peer_workers.problem import Problem

Tensors = dict[str, torch.Tensor]

# Before a run is timed by events the device is kept busy for about 200 µs (at 2 GHz), while the
# host queues everything behind it: so the events see no gap in which the host was late.
BUSY_CYCLES = 400_000


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
    """A copy in memory that the device reads at full speed."""
    tensor = torch.empty(array.shape, pin_memory=array.size > 0)
    tensor.numpy()[...] = array
    return tensor


class CudaPlan(Plan):
    """Moves `arrays` into pinned memory (they are replaced in the dictionary, so that whoever fills
    them fills what upload() reads) and runs `call()`, which returns the output on the device."""

    def __init__(self, problem: Problem, arrays: Arrays,
                 make_call: Callable[[Tensors], Callable[[], torch.Tensor]]):
        before = torch.cuda.memory_allocated()
        *inputs, output = [tensor.name for tensor in problem.tensors()]
        host = {name: pinned(arrays[name]) for name in arrays}
        arrays.update({name: tensor.numpy() for name, tensor in host.items()})
        tensors = {name: tensor.to("cuda") for name, tensor in host.items()}
        self.pairs = [(tensors[name], host[name]) for name in inputs]
        self.host_output = host[output]
        self.call = make_call(tensors)
        self.result = None
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
        self.host_output.fill_(float("nan"))
        self.result.fill_(float("nan"))

    def output(self) -> np.ndarray:
        return self.host_output.numpy()

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
    def kernel_ns(self) -> float:
        start, end = self._events(2)
        torch.cuda._sleep(BUSY_CYCLES)
        start.record()
        self._compute()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6

    @torch.inference_mode()
    def device_times(self) -> DeviceTimes:
        events = self._events(4)
        torch.cuda._sleep(BUSY_CYCLES)
        for event, step in zip(events, (self._copy_in, self._compute, self._copy_out)):
            event.record()
            step()
        events[-1].record()
        events[-1].synchronize()
        spans = [a.elapsed_time(b) * 1e6 for a, b in zip(events, events[1:])]
        return DeviceTimes(*spans)

    @staticmethod
    def _events(count: int) -> list[torch.cuda.Event]:
        return [torch.cuda.Event(enable_timing=True) for _ in range(count)]
