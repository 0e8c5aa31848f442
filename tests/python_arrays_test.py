#!/usr/bin/env python3
"""Memory, errors and threads of the Python package: python_arrays_test.py BUILD_DIR."""
from __future__ import annotations

import gc
import sys
import threading
import time
import unittest
import weakref
from pathlib import Path

import package_environment
import skip


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


class Exporter:
    """Nothing but DLPack: what PyTorch's, JAX's and CuPy's arrays are to us."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(Exporter):
    """Says that it lies on a GPU."""

    def __dlpack__(self, **arguments):
        raise BufferError("device memory")


class Memory(unittest.TestCase):
    """Arrays are used in place."""

    def test_results_are_written_in_place(self):
        x = np.random.default_rng(1).standard_normal((6, 9)).astype("float32")
        out = np.empty((6, 9), "float32")
        address = out.ctypes.data
        self.assertIs(rooflane.softmax(x, out=out), out)
        self.assertEqual(out.ctypes.data, address)
        self.assertTrue(np.allclose(out.sum(1), 1))

    def test_a_plan_reads_the_very_memory(self):
        x, y = ones(2, 4), ones(2, 4)
        plan = rooflane.plan("softmax", x=x, y=y)
        self.assertIs(plan.arrays["y"], y)
        plan.run()
        self.assertTrue((y == 0.25).all())
        x[0] = [0, -np.inf, -np.inf, -np.inf]  # seen without binding again: nothing was copied
        plan.run()
        self.assertTrue((y[0] == [1, 0, 0, 0]).all())

    def test_nothing_beside_the_view_is_written(self):
        memory = np.full((8, 20), 7, "float32")
        view = memory[1:7:2, 4:9]
        rooflane.softmax(np.zeros((3, 5), "float32"), out=view)
        self.assertTrue((view == np.float32(0.2)).all())
        self.assertEqual(np.count_nonzero(memory != 7), view.size)

    def test_inputs_stay(self):
        a = np.random.default_rng(2).standard_normal((9, 9)).astype("float32")
        before = a.copy()
        rooflane.gemm(a, a, trans_b=True)
        self.assertTrue((a == before).all())

    def test_in_place(self):
        x = np.zeros((3, 4), "float32")
        self.assertIs(rooflane.softmax(x, out=x), x)
        self.assertTrue((x == 0.25).all())

    def test_rows_that_repeat(self):
        x = np.broadcast_to(np.arange(4, dtype="float32"), (5, 4))
        self.assertTrue(np.allclose(rooflane.softmax(x), rooflane.softmax(x.copy()), atol=1e-6))

    def test_other_exporters(self):
        x = ones(3, 4)
        for given in (Exporter(x), memoryview(x), memoryview(x.tobytes()).cast("f", (3, 4))):
            with self.subTest(type(given).__name__):
                self.assertTrue((rooflane.softmax(given) == 0.25).all())
        out = np.zeros_like(x)
        rooflane.softmax(x, out=Exporter(out))
        self.assertTrue((out == 0.25).all())

    def test_bfloat16_of_ml_dtypes(self):
        x, out = np.zeros((3, 4), ml_dtypes.bfloat16), np.ones((3, 8), ml_dtypes.bfloat16)
        rooflane.softmax(x, out=out[:, 4:])
        self.assertTrue((out[:, 4:] == 0.25).all() and (out[:, :4] == 1).all())
        self.assertEqual(rooflane.softmax(x).dtype, ml_dtypes.bfloat16)

    def test_empty(self):
        self.assertEqual(rooflane.softmax(np.empty((0, 4), "float32")).shape, (0, 4))
        self.assertTrue((rooflane.gemm(np.empty((2, 0), "float32"), np.empty((0, 3), "float32"))
                         == 0).all())

    def test_a_plan_keeps_its_arrays_alive_and_lets_them_go(self):
        class Tracked(np.ndarray):
            """One that can be watched."""

        x, y = (np.zeros((2, 4), "float32").view(Tracked) for _ in range(2))
        watched = weakref.ref(x)
        plan = rooflane.plan("softmax", rows=2, cols=4)
        plan.bind(x=x, y=y)
        plan.arrays = {}  # what the core holds is meant
        del x
        gc.collect()
        self.assertIsNotNone(watched())
        plan.run()
        self.assertTrue((y == 0.25).all())
        plan.bind(x=ones(2, 4), y=y)
        gc.collect()
        self.assertIsNone(watched())
        plan.unbind()
        with self.assertRaisesRegex(ValueError, "no arrays are bound"):
            plan.run()

    def test_calls_keep_nothing(self):
        x = ones(4, 4)
        before = sys.getrefcount(x)
        for _ in range(3):
            rooflane.softmax(x)
        self.assertEqual(sys.getrefcount(x), before)

    def test_packed_constants(self):
        a, b = ones(4, 8), ones(8, 5)
        plan = rooflane.plan("gemm", a=a, b=b, prepack=True)
        b[:] = 0  # it was packed
        plan.run()
        self.assertTrue((plan.arrays["c"] == 8).all())
        self.assertEqual(plan.arrays["c"].shape, (4, 5))
        self.assertGreater(plan.facts["packed_bytes"], 0)
        with self.assertRaisesRegex(ValueError, "rooflane.plan"):
            rooflane.compute("gemm", {"a": a, "b": b}, prepack=1)


class Errors(unittest.TestCase):
    """What is wrong is said, and how."""

    def refused(self, pattern, call, *arguments, error=ValueError, **named):
        with self.assertRaisesRegex(error, pattern):
            call(*arguments, **named)

    def test_shapes(self):
        self.refused(r"k is 3 .* but 4", rooflane.gemm, ones(2, 3), ones(4, 5))
        self.refused("c is .*, allowed is", rooflane.gemm, ones(2, 3), ones(3, 5), out=ones(5, 2))
        self.refused("axes", rooflane.attention, ones(2, 3), ones(2, 3), ones(2, 3))

    def test_what_wants_a_copy(self):
        self.refused("ascontiguousarray", rooflane.softmax, ones(4, 6).T)
        self.refused("ascontiguousarray", rooflane.softmax, ones(4, 6)[:, ::2])
        self.refused("backwards", rooflane.softmax, ones(4, 6)[::-1])
        self.refused("leading axes with gaps", rooflane.softmax, ones(4, 6, 3)[:, :4])

    def test_formats(self):
        self.refused("x is float64, allowed are float32, float16, bfloat16", rooflane.softmax,
                     ones(2, 3, dtype="float64"))
        self.refused("ids is int64, allowed is int32", rooflane.plan, "embed", table=ones(4, 2),
                     ids=np.array([1, 2], "int64"))
        self.refused("b_type says", rooflane.gemm, ones(2, 32), ones(2, 34, dtype="uint8"),
                     trans_b=True)
        self.refused("no kernel takes", rooflane.softmax, ones(2, 3, dtype="complex64"))
        self.refused("no kernel takes", rooflane.softmax, ones(2, 3, dtype="bool"))

    def test_no_arrays(self):
        for given in ([[1.0]], 3.0, None, "x"):
            with self.subTest(given=given), self.assertRaises((TypeError, ValueError)):
                rooflane.softmax(given)

    def test_outputs(self):
        fixed = ones(2, 3)
        fixed.flags.writeable = False
        self.refused("y is read only", rooflane.softmax, ones(2, 3), out=fixed)
        self.assertTrue((rooflane.softmax(fixed) > 0).all())  # as an input it is welcome
        a = ones(4, 4)
        self.refused("overlaps input a", rooflane.gemm, a, ones(4, 4), out=a)
        self.refused("unknown output of softmax 'z'", rooflane.compute, "softmax", {"x": a},
                     {"z": a})

    def test_devices(self):
        self.refused("device memory", rooflane.softmax, OnDevice(ones(2, 3)))

    def test_values_out_of_range(self):
        self.refused(r"ids\[1\]", rooflane.embed, ones(4, 2), np.array([0, 4], "int32"))
        self.refused(r"ids\[0\]", rooflane.embed, ones(4, 2), np.array([-1], "int32"))

    def test_names(self):
        self.refused("unknown kernel 'gem'; nearest is 'gemm'", rooflane.plan, "gem", m=1)
        self.refused("nearest is 'causal'", rooflane.compute, "attention",
                     {"q": ones(1, 1, 2, 4), "k": ones(1, 1, 2, 4), "v": ones(1, 1, 2, 4)},
                     casual=1)
        self.refused("nearest is 'hwy'", rooflane.softmax, ones(2, 3), variant="hvy")
        self.refused("unknown option 'thread'", rooflane.softmax, ones(2, 3), thread=1)
        self.refused("threads: 0", rooflane.softmax, ones(2, 3), threads=0)
        self.refused("m", rooflane.plan, "gemm", n=3, k=2)
        self.refused("tensor", rooflane.plan("softmax", rows=1, cols=1).bind, x=ones(1, 1),
                     y=ones(1, 1), z=ones(1, 1))
        self.refused("y .* is missing", rooflane.plan("softmax", rows=1, cols=1).bind,
                     x=ones(1, 1))

    def test_what_this_machine_lacks(self):
        absent = [variant for variant in rooflane.variants() if variant.absent]
        if not absent:
            self.skipTest("every variant is here")
        self.assertIn("rooflane", rooflane.Unavailable.__module__)
        self.refused("", rooflane.plan, absent[0].kernel, error=(rooflane.Unavailable, ValueError),
                     variant=absent[0].name)
        self.refused("device|math", rooflane.softmax, ones(2, 3), math="bf16",
                     error=rooflane.Unavailable)

    def test_a_bind_that_fails_leaves_what_was_bound(self):
        x, y = ones(1, 4), ones(1, 4)
        plan = rooflane.plan("softmax", x=x, y=y)
        self.refused("allowed is", plan.bind, x=ones(1, 5), y=y)
        plan.run()
        self.assertTrue((y == 0.25).all())


class Threads(unittest.TestCase):
    """The interpreter goes on; plans and calls may be shared."""

    def test_others_run_meanwhile(self):
        n = 1200
        plan = rooflane.plan("gemm", m=n, n=n, k=n, variant="scalar", threads=1)
        plan.bind(a=ones(1, n, n), b=ones(1, n, n), c=ones(1, n, n))
        work = threading.Thread(target=plan.run)
        switches = 0
        work.start()
        while work.is_alive():
            time.sleep(0.001)  # comes back only while the lock is free
            switches += 1
        self.assertGreater(switches, 3)
        self.assertTrue((plan.arrays["c"] == n).all())

    def in_threads(self, body, count=4):
        failures = []

        def guarded(index):
            try:
                body(index)
            except Exception as error:  # told by the main thread
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=[index]) for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_calls_of_the_same_kind_at_once(self):
        def body(index):
            a = np.full((33, 47), index + 1, "float32")
            for _ in range(50):
                c = rooflane.gemm(a, a, trans_b=True, threads=2)
                self.assertTrue((c == 47 * (index + 1)**2).all())

        self.in_threads(body)

    def test_one_plan_of_several_threads(self):
        plan = rooflane.plan("gemm", m=32, n=32, k=32, threads=2)
        a, c = ones(1, 32, 32), ones(1, 32, 32)
        plan.bind(a=a, b=a, c=c)

        def body(index):
            for _ in range(100):
                if index == 0:
                    plan.bind(a=a, b=a, c=c)
                plan.run()

        self.in_threads(body)
        self.assertTrue((c == 32).all())

    def test_more_kinds_of_calls_than_are_kept(self):
        for cols in range(1, 200):
            self.assertEqual(rooflane.softmax(ones(1, cols)).shape, (1, cols))
        rooflane.forget_plans()
        self.assertEqual(rooflane.softmax(ones(1, 3)).shape, (1, 3))


TORCH = """
import torch, rooflane
x, out = torch.zeros(2, 4), torch.empty(2, 4)
address = out.data_ptr()
assert rooflane.softmax(x, out=out) is out and out.data_ptr() == address
assert (out == 0.25).all()
made = rooflane.softmax(x)
assert isinstance(made, torch.Tensor) and (made == out).all()
half = x.to(torch.bfloat16)
assert rooflane.softmax(half).dtype == torch.bfloat16
rooflane.softmax(half, out=half)
assert (half == 0.25).all()
a, b = torch.randn(9, 20)[:, :16], torch.randn(16, 7)
assert torch.allclose(rooflane.gemm(a, b), a @ b, atol=1e-5)
try:
    rooflane.softmax(x.requires_grad_())
except ValueError as error:
    assert "grad" in str(error), error
else:
    raise AssertionError("a tensor that requires a gradient was taken")
"""


class PyTorch(unittest.TestCase):
    """Its tensors, where an environment of the peers has it."""

    def test_tensors(self):
        package_environment.run_with_torch(self, TORCH)


if __name__ == "__main__":
    package_environment.enter(Path(sys.argv[1]))
    import ml_dtypes
    import numpy as np
    import rooflane
    skip.main([sys.argv[0], *sys.argv[2:]])
