#!/usr/bin/env python3
"""rooflane.torch beside PyTorch's own functions, in the peers' environment of PyTorch where that
was prepared: python_torch_test.py BUILD_DIR."""
from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path

import skip

ROOT = Path(__file__).resolve().parent.parent
HUGGING_FACE = ["transformers==5.24.0"]
VOCABULARY = 500


def enter(build: Path) -> None:
    """Goes on in the interpreter that has PyTorch, with the package of a build folder, and with
    Hugging Face's models where PyPI can be reached."""
    if not list((build / "python" / "rooflane").glob("_core*.so")):
        skip.everything("built without the Python package", "from PyPI: nanobind, and python3-dev")
    sys.path.insert(0, str(ROOT / "scripts"))
    from peer_workers import environments
    from python_environment import Unavailable, with_packages
    try:
        python = Path(environments.interpreter("torch"))
    except Unavailable as reason:
        skip.everything(f"no PyTorch: {reason}")
    if Path(sys.prefix).resolve() == python.parent.parent.resolve():
        return
    paths = [str((build / "python").resolve())]
    try:
        folder = with_packages("transformers-tests", HUGGING_FACE).parent.parent
        paths += map(str, folder.glob("lib/python*/site-packages"))
    except Unavailable as reason:
        print(f"no models of Hugging Face: {reason}", file=sys.stderr)
    os.environ.update(environments.variables("torch"), PYTHONPATH=":".join(paths),
                      HF_HUB_OFFLINE="1")
    os.execv(python, [str(python), *sys.argv])


class Functions(unittest.TestCase):
    """Each gives what PyTorch's gives, and refuses in words what it does not compute."""

    def setUp(self):
        torch.manual_seed(1)
        guard = torch.no_grad()
        guard.__enter__()
        self.addCleanup(guard.__exit__, None, None, None)

    def same(self, got, want, apart=1e-5):
        self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
        torch.testing.assert_close(got, want, rtol=apart, atol=apart)

    def test_linear(self):
        weight, bias = torch.randn(8, 16), torch.randn(8)
        for shape in ((16,), (5, 16), (2, 5, 16), (2, 3, 5, 16), (0, 16)):
            x = torch.randn(shape)
            for given in (None, bias):
                with self.subTest(shape=shape, bias=given is not None):
                    self.same(rooflane.torch.linear(x, weight, given), F.linear(x, weight, given))
        transposed = torch.randn(16, 8).T
        self.same(rooflane.torch.linear(x, transposed), F.linear(x, transposed))
        for dtype in (torch.bfloat16, torch.float16):
            x, weight = torch.randn(5, 16).to(dtype), weight.to(dtype)
            self.same(rooflane.torch.linear(x, weight), F.linear(x, weight), 0.02)

    def test_norms(self):
        x, gamma, beta = torch.randn(2, 5, 16), torch.randn(16), torch.randn(16)
        self.same(rooflane.torch.layer_norm(x, (16,), gamma, beta),
                  F.layer_norm(x, (16,), gamma, beta))
        self.same(rooflane.torch.layer_norm(x, (5, 16)), F.layer_norm(x, (5, 16)))
        self.same(rooflane.torch.layer_norm(x, [16], gamma), F.layer_norm(x, [16], gamma))
        self.same(rooflane.torch.rms_norm(x, (16,), gamma), F.rms_norm(x, (16,), gamma))
        self.same(rooflane.torch.rms_norm(1e-3 * x, (5, 16)), F.rms_norm(1e-3 * x, (5, 16)))

    def test_attention(self):
        ours, theirs = rooflane.torch.scaled_dot_product_attention, F.scaled_dot_product_attention
        q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 5)
        masks = [None, torch.rand(6, 9) > 0.3]
        for lead in ((), (1, 1), (2, 1), (1, 4), (2, 4), (4,)):
            masks += [torch.randn(*lead, 6, 9), torch.randn(*lead, 1, 9), torch.randn(*lead, 6, 1)]
        masks.append(torch.rand(2, 1, 1, 9) > 0.3)
        for mask in masks:
            with self.subTest(mask=None if mask is None else mask.shape):
                self.same(ours(q, k, v, mask), theirs(q, k, v, mask))
                if mask is None or mask.ndim < 4:
                    self.same(ours(q[0], k[0], v[0], mask), theirs(q[0], k[0], v[0], mask))
                few = k[:, :2], v[:, :2]
                self.same(ours(q, *few, mask, enable_gqa=True),
                          theirs(q, *few, mask, enable_gqa=True))
        for keys in (6, 9, 3):  # PyTorch's causal mask begins at the first key
            kept = k[:, :, :keys], v[:, :, :keys]
            self.same(ours(q, *kept, is_causal=True, scale=0.3),
                      theirs(q, *kept, is_causal=True, scale=0.3))

    def test_what_is_refused(self):
        attend, q = rooflane.torch.scaled_dot_product_attention, torch.randn(2, 4, 6, 8)
        for pattern, call in (
                ("dropout_p", lambda: attend(q, q, q, dropout_p=0.5)),
                ("enable_gqa", lambda: attend(q, q[:, :2], q[:, :2])),
                ("allowed is torch.float32", lambda: attend(*3 * [q.bfloat16()])),
                ("3 and 4", lambda: attend(q[0, 0], q[0, 0], q[0, 0])),
                ("attn_mask and is_causal", lambda: attend(q, q, q, q[0, 0], is_causal=True)),
                ("normalized_shape", lambda: rooflane.torch.layer_norm(q, (7,))),
                ("one type", lambda: rooflane.torch.layer_norm(q.half(), (8,), q[0, 0, 0]))):
            with self.subTest(pattern), self.assertRaisesRegex(rooflane.torch.Refused, pattern):
                call()
        with torch.enable_grad(), self.assertRaisesRegex(ValueError, r"torch\.no_grad"):
            rooflane.torch.linear(q.requires_grad_(), torch.ones(3, 8))


