#!/usr/bin/env python3
"""Arguments as numpy.matmul and PyTorch's functions take them: python_numpy_test.py BUILD_DIR."""
from __future__ import annotations

import itertools
import sys
import tracemalloc
import unittest
from pathlib import Path

import package_environment
import skip

SEED = 20261127


def forms_of(matrix):
    """The same values in every order that needs no copy: rows, columns, each with gaps."""
    yield "rows", matrix
    yield "columns", np.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)
    wide = np.zeros((*matrix.shape[:-1], matrix.shape[-1] + 3), matrix.dtype)
    wide[..., :matrix.shape[-1]] = matrix
    yield "rows with gaps", wide[..., :matrix.shape[-1]]
    tall = np.zeros((*matrix.shape[:-2], matrix.shape[-1], matrix.shape[-2] + 5), matrix.dtype)
    tall[..., :matrix.shape[-2]] = matrix.swapaxes(-1, -2)
    yield "columns with gaps", tall[..., :matrix.shape[-2]].swapaxes(-1, -2)


class Matmul(unittest.TestCase):
    """rooflane.gemm(a, b) is numpy.matmul(a, b)."""

    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def draw(self, *shape):
        return self.random.integers(-3, 4, shape).astype("float32")  # products are exact

    def agree(self, a, b, **options):
        want = np.matmul(a, b)
        got = rooflane.gemm(a, b, **options)
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_array_equal(got, want)
        out = np.full(want.shape, np.nan, "float32")
        self.assertIs(rooflane.gemm(a, b, out=out, **options), out)
        np.testing.assert_array_equal(out, want)

    def test_orders(self):
        for m, n, k in ((16, 16, 16), (5, 7, 9), (1, 6, 4), (6, 1, 4), (4, 6, 1), (1, 1, 1)):
            for (first, a), (second, b) in itertools.product(forms_of(self.draw(m, k)),
                                                             forms_of(self.draw(k, n))):
                with self.subTest(m=m, n=n, k=k, a=first, b=second):
                    self.agree(a, b)

    def test_flags_say_what_the_shapes_mean(self):
        x, w = self.draw(4, 6), self.draw(5, 6)
        for (first, a), (second, b) in itertools.product(forms_of(x), forms_of(w)):
            with self.subTest(a=first, b=second):
                np.testing.assert_array_equal(rooflane.gemm(a, b, trans_b=True), x @ w.T)
                np.testing.assert_array_equal(rooflane.gemm(a.T, b.T, trans_a=True), x @ w.T)

    def test_vectors(self):
        a, b = self.draw(5, 8), self.draw(8, 3)
        self.agree(a[0], b)
        self.agree(a, b[:, 1])
        self.assertEqual(rooflane.gemm(a[0], b[:, 0]), a[0] @ b[:, 0])
        self.agree(self.draw(8), self.draw(2, 3, 8, 4))
        self.agree(self.draw(2, 3, 5, 8), self.draw(8))
        np.testing.assert_array_equal(rooflane.gemm(a, b[:, 0], residual=a[:, 2]),
                                      a @ b[:, 0] + a[:, 2])
        with self.assertRaisesRegex(ValueError, "trans_a=True of a vector"):
            rooflane.gemm(a[0], b, trans_a=True)

    def test_batches_are_broadcast(self):
        for left, right in (((3,), ()), ((), (3,)), ((2, 3), ()), ((), (2, 3)), ((2, 3), (2, 3)),
                            ((2, 1), (3,)), ((2, 1), (1, 3)), ((1, 3), (2, 1)), ((4, 1, 3), (2, 1)),
                            ((1,), ()), ((1, 1), (3,)), ((0, 2), ()), ((2, 0), (2, 1))):
            a, b = self.draw(*left, 5, 8), self.draw(*right, 8, 4)
            for (first, x), (second, y) in itertools.product(forms_of(a), forms_of(b)):
                with self.subTest(a=a.shape, b=b.shape, order=(first, second)):
                    self.agree(x, y)
        with self.assertRaisesRegex(ValueError, r"\(2,\) and \(3,\) cannot be broadcast"):
            rooflane.gemm(self.draw(2, 4, 4), self.draw(3, 4, 4))

    def test_axes_in_any_order(self):
        whole = self.draw(4, 5, 3, 8)
        b = self.draw(3, 8, 6)
        self.agree(whole.transpose(0, 2, 1, 3), b)
        self.agree(whole.transpose(2, 0, 1, 3), self.draw(4, 8, 6))

    def test_no_copy_of_an_operand(self):
        """What NumPy allocates meanwhile is a fraction of the smallest operand."""
        a, w = self.draw(3, 2, 300, 400), self.draw(500, 400)
        out = np.empty((3, 2, 300, 500), "float32")
        rooflane.gemm(a, w.T, out=out)
        tracemalloc.start()
        rooflane.gemm(a, w.T, out=out)
        rooflane.gemm(a.transpose(1, 0, 2, 3), w.T, out=out.transpose(1, 0, 2, 3))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, w.nbytes / 4)

    def test_c0_and_residual_are_like_c(self):
        a, b = self.draw(2, 3, 5, 8), self.draw(8, 4)
        like = self.draw(2, 3, 5, 4)
        np.testing.assert_array_equal(rooflane.gemm(a, b, like, alpha=2), 2 * (a @ b) + like)
        np.testing.assert_array_equal(rooflane.gemm(a, b, residual=like), a @ b + like)
        columns = np.asfortranarray(like)  # cannot be one matrix of 30 rows
        with self.assertRaisesRegex(ValueError, "ascontiguousarray"):
            rooflane.gemm(a, b, residual=columns)

    def test_what_wants_a_copy_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"a \[4,4\] has elements 2 apart.*ascontiguous"):
            rooflane.gemm(self.draw(8, 8)[::2, ::2], self.draw(4, 4))
        with self.assertRaisesRegex(ValueError, "backwards"):
            rooflane.gemm(self.draw(4, 4)[::-1], self.draw(4, 4))

    def test_other_formats(self):
        a, b = self.draw(3, 4, 32), self.draw(6, 32)
        for dtype in ("float16", ml_dtypes.bfloat16):
            with self.subTest(dtype):
                got = rooflane.gemm(a.astype(dtype), b.astype(dtype).T, c_type="f32")
                np.testing.assert_array_equal(got, a @ b.T)
        got = rooflane.gemm(a.astype("int8"), b.astype("int8").T, c_type="s32")
        np.testing.assert_array_equal(got, a @ b.T)
        scale = self.random.random(6, "float32")
        np.testing.assert_allclose(
            rooflane.gemm(a, b.astype("int8").T, b_scale=scale, c_type="f32"), a @ b.T * scale,
            rtol=1e-5)

    def test_a_gate(self):
        a, b = self.draw(2, 3, 8), self.draw(8, 12) / 8
        gate, up = np.split(a @ b, 2, axis=-1)
        for _, given in forms_of(b):
            np.testing.assert_allclose(rooflane.gemm(a, given, gate=True),
                                       gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)


