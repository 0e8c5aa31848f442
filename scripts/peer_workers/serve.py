"""Serves protocol 1 (src/measure/worker.hpp) for one peer: `python -m peer_workers.serve NAME`.

Knows requests, inputs and the sampler; how a kernel is computed stands in the *_peer.py. It is
started by peers.py in the peer's own interpreter, or, with --absent REASON, in any.
"""
from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from peer_workers.kernels import INDEX_KERNELS, KERNELS
from peer_workers.sampling import runs_for_sample, time_runs, undisturbed_run_ns, warm_up

if TYPE_CHECKING:
    from peer_workers.peer import Peer

# Peer -> its module and class. Modules are imported only when served: they need their library.
MODULES = {
    "numpy": ("numpy_peer", "NumpyPeer"),
    "numba": ("numba_peer", "NumbaPeer"),
    "torch": ("torch_peer", "TorchPeer"),
    "torch-compile": ("torch_peer", "CompiledTorchPeer"),
    "torch-int8": ("torch_peer", "QuantisedTorchPeer"),
    "torch-cuda": ("torch_cuda_peer", "TorchCudaPeer"),
    "triton": ("triton_peer", "TritonPeer"),
    "onnxruntime": ("onnx_peer", "OnnxPeer"),
    "onnxruntime-int8": ("onnx_peer", "OnnxInt8Peer"),
    "llama-cpp": ("llama_cpp_peer", "LlamaCppPeer"),
}
HAVE_INDEX_KERNELS = ("numpy", "torch", "torch-compile")
HAVE_GEMM_ALONE = ("torch-int8", "onnxruntime-int8", "llama-cpp")
VERSION = "1"

Message = dict[str, Any]