class Graphs(unittest.TestCase):
    """torch.compile and torch.export keep the operators."""

    def test_operators_are_what_pytorch_asks_of_them(self):
        x, q = torch.randn(2, 5, 16), torch.randn(2, 4, 6, 8)
        ops = torch.ops.rooflane
        for operator, arguments in (
                (ops.linear, (x, torch.randn(8, 16), torch.randn(8))),
                (ops.layer_norm, (x, [16], None, None, 1e-5)),
                (ops.rms_norm, (x, [16], None, None)),
                (ops.scaled_dot_product_attention, (q, q, q, None, True, None))):
            with self.subTest(str(operator)):
                torch.library.opcheck(operator.default, arguments)

    def test_a_model(self):
        class Block(torch.nn.Module):
            """A layer that calls two of them."""

            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(16, 8)

            def forward(self, x):
                y = rooflane.torch.linear(x, self.inner.weight, self.inner.bias)
                return rooflane.torch.layer_norm(y, (8,))

        model, x = Block(), torch.randn(3, 16)
        with torch.no_grad():
            want = F.layer_norm(model.inner(x), (8,))
            compiled = torch.compile(model, fullgraph=True, backend="eager")
            self.assertTrue(torch.allclose(compiled(x), want, atol=1e-5))
            exported = torch.export.export(model, (x,))
        called = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
        self.assertEqual(called, ["rooflane.linear.default", "rooflane.layer_norm.default"])
        with torch.no_grad():
            self.assertTrue(torch.allclose(exported.module()(x), want, atol=1e-5))