class Plans(unittest.TestCase):
    """Plans take the same views."""

    def test_transposed_views(self):
        random = np.random.default_rng(SEED)
        a, w = random.random((9, 16), "float32"), random.random((5, 16), "float32")
        for packed in (False, True):
            plan = rooflane.plan("gemm", a=a, b=w.T, prepack=packed)
            plan.run()
            np.testing.assert_allclose(plan.arrays["c"], a @ w.T, rtol=1e-5)
            self.assertIn("trans_b=1", plan.problem)
            constants = {} if packed else {"b": 2 * w.T}
            plan.bind(a=2 * a, c=plan.arrays["c"], **constants)
            plan.run()
            np.testing.assert_allclose(plan.arrays["c"], (2 if packed else 4) * (a @ w.T),
                                       rtol=1e-5)

    def test_another_order_than_planned(self):
        a = np.ones((4, 4), "float32")
        plan = rooflane.plan("gemm", a=a, b=a.T)
        with self.assertRaisesRegex(ValueError, "b was planned with trans_b=1"):
            plan.bind(a=a, b=a, c=np.ones((4, 4), "float32"))


class Integers(unittest.TestCase):
    """ids, segments and lengths of any type."""

    TYPES = ("int64", "int32", "int16", "uint8", "uint32")

    def test_ids(self):
        table = np.arange(12, dtype="float32").reshape(4, 3)
        for dtype in self.TYPES:
            with self.subTest(dtype):
                ids = np.array([[3, 0], [1, 1]], dtype)
                np.testing.assert_array_equal(rooflane.embed(table, ids), table[ids])
                np.testing.assert_array_equal(rooflane.embed(table, ids[:, 1]), table[ids[:, 1]])
        with self.assertRaisesRegex(ValueError, r"ids\[0\]"):
            rooflane.embed(table, np.array([4]))
        # In 32 bits it would be row 0.
        with self.assertRaisesRegex(ValueError, "ids holds 4294967296"):
            rooflane.embed(table, np.array([2**32]))
        with self.assertRaisesRegex(ValueError, "ids holds -4294967295"):
            rooflane.embed(table, np.array([1 - 2**32]))
        self.assertEqual(rooflane.embed(table, np.empty((0,), "int64")).shape, (0, 3))

    def test_segments(self):
        x = np.array([[1], [2], [3]], "float32")
        for dtype in self.TYPES:
            with self.subTest(dtype):
                segment = np.array([1, 0, 1], dtype)
                np.testing.assert_array_equal(rooflane.segment_sum(x, segment, 2), [[2], [4]])
                np.testing.assert_array_equal(rooflane.segment_softmax(0 * x, segment, 2),
                                              [[0.5], [1], [0.5]])

    def test_lengths(self):
        q = np.random.default_rng(SEED).random((2, 1, 3, 4), "float32")
        want = rooflane.attention(q, q, q, lengths=np.array([1, 3], "int32"))
        np.testing.assert_array_equal(
            rooflane.attention(q, q, q, lengths=np.array([1, 3])), want)


