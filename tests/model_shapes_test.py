#!/usr/bin/env python3
"""ONNX graphs as model files: what the model computes is what the graph computes, by the onnx
package's reference on the same inputs and weights; every repetition is a loop; sizes that are
missing and files that are broken give one line.

Usage: model_shapes_test.py PROGRAM"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import onnx_environment
import skip

onnx_environment.enter()
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from rooflane.onnx_graph import command  # noqa: E402
from rooflane.onnx_graph.graph import InputError  # noqa: E402
from rooflane.onnx_graph.sizes import Sizes, evaluate  # noqa: E402

import onnx_graphs  # noqa: E402

SCRIPT = onnx_environment.ROOT / "scripts" / "model_shapes.py"
PROGRAM = Path(sys.argv[1]).absolute()


def kernels() -> dict[str, frozenset[str]]:
    listed = json.loads(subprocess.run([PROGRAM, "list", "--json"], capture_output=True, text=True,
                                       check=True).stdout)
    return {kernel["name"]: frozenset(p["name"] for p in kernel["parameters"])
            for kernel in listed["kernels"]}


KERNELS = kernels()


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def save(self, model: onnx.ModelProto) -> Path:
        path = self.folder / "graph.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def convert(self, model: onnx.ModelProto, sizes: Sizes) -> str:
        """The model file's text."""
        out = self.folder / "model.txt"
        stdout, sys.stdout = sys.stdout, open(os.devnull, "w", encoding="utf-8")
        try:
            command.run(self.save(model), sizes, KERNELS, PROGRAM, out)
        finally:
            sys.stdout.close()
            sys.stdout = stdout
        return out.read_text(encoding="utf-8")


def statements(text: str) -> list[list[str]]:
    """Words of each statement but comments."""
    joined = text.replace("\\\n", " ")
    return [line.split() for line in joined.splitlines() if line.strip() and line[0] != "#"]


def kernel_names(text: str) -> list[str]:
    """In the order of the file."""
    return [words[2] for words in statements(text) if words[0] == "step"]


class Numbers(Folder):
    """The model computes what the graph does."""

    def check_same(self, model: onnx.ModelProto, sizes: Sizes, needs: str = "") -> str:
        missing = [kernel for kernel in needs.split() if kernel not in KERNELS]
        if missing:
            self.skipTest(skip.reason(f"no kernel {', '.join(missing)}"))
        text = self.convert(model, sizes)
        saved = self.folder / "saved"
        done = subprocess.run([PROGRAM, "model", self.folder / "model.txt", "--save", saved],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + text)
        bounds = json.loads((saved / "model.json").read_text())["phases"]["run"]["bounds"]
        for weight in model.graph.initializer:
            file = saved / f"{weight.name}.npy"
            if file.exists():
                weight.CopyFrom(numpy_helper.from_array(np.load(file), weight.name))
        inputs = {}
        for value in model.graph.input:
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            inputs[value.name] = np.load(saved / f"run.{value.name}.npy").astype(kind)
        wanted = ReferenceEvaluator(model).run(None, inputs)
        for value, expected in zip(model.graph.output, wanted):
            found = np.load(saved / f"run.{value.name}.npy").reshape(expected.shape)
            error = np.abs(found - expected).max()
            # The reference rounds in float32, too.
            self.assertLessEqual(error, 2 * bounds[value.name] + 1e-6, value.name + "\n" + text)
            self.assertGreater(np.abs(expected).max(), 0.01)
        return text

    def test_products_however_operands_lie(self) -> None:
        text = self.check_same(onnx_graphs.products().model(), Sizes())
        self.assertIn("gemm alpha=0.5 trans_b=1 prepack=1 beta=2 a=x[1].view(15, 4)", text)
        self.assertIn("repeat i = 2", text)

    def test_encoder_with_a_mask_for_each_of_the_batch(self) -> None:
        text = self.check_same(onnx_graphs.encoder().model(), Sizes(batch=2, length=5),
                               "embed add activation")
        layer = ["gemm", "gemm", "gemm", "attention", "gemm", "add", "layernorm", "gemm",
                 "activation", "gemm", "add", "layernorm"]
        self.assertEqual(kernel_names(text), ["embed", "layernorm", *layer, "activation"])
        self.assertIn("repeat layer = 2", text)
        self.assertIn("weight layer.{layer}.up.weight [24, 40] fan=24", text)
        self.assertIn("100.00 % of", text)

    def test_decoder_with_rotation_shared_keys_and_a_computed_mask(self) -> None:
        text = self.check_same(onnx_graphs.decoder().model(), Sizes(batch=1, length=5),
                               "rmsnorm rope activation add")
        self.assertEqual(sorted(kernel_names(text)), sorted(
            ["rmsnorm"] * 2 + ["gemm"] * 7 + ["rope"] * 2 + ["attention", "activation"] +
            ["add"] * 2))
        self.assertIn("attention causal=1", text)
        self.assertIn("kind=silu gate=1", text)

    def test_image_with_its_channels_last_where_a_norm_wants_them(self) -> None:
        model = onnx_graphs.image().model()
        # Factors of batch normalisation are folded into weights: none but 1 here.
        for weight in model.graph.initializer:
            if weight.name.startswith("batch."):
                values = np.full(8, weight.name[-1] in "03", np.float32)
                weight.CopyFrom(numpy_helper.from_array(values, weight.name))
        model.graph.node[1].attribute.append(onnx.helper.make_attribute("epsilon", 0.0))
        text = self.check_same(model, Sizes(batch=2))
        self.assertEqual(kernel_names(text), ["gemm", "gemm", "layernorm"])
        self.assertIn("c0=second.bias", text)


    def test_patches_and_the_best_of_a_row(self) -> None:
        for batch in (1, 2):
            text = self.check_same(onnx_graphs.patches().model(), Sizes(batch=batch),
                                   "im2patch topk")
            self.assertEqual(kernel_names(text), ["im2patch", "gemm", "topk"])
            self.assertIn("im2patch patch=4 image=x[:, :, :, 0:8]", text)
            self.assertIn(f"a=cut.patches.view({6 * batch}, 48)", text)