class Models(unittest.TestCase):
    """A user's model as it is."""

    def small(self):
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16),
                                   torch.nn.RMSNorm(16)).eval(), torch.randn(3, 16)

    def test_use_says_what_was_taken_and_what_was_not(self):
        model, x = self.small()
        with torch.no_grad():
            want = model(x)
            with rooflane.torch.use() as used:
                got = model(x)
                model.double()(x.double())
        model.float()
        self.assertTrue(torch.allclose(got, want, atol=1e-5))
        self.assertEqual(dict(used.taken), {"linear": 1, "layer_norm": 1, "rms_norm": 1})
        self.assertEqual(sum(used.refused.values()), 3)
        self.assertRegex(str(used), "linear: 1 call by PyTorch: .*float64")
        with rooflane.torch.use() as used:  # with gradients, which stay right
            model(x).sum().backward()
        self.assertEqual((dict(used.taken), sum(used.refused.values())), ({}, 3))
        self.assertIsNotNone(model[0].weight.grad)
        with torch.no_grad():
            model(x)  # beyond the context nothing is replaced
        self.assertEqual(dict(used.taken), {})

    def test_what_computes_its_products_within_is_named(self):
        attention, x = torch.nn.MultiheadAttention(16, 4).eval(), torch.randn(5, 2, 16)
        with torch.no_grad(), rooflane.torch.use() as used:
            attention(x, x + 1, x)
            attention(x, x, x)
        self.assertIn("within", str(used))
        self.assertEqual(sum(used.refused.values()), 2)

    def test_bench_names_each_layer(self):
        model, x = self.small()
        report = rooflane.torch.bench(model, x, rounds=7)
        self.assertEqual([(row.layer, row.function) for row in report.layers],
                         [("0", "linear"), ("1", "layer_norm"), ("2", "rms_norm")])
        for row in [report.whole, *report.layers]:
            self.assertGreater(row.torch_us, 0)
            self.assertGreater(row.rooflane_us, 0)
            self.assertTrue(row.low <= row.ratio <= row.high)
            self.assertLess(row.difference, 1e-5)
        self.assertIn("whole Sequential", str(report))
        self.assertEqual([len(module._forward_hooks) for module in model.modules()], [0] * 4)
        with self.assertRaisesRegex(ValueError, "rounds: 0"):
            rooflane.torch.bench(model, x, rounds=0)

    def test_the_interval_holds_the_median_as_often_as_it_says(self):
        random = torch.Generator().manual_seed(3)
        for rounds in (7, 15, 30):
            held = 0
            for _ in range(1000):
                low, high = rooflane.torch._interval(torch.rand(rounds, generator=random).tolist())
                held += low <= 0.5 <= high
            self.assertGreater(held, 930)
            self.assertLess(held, 1000)

    def test_models_of_hugging_face(self):
        try:
            import transformers
        except ImportError as error:
            self.skipTest(skip.reason(f"no {error.name}", f"from PyPI: {' '.join(HUGGING_FACE)}"))
        sizes = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256,
                 "num_hidden_layers": 2, "num_attention_heads": 4}
        llama = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(num_key_value_heads=2, **sizes)).eval()
        bert = transformers.BertModel(transformers.BertConfig(**sizes)).eval()
        ids = torch.randint(0, VOCABULARY, (2, 33), generator=torch.Generator().manual_seed(4))
        mask = torch.ones(2, 33, dtype=torch.long)
        mask[1, 20:] = 0
        of_llama = {"linear": 15, "scaled_dot_product_attention": 2}
        of_bert = {"linear": 13, "layer_norm": 5, "scaled_dot_product_attention": 2}
        masked = {"attention_mask": mask}
        for model, named, taken in ((llama, {}, of_llama), (llama, masked, of_llama),
                                    (bert, masked, of_bert)):
            with self.subTest(type(model).__name__, masked=bool(named)), torch.no_grad():
                want = model(ids, **named)[0]
                with rooflane.torch.use() as used:
                    got = model(ids, **named)[0]
                self.assertEqual(dict(used.taken), taken, used)
                seen = mask.bool() if named else torch.ones(2, 33, dtype=torch.bool)
                self.assertTrue(torch.allclose(got[seen], want[seen], rtol=1e-4, atol=1e-5))


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    import rooflane.torch
    import torch
    from torch.nn import functional as F
    skip.main([sys.argv[0], *sys.argv[2:]])