class Masks(unittest.TestCase):
    """Masks of bool, like PyTorch's: true takes part."""

    def setUp(self):
        random = np.random.default_rng(SEED)
        self.q, self.k, self.v = (random.standard_normal((2, 3, 5, 8), dtype=np.float32)
                                  for _ in range(3))
        self.seen = np.tril(np.ones((5, 5), bool))

    def test_attention(self):
        want = rooflane.attention(self.q, self.k, self.v, causal=True)
        added = np.where(self.seen, 0, -np.inf).astype("float32")
        for mask in (self.seen, self.seen[None, None], added, added[None]):
            with self.subTest(mask=(mask.dtype, mask.shape)):
                np.testing.assert_allclose(rooflane.attention(self.q, self.k, self.v, mask), want,
                                           rtol=1e-5, atol=1e-6)
        with self.assertRaisesRegex(ValueError, r"allowed is \[q_len,kv_len\]"):
            rooflane.attention(self.q, self.k, self.v, np.stack([self.seen] * 2)[:, None])

    def test_softmax(self):
        x = self.q[0, 0, :, :5]
        np.testing.assert_allclose(
            rooflane.softmax(x, self.seen),
            rooflane.softmax(np.where(self.seen, x, -np.inf).astype("float32")), rtol=1e-6)

    def test_without_a_batch_axis(self):
        want = rooflane.attention(self.q, self.k, self.v)[1]
        one = self.q[1], self.k[1], self.v[1]
        np.testing.assert_array_equal(rooflane.attention(*one), want)
        out = np.empty_like(want)
        self.assertIs(rooflane.attention(*one, out=out), out)
        np.testing.assert_array_equal(out, want)


class MaskedArrays(unittest.TestCase):
    """Are refused: no kernel leaves elements out."""

    def test_refused_with_the_call_that_works(self):
        x = np.ma.masked_greater(np.ones((2, 4), "float32"), 3)
        calls = {"softmax": lambda: rooflane.softmax(x), "gemm": lambda: rooflane.gemm(x, x.T),
                 "plan": lambda: rooflane.plan("softmax", x=x),
                 "out": lambda: rooflane.softmax(x.data, out=x)}
        for name, call in calls.items():
            with self.subTest(name), self.assertRaisesRegex(ValueError, r"masked array.*filled\("):
                call()
        self.assertEqual(rooflane.softmax(x.filled(0)).shape, (2, 4))


TORCH = """
import torch, rooflane
torch.manual_seed(1)
x, w = torch.randn(3, 2, 8, 16), torch.randn(4, 16)
def same(got, want):
    assert isinstance(got, torch.Tensor) and got.shape == want.shape, (got.shape, want.shape)
    assert torch.allclose(got, want, atol=1e-5)
same(rooflane.gemm(x, w.T), x @ w.T)
same(rooflane.gemm(x.mT, w[:, :8].T), x.mT @ w[:, :8].T)
same(rooflane.gemm(x[:, :1], torch.ones(2, 16, 5)), x[:, :1] @ torch.ones(2, 16, 5))
same(rooflane.gemm(x, w[1]), x @ w[1])
turned, b = x.transpose(0, 1), torch.ones(3, 16, 5)
same(rooflane.gemm(turned, b), turned @ b)
ids = torch.tensor([[3, 1], [0, 2]])
same(rooflane.embed(w, ids), torch.nn.functional.embedding(ids, w))
q, k, v = torch.randn(3, 2, 4, 6, 8)
seen = torch.rand(6, 6) > 0.4
seen[:, 0] = True
attend = torch.nn.functional.scaled_dot_product_attention
same(rooflane.attention(q, k, v, seen), attend(q, k, v, seen))
same(rooflane.attention(q, k, v, seen[None, None]), attend(q, k, v, seen[None, None]))
same(rooflane.attention(q[0], k[0], v[0]), attend(q[0], k[0], v[0]))
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