class Statements(Folder):
    def test_a_cache_is_appended_to(self) -> None:
        text = self.convert(onnx_graphs.cached().model(), Sizes(symbols={"past": 6}))
        self.assertEqual(kernel_names(text), ["gemm"] * 3 + ["attention"])
        self.assertIn("state present_k [1, 7, 2, 4]", text)
        self.assertIn("c=present_k[:, 6:7]", text)
        self.assertIn("k=present_k.permute(0, 2, 1, 3)", text)
        self.assertIn("100.00 % of", text)

    def test_onnx_runtimes_own_operators_are_written_out(self) -> None:
        text = self.convert(onnx_graphs.fused().model(), Sizes(batch=2, length=3))
        self.assertEqual([name for name in kernel_names(text) if name not in ("add", "activation")],
                         ["gemm", "attention", "layernorm"])
        self.assertRegex(text, r"# MatMulNBits +1 .* no kernel")

    def test_a_language_model_decodes_behind_its_past(self) -> None:
        if not {"rmsnorm", "rope", "add"} <= KERNELS.keys():
            self.skipTest(skip.reason("no kernel rmsnorm, rope or add"))
        text = self.convert(onnx_graphs.decoding().model(),
                            Sizes(batch=1, length=1, symbols={"past": 7}))
        self.assertEqual(kernel_names(text), ["rmsnorm", "gemm", "gemm", "gemm", "rope", "rope",
                                              "attention", "gemm", "add", "rmsnorm"])
        self.assertIn("rope style=half offset=7 x=k.heads y=present.k[:, :, 7:8]", text)
        self.assertIn("output sum [1, 1, 16]", text)
        self.assertIn("100.00 % of", text)

    def test_what_is_left_is_listed_with_its_share(self) -> None:
        g = onnx_graphs.Graph("mixed")
        x = g.input("x", [1, 4, 8, 8])
        wide = g.add("Conv", [x, g.weight("wide", 4, 4, 3, 3)], "wide_", pads=[1, 1, 1, 1])
        g.output(g.add("MatMul", [wide, g.weight("narrow", 8, 36)], "y"))
        text = self.convert(g.model(), Sizes())
        self.assertIn("50.00 % of 36.9 kFLOP", text)
        self.assertRegex(text, r"# Conv +1 +50.00 .* kernels that overlap, pad or have groups")
        self.assertIn("input wide_ [1, 4, 8, 8]", text)

    def test_a_branch_whose_condition_is_known_is_taken(self) -> None:
        def branch(size: int) -> onnx.GraphProto:
            g = onnx_graphs.Graph(f"branch_{size}")
            g.output(g.add("MatMul", ["x", g.weight("w", 4, size)], "inner"))
            return g.model().graph

        g = onnx_graphs.Graph("branches")
        g.input("x", [3, 4])
        rate = g.input("rate", [], onnx_graphs.INT64)
        wanted = g.constant("wanted", np.array(16000, np.int64))
        is_wanted = g.add("Equal", [rate, wanted], "is_wanted")
        g.output(g.add("If", [is_wanted], "y", then_branch=branch(5), else_branch=branch(6)))
        text = self.convert(g.model(), Sizes(data={"rate": np.array([16000.0])}))
        self.assertIn(".1 [4, 5]", text)
        text = self.convert(g.model(), Sizes(data={"rate": np.array([8000.0])}))
        self.assertIn(".1 [4, 6]", text)
        with self.assertRaisesRegex(InputError, "no node of it is a kernel's"):
            self.convert(g.model(), Sizes())

    def test_symbols_are_evaluated(self) -> None:
        known = {"past": 5, "len": 2}
        self.assertEqual(evaluate("past + len", known), 7)
        self.assertEqual(evaluate("floor(past/len) * 3 - 1", known), 5)
        for text in ("past / len", "past / 0", "other", "len()", "'x'", "1.5", "(" * 999, ""):
            self.assertIsNone(evaluate(text, known), text)