class Refusal(Exception):
    """An answer that is not what was asked for: a status of the row and the reason."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status


class Server:
    """One peer with at most one open case."""

    def __init__(self, name: str, absent: str | None, make: Callable[[], Peer],
                 usual: Sequence[str]):
        """`make` may fail, which makes the peer absent; it then lacks the `usual` kernels."""
        self.name = name
        self.reason = absent
        self.usual = usual
        self.seed = self.threads = 1
        self.by_event = False
        self.distribution = None  # of the open case's inputs, where it is not uniform
        self.evictor = None  # of the first cold case on
        self.peer = None
        self.close({})
        if absent is None:
            self.reason = self._make(make)

    def _make(self, make: Callable[[], Peer]) -> str | None:
        """Makes the peer; why that failed, or nothing."""
        try:
            self.peer = make()
            return self.peer.absent()
        except Exception as error:  # a package that does not fit raises whatever it likes
            return f"{type(error).__name__}: {error}".splitlines()[0]

    def greeting(self) -> Message:
        if self.reason is not None:
            variants = [{"kernel": kernel, "variant": self.name, "absent": self.reason}
                        for kernel in (self.peer.kernels if self.peer else self.usual)]
        else:
            variants = [{"kernel": kernel, "variant": self.name, "threads": threads,
                         "backend": "python", "verifies": False}
                        for kernel, threads in self.peer.kernels.items()]
        return {"rooflane_worker": 1, "name": self.name, "version": VERSION,
                "variants": variants, "draws_distributions": True}

    def answer(self, request: Message) -> Message:
        """The answer to one request; failures come out as refusals, never as a crash."""
        operations = {"open": self.open, "output": self.output, "calibrate": self.calibrate,
                      "sample": self.sample, "close": self.close}
        try:
            operation = operations.get(request["op"])
            if operation is None:
                raise Refusal("RUNTIME_ERROR", f"unknown op '{request['op']}'")
            return {"ok": True, **operation(request)}
        except Refusal as refusal:
            return {"ok": False, "status": refusal.status, "reason": str(refusal)}
        except MemoryError:
            return {"ok": False, "status": "RUNTIME_ERROR", "reason": "out of memory"}
        except Exception as error:  # whatever a library throws becomes the row's reason
            text = str(error).strip().split("\n")[0]
            return {"ok": False, "status": "RUNTIME_ERROR",
                    "reason": f"{type(error).__name__}: {text}" if text else type(error).__name__}

    def open(self, request: Message) -> Message:
        self.close({})
        if self.reason is not None:
            raise Refusal("UNSUPPORTED", self.reason)
        # Here and not above: NumPy is missing where the peer is absent.
        from peer_workers.peer import Unsupported, aligned_array
        from peer_workers.problem import fill_inputs, problem_of

        if "problem" not in request:
            raise Refusal("RUNTIME_ERROR", "the request holds no resolved problem: whoever asks is "
                                           "older than this worker")
        problem = problem_of(request["problem"], request["math"])
        if problem.kernel not in self.peer.kernels:
            raise Refusal("UNSUPPORTED", f"{self.name} has no {problem.kernel} of its own")
        if request["math"] not in self.peer.maths:
            known = ("strict fp32 only" if self.peer.maths == ("fp32",)
                     else ", ".join(self.peer.maths))
            raise Refusal("UNSUPPORTED",
                          f"math {request['math']}: this variant computes {known}")
        for tensor in problem.tensors:
            if tensor.dtype not in self.peer.dtypes:
                verb = "are" if len(self.peer.dtypes) > 1 else "is"
                raise Refusal("UNSUPPORTED", f"{tensor.dtype} {tensor.name} is not implemented by "
                              f"this variant; {', '.join(self.peer.dtypes)} {verb}")
        on_device = self.peer.kernels[problem.kernel] == "device"
        if request["cache"] == "cold" and on_device:
            raise Refusal("UNSUPPORTED",
                          "cache cold: the caches of this device cannot be emptied from here")
        if request["timer"] == "event" and not on_device:
            raise Refusal("UNSUPPORTED", "timer event: only device variants have one")
        # A device leaves the host's CPUs to whoever fills its inputs.
        threads = len(os.sched_getaffinity(0)) if on_device else max(1, request["threads"])
        self.arrays = {tensor.name: aligned_array(tensor.shape, tensor.dtype)
                       for tensor in problem.tensors}
        self.distribution = request.get("distribution")
        fill_inputs(problem, request["seed"], self.arrays, threads, self.distribution)
        for tensor in problem.outputs:
            self.arrays[tensor.name].fill(0)  # no page of it is new to a run
        start = time.perf_counter_ns()
        try:
            self.plan = self.peer.plan(problem, self.arrays, threads)
        except Unsupported as reason:
            self.close({})
            raise Refusal("UNSUPPORTED", str(reason)) from None
        plan_ns = time.perf_counter_ns() - start
        self.plan.upload()
        self.problem, self.seed, self.threads = problem, request["seed"], threads
        self.by_event = request["timer"] == "event"
        self.cold = request["cache"] == "cold"
        if self.cold and self.evictor is None:
            from peer_workers.evict import Evictor
            self.evictor = Evictor()
        device, driver = self.peer.device()
        library = self.plan.library or self.peer.library()
        return {"isa": "", "library": library, "device": device, "driver": driver, "tuning": [],
                "path": self.plan.path, "math": self.plan.math,
                "workspace_bytes": int(self.plan.workspace_bytes),
                "packed_bytes": int(self.plan.packed_bytes), "plan_ns": plan_ns}

    def _opened(self):
        if self.plan is None:
            raise Refusal("RUNTIME_ERROR", "no case is open")
        return self.plan

    def output(self, request: Message) -> Message:
        import numpy as np

        from peer_workers.formats import STORED
        from peer_workers.problem import fill_inputs

        plan = self._opened()
        fill_inputs(self.problem, self.seed, self.arrays, self.threads, self.distribution)
        plan.poison()
        plan.upload()
        plan.run()
        plan.download()
        outputs = [np.ascontiguousarray(output, STORED[tensor.dtype])
                   for output, tensor in zip(plan.outputs(), self.problem.outputs, strict=True)]
        size = sum(output.nbytes for output in outputs)
        if size != request["output_bytes"]:
            raise Refusal("RUNTIME_ERROR", f"the output has {size} bytes, asked for were "
                                           f"{request['output_bytes']}")
        # A number would stand for an open file, and this one is closed again.
        with open(os.fspath(request["path"]), "r+b") as file:
            for output in outputs:
                output.tofile(file)
        return {}

    def calibrate(self, request: Message) -> Message:
        run = self._opened().run
        if self.cold:  # a sample is one run
            warm_up(run)
            self.evictor.evict()
            return {"runs_per_sample": 1, "run_ns": time_runs(run, 1)}
        run_ns = undisturbed_run_ns(run)
        return {"runs_per_sample": runs_for_sample(run_ns), "run_ns": run_ns}

    def sample(self, request: Message) -> Message:
        plan = self._opened()
        samples: dict[str, list[Any]] = {
            name: [] for name in ("ns", "h2d_ns", "kernel_ns", "d2h_ns", "e2e_ns")}
        on_device = self.peer.kernels[self.problem.kernel] == "device"
        warm_up(plan.run)
        for _ in range(request["n"]):
            if self.cold:
                self.evictor.evict()
            if self.by_event:
                samples["ns"].append(plan.kernel_ns(request["runs"]))
            elif self.peer.watched:
                from peer_workers.watching import time_watched
                ns, changes = time_watched(plan, self.problem, self.arrays, request["runs"])
                samples["ns"].append(ns)
                samples.setdefault("changes", []).append(changes)
            else:
                samples["ns"].append(time_runs(plan.run, request["runs"]))
            if not on_device:
                continue
            start = time.perf_counter_ns()
            plan.upload()
            plan.run()
            plan.download()
            samples["e2e_ns"].append(time.perf_counter_ns() - start)
            for name, value in vars(plan.device_times()).items():
                samples[name].append(value)
        return samples

    def close(self, request: Message) -> Message:
        self.plan = None
        self.problem = None
        self.cold = False
        self.arrays = {}
        gc.collect()
        return {}


def protocol_output() -> IO[str]:
    """Standard output for the protocol alone: what libraries print there goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8", buffering=1)


def serve(make: Callable[[], Server]) -> int:
    """Answers requests until end of input; returns the exit status. What importing a peer prints is
    kept out of the protocol too."""
    protocol = protocol_output()
    server = make()
    print(json.dumps(server.greeting()), file=protocol)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    gc.disable()  # a collection in the middle of a sample would be timed
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:  # of brackets inside brackets without end
            request = {"op": f"{line.strip()[:60]}: {error}"}
        print(json.dumps(server.answer(request)), file=protocol)
    return 0


def usual_kernels(name: str) -> tuple[str, ...]:
    """What a library has, by its peer's name, where it cannot be asked."""
    if name in HAVE_GEMM_ALONE:
        return ("gemm",)
    return KERNELS + (INDEX_KERNELS if name in HAVE_INDEX_KERNELS else ())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=MODULES)
    parser.add_argument("--absent")
    arguments = parser.parse_args()

    def make() -> Peer:
        module, cls = MODULES[arguments.name]
        return getattr(importlib.import_module(f"peer_workers.{module}"), cls)()

    return serve(lambda: Server(arguments.name, arguments.absent, make,
                                usual_kernels(arguments.name)))


if __name__ == "__main__":
    sys.exit(main())