class Refusals(Folder):
    def refused(self, pattern: str, model: onnx.ModelProto, sizes: Sizes | None = None) -> None:
        with self.assertRaisesRegex(InputError, pattern):
            self.convert(model, sizes or Sizes(batch=1, length=3))

    def test_sizes_without_a_value_are_named(self) -> None:
        model = onnx_graphs.encoder(1).model()
        self.refused(r"without a value: batch \(of ids, mask\); len \(of ids, mask\); give --dim",
                     model, Sizes())
        self.refused(r"without a value: len \(of", model, Sizes(batch=1))
        self.refused("--dim width: no such symbol; the inputs have batch, len", model,
                     Sizes(batch=1, length=3, symbols={"width": 3}))
        self.refused("no input 'x'", model, Sizes(shapes={"x": (1,)}))
        self.refused("--shape ids: 1 axes, the file has 2", model, Sizes(shapes={"ids": (1,)}))
        self.refused("allowed are axes of 0 or more", model, Sizes(batch=10**9, length=10**9))

    def test_graphs_that_make_no_sense(self) -> None:
        good = onnx_graphs.products().model()
        broken = onnx.ModelProto()
        broken.CopyFrom(good)
        broken.graph.node[1].input[0] = "nowhere"
        self.refused("reads 'nowhere', which nothing before it writes", broken)
        broken.CopyFrom(good)
        broken.graph.node[1].output[0] = broken.graph.node[0].output[0]
        self.refused("is there twice", broken)
        broken.CopyFrom(good)
        broken.graph.initializer[0].dims[0] = 2**40
        self.refused("allowed are axes of 0 or more", broken)
        broken.CopyFrom(good)
        broken.graph.initializer[0].dims[0] += 1
        self.refused("do not fit", broken)
        broken.CopyFrom(good)
        broken.graph.output[0].name = "nowhere"
        self.refused("output nowhere is written by no node", broken)
        self.refused("holds no ONNX graph", onnx.ModelProto())

    def test_functions_that_call_one_another(self) -> None:
        model = onnx_graphs.products().model()
        call = onnx.helper.make_node("f", ["x"], ["y"], domain="own")
        model.functions.append(onnx.helper.make_function(
            "own", "f", ["x"], ["y"], [call], [onnx.helper.make_opsetid("own", 1)]))
        model.graph.node.append(onnx.helper.make_node("f", ["x"], ["loop"], domain="own"))
        model.opset_import.append(onnx.helper.make_opsetid("own", 1))
        self.refused("function f calls itself", model)

    def test_broken_files_are_refused_or_read(self) -> None:
        """Cut and altered anywhere: nothing but InputError comes out."""
        whole = onnx_graphs.encoder(1).model().SerializeToString()
        random = np.random.default_rng(7)
        path = self.folder / "broken.onnx"
        refused = 0
        for round_ in range(150):
            data = bytearray(whole)
            if round_ % 3 == 0:
                data = data[:random.integers(len(data))]
            else:
                for at in random.integers(len(data), size=1 + round_ % 8):
                    data[at] = random.integers(256)
            path.write_bytes(data)
            try:
                command.mapped_graph(path, Sizes(batch=1, length=3), KERNELS)
            except InputError as error:
                refused += 1
                self.assertNotIn("\n", str(error))
        self.assertGreater(refused, 50)


class CommandLine(Folder):
    def call(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, SCRIPT, "--rooflane", PROGRAM, *words],
                              capture_output=True, text=True, check=False)

    def test_the_file_runs(self) -> None:
        path = self.save(onnx_graphs.products().model())
        out = self.folder / "products.txt"
        done = self.call(path, "--out", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("% of FLOPs", done.stdout)
        ran = subprocess.run([PROGRAM, "model", out, "--max-time", "0.1", "--ceilings-time", "0.2"],
                             capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("PASSED", ran.stdout)
        without = self.call(path)
        self.assertEqual(without.stdout.replace("graph", "products"),
                         out.read_text().replace("graph", "products"))
        self.assertIn("% of FLOPs", without.stderr)

    def test_mistakes_give_one_line(self) -> None:
        path = self.save(onnx_graphs.encoder(1).model())
        for words, expected in (
                ((path,), "sizes without a value"),
                ((self.folder / "none.onnx",), "No such file"),
                ((SCRIPT,), "is not an ONNX file"),
                ((path, "--batch", "1", "--len", "2", "--out", self.folder / "no" / "m.txt"),
                 "no such folder"),
                ((path, "--dim", "len=x"), "is not a size"),
                ((path, "--value", "mask=a"), "is not a list of numbers")):
            done = self.call(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr.splitlines()[-1])
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    skip.main([sys.argv[0], *sys.argv[2:]])
