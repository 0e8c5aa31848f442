"""Small ONNX graphs for model_shapes_test.py, in the decomposed form that exporters write."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """A graph under construction; methods add nodes and return the names of their results."""

    def __init__(self, name: str, opset: int = 17):
        self.name = name
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(1)
        self.domains = {""}

    def input(self, name: str, axes: Sequence[int | str], kind: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, axes))
        return name

    def output(self, name: str, kind: int = FLOAT) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, kind, None))
        return name

    def weight(self, name: str, *shape: int) -> str:
        values = self.random.uniform(-0.5, 0.5, shape).astype(np.float32)
        return self.constant(name, values)

    def constant(self, name: str, values: np.ndarray | Sequence[int] | float) -> str:
        array = np.asarray(values)
        array = array.astype(np.float32 if array.dtype.kind == "f" else array.dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, inputs: Sequence[str], name: str, domain: str = "",
            **attributes: object) -> str:
        self.domains.add(domain)
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"/{name}/{op}",
                                           domain=domain, **attributes))
        return name

    def scalar(self, value: float) -> str:
        name = f"scalar_{len(self.weights)}"
        return self.constant(name, np.float32(value))

    def ints(self, *values: int) -> str:
        name = f"ints_{len(self.weights)}"
        return self.constant(name, np.array(values, np.int64))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid(domain, 1 if domain else self.opset)
                  for domain in sorted(self.domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    # What exporters make of layers.

    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = True) -> str:
        product = self.add("MatMul", [x, self.weight(f"{name}.weight", inputs, outputs)],
                           f"{name}.product" if bias else name)
        return self.add("Add", [self.weight(f"{name}.bias", outputs), product], name) if bias \
            else product

    def layer_norm(self, x: str, name: str, width: int) -> str:
        mean = self.add("ReduceMean", [x], f"{name}.mean", axes=[-1])
        centred = self.add("Sub", [x, mean], f"{name}.centred")
        square = self.add("Pow", [centred, self.scalar(2)], f"{name}.square")
        variance = self.add("ReduceMean", [square], f"{name}.variance", axes=[-1])
        shifted = self.add("Add", [variance, self.scalar(1e-5)], f"{name}.shifted")
        root = self.add("Sqrt", [shifted], f"{name}.root")
        normed = self.add("Div", [centred, root], f"{name}.normed")
        scaled = self.add("Mul", [normed, self.weight(f"{name}.gamma", width)], f"{name}.scaled")
        return self.add("Add", [scaled, self.weight(f"{name}.beta", width)], name)

    def rms_norm(self, x: str, name: str, width: int) -> str:
        square = self.add("Pow", [x, self.scalar(2)], f"{name}.square")
        mean = self.add("ReduceMean", [square], f"{name}.mean", axes=[-1])
        shifted = self.add("Add", [mean, self.scalar(1e-6)], f"{name}.shifted")
        root = self.add("Sqrt", [shifted], f"{name}.root")
        inverse = self.add("Reciprocal", [root], f"{name}.inverse")
        normed = self.add("Mul", [x, inverse], f"{name}.normed")
        return self.add("Mul", [self.weight(f"{name}.gamma", width), normed], name)

    def gelu(self, x: str, name: str) -> str:
        part = self.add("Div", [x, self.scalar(math.sqrt(2))], f"{name}.part")
        erf = self.add("Erf", [part], f"{name}.erf")
        more = self.add("Add", [erf, self.scalar(1)], f"{name}.more")
        product = self.add("Mul", [x, more], f"{name}.double")
        return self.add("Mul", [product, self.scalar(0.5)], name)

    def heads(self, x: str, name: str, heads: int, head_dim: int,
              order: Sequence[int] = (0, 2, 1, 3)) -> str:
        """With a shape that is computed from x's, as exporters do."""
        shape = self.add("Shape", [x], f"{name}.shape")
        lengths = self.add("Slice", [shape, self.ints(0), self.ints(2)], f"{name}.lengths")
        wanted = self.add("Concat", [lengths, self.ints(heads, head_dim)], f"{name}.wanted", axis=0)
        split = self.add("Reshape", [x, wanted], f"{name}.split")
        return self.add("Transpose", [split], name, perm=list(order))

    def merged(self, x: str, name: str, width: int) -> str:
        moved = self.add("Transpose", [x], f"{name}.moved", perm=[0, 2, 1, 3])
        return self.add("Reshape", [moved, self.ints(0, 0, width)], name)


def encoder(layers: int = 2, width: int = 24, heads: int = 3, hidden: int = 40) -> Graph:
    """BERT's make: embeddings, post-norm, an added mask for each of the batch, GELU by erf."""
    g = Graph("encoder")
    ids = g.input("ids", ["batch", "len"], INT64)
    mask = g.input("mask", ["batch", 1, 1, "len"])
    x = g.add("Gather", [g.weight("words", 17, width), ids], "embedded")
    x = g.layer_norm(x, "embedded_norm", width)
    for i in range(layers):
        name = f"layer.{i}"
        q, k, v = (g.linear(x, f"{name}.{part}", width, width) for part in "qkv")
        q = g.heads(q, f"{name}.queries", heads, width // heads)
        k = g.heads(k, f"{name}.keys", heads, width // heads, (0, 2, 3, 1))
        v = g.heads(v, f"{name}.values", heads, width // heads)
        scores = g.add("MatMul", [q, k], f"{name}.scores")
        scaled = g.add("Div", [scores, g.scalar(math.sqrt(width / heads))], f"{name}.scaled")
        masked = g.add("Add", [scaled, mask], f"{name}.masked")
        weights = g.add("Softmax", [masked], f"{name}.weights", axis=-1)
        heard = g.merged(g.add("MatMul", [weights, v], f"{name}.heard"), f"{name}.merged", width)
        moved = g.linear(heard, f"{name}.proj", width, width)
        x = g.layer_norm(g.add("Add", [moved, x], f"{name}.sum_1"), f"{name}.norm_1", width)
        wide = g.gelu(g.linear(x, f"{name}.up", width, hidden), f"{name}.gelu")
        down = g.linear(wide, f"{name}.down", hidden, width)
        x = g.layer_norm(g.add("Add", [down, x], f"{name}.sum_2"), f"{name}.norm_2", width)
    g.output(g.add("Tanh", [x], "y"))
    return g


def decoder(width: int = 24, heads: int = 6, kv_heads: int = 2, hidden: int = 20,
            length: int = 5) -> Graph:
    """Llama's make: RMSNorm, rotary positions, heads that share keys, a causal mask that is
    computed, SwiGLU."""
    g = Graph("decoder")
    head_dim = width // heads
    x = g.input("x", ["batch", "len", width])
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, head_dim, 2) / head_dim)
    angle = np.concatenate([angle, angle], axis=1)[None, None]
    g.constant("cos", np.cos(angle))
    g.constant("sin", np.sin(angle))
    normed = g.rms_norm(x, "norm_1", width)
    q = _rotated(g, g.heads(g.linear(normed, "q", width, width, False), "queries", heads, head_dim),
                 "rotated_q", head_dim)
    kv_width = kv_heads * head_dim
    k = _rotated(g, g.heads(g.linear(normed, "k", width, kv_width, False), "keys", kv_heads,
                            head_dim), "rotated_k", head_dim)
    v = g.heads(g.linear(normed, "v", width, kv_width, False), "values", kv_heads, head_dim)
    k, v = (_repeated(g, one, heads, kv_heads, head_dim, length) for one in (k, v))
    keys = g.add("Transpose", [k], "keys_t", perm=[0, 1, 3, 2])
    scores = g.add("MatMul", [q, keys], "scores")
    scaled = g.add("Mul", [scores, g.scalar(1 / math.sqrt(head_dim))], "scaled")
    square = g.add("ConstantOfShape", [g.ints(1, 1, length, length)], "square",
                   value=numpy_helper.from_array(np.array([-1e9], np.float32)))
    mask = g.add("Trilu", [square, g.ints(1)], "triangle", upper=1)
    masked = g.add("Add", [scaled, mask], "masked")
    weights = g.add("Softmax", [masked], "weights", axis=-1)
    heard = g.merged(g.add("MatMul", [weights, v], "heard"), "merged", width)
    x = g.add("Add", [x, g.linear(heard, "proj", width, width, False)], "sum_1")
    normed = g.rms_norm(x, "norm_2", width)
    gate = g.linear(normed, "gate", width, hidden, False)
    silu = g.add("Mul", [gate, g.add("Sigmoid", [gate], "sigmoid")], "silu")
    wide = g.add("Mul", [silu, g.linear(normed, "up", width, hidden, False)], "swiglu")
    g.output(g.add("Add", [x, g.linear(wide, "down", hidden, width, False)], "y"))
    return g


def _rotated(g: Graph, x: str, name: str, head_dim: int) -> str:
    half = head_dim // 2
    first = g.add("Slice", [x, g.ints(0), g.ints(half), g.ints(3)], f"{name}.first")
    second = g.add("Slice", [x, g.ints(half), g.ints(2**62), g.ints(3)], f"{name}.second")
    negative = g.add("Neg", [second], f"{name}.negative")
    swapped = g.add("Concat", [negative, first], f"{name}.swapped", axis=-1)
    return g.add("Add", [g.add("Mul", [x, "cos"], f"{name}.even"),
                         g.add("Mul", [swapped, "sin"], f"{name}.odd")], name)


def _repeated(g: Graph, x: str, heads: int, kv_heads: int, head_dim: int, length: int) -> str:
    lone = g.add("Unsqueeze", [x, g.ints(2)], f"{x}.lone")
    wide = g.add("Expand", [lone, g.ints(1, kv_heads, heads // kv_heads, length, head_dim)],
                 f"{x}.wide")
    return g.add("Reshape", [wide, g.ints(0, heads, length, head_dim)], f"{x}.repeated")


def products() -> Graph:
    """Products of every kind: operands transposed, batches that are none by strides, factors."""
    g = Graph("products")
    x = g.input("x", [2, 3, 5, 4])
    z = g.input("z", [3, 6, 4])
    transposed = g.add("Transpose", [z], "transposed", perm=[0, 2, 1])
    g.output(g.add("MatMul", [x, transposed], "broadcast"))  # the batch repeats b
    moved = g.add("Transpose", [x], "moved", perm=[1, 0, 2, 3])
    g.output(g.add("MatMul", [moved, g.weight("one", 4, 7)], "shared"))
    rows = g.add("Gather", [x, g.constant("first", np.array(1, np.int64))], "rows", axis=0)
    flat = g.add("Reshape", [rows, g.ints(15, 4)], "flat")
    g.output(g.add("Gemm", [flat, g.weight("linear", 6, 4), g.weight("bias", 6)], "gemm", alpha=0.5,
                   beta=2.0, transB=1))
    part = g.add("Slice", [x, g.ints(1), g.ints(3), g.ints(2)], "part")
    tripled = g.add("MatMul", [part, g.weight("two", 3, 4, 2)], "unscaled")
    g.output(g.add("Mul", [tripled, g.scalar(3)], "tripled"))
    soft = g.add("Softmax", [moved], "soft", axis=-1)
    g.output(soft)
    return g


def image() -> Graph:
    """Convolutions of one point, batch normalisation, channels as the last axis of a norm."""
    g = Graph("image")
    x = g.input("x", ["batch", 6, 4, 3])
    first = g.add("Conv", [x, g.weight("first.weight", 8, 6, 1, 1)], "first.raw",
                  kernel_shape=[1, 1])
    columns = [g.weight(f"batch.{i}", 8) for i in range(3)]
    columns.append(g.constant("batch.3", np.ones(8, np.float32)))
    first = g.add("BatchNormalization", [first, *columns], "first")
    second = g.add("Conv", [first, g.weight("second.weight", 10, 8, 1, 1),
                            g.weight("second.bias", 10)], "second", kernel_shape=[1, 1])
    flat = g.add("Reshape", [second, g.ints(0, 10, 12)], "flat")
    tokens = g.add("Transpose", [flat], "tokens", perm=[0, 2, 1])
    g.output(g.layer_norm(tokens, "norm", 10))
    return g


def patches(channels: int = 3, patch: int = 4, width: int = 10) -> Graph:
    """The first layer of a vision transformer, and the best of its outputs."""
    g = Graph("patches")
    x = g.input("x", ["batch", channels, 3 * patch, 2 * patch + 1])
    cut = g.add("Conv", [x, g.weight("weight", width, channels, patch, patch),
                         g.weight("bias", width)], "cut", kernel_shape=[patch, patch],
                strides=[patch, patch])
    flat = g.add("Reshape", [cut, g.ints(0, width, -1)], "flat")
    tokens = g.output(g.add("Transpose", [flat], "tokens", perm=[0, 2, 1]))
    g.output(g.add("ArgMax", [tokens], "best", axis=-1, keepdims=0), INT64)
    return g


def cached(width: int = 8, heads: int = 2) -> Graph:
    """A token behind others; their keys and values are the inputs `past`."""
    g = Graph("cached")
    x = g.input("x", [1, 1, width])
    head_dim = width // heads
    split = {}
    for part in "qkv":
        split[part] = g.heads(g.linear(x, part, width, width), f"{part}_heads", heads, head_dim)
    for part in "kv":
        past = g.input(f"past_{part}", [1, heads, "past", head_dim])
        split[part] = g.output(g.add("Concat", [past, split[part]], f"present_{part}", axis=2))
    keys = g.add("Transpose", [split["k"]], "keys_t", perm=[0, 1, 3, 2])
    scores = g.add("MatMul", [split["q"], keys], "scores")
    weights = g.add("Softmax", [scores], "weights", axis=-1)
    g.output(g.merged(g.add("MatMul", [weights, split["v"]], "heard"), "y", width))
    return g


def fused(width: int = 16, heads: int = 2) -> Graph:
    """ONNX Runtime's own operators."""
    ms = "com.microsoft"
    g = Graph("fused")
    x = g.input("x", ["batch", "len", width])
    heard = g.add("Attention", [x, g.weight("qkv.weight", width, 3 * width),
                                g.weight("qkv.bias", 3 * width)], "heard", ms, num_heads=heads)
    normed = g.add("SkipLayerNormalization", [heard, x, g.weight("gamma", width),
                                              g.weight("beta", width)], "normed", ms)
    bits = g.add("MatMulNBits", [normed, "packed", "scales"], "wide", ms, N=32, K=width, bits=4,
                 block_size=16)
    g.constant("packed", np.zeros((32, 1, 8), np.uint8))
    g.weight("scales", 32)
    g.output(g.add("FastGelu", [bits, g.weight("bias", 32)], "y", ms))
    return g


def decoding(width: int = 16, heads: int = 2, kv_heads: int = 1) -> Graph:
    """A step of a language model, as ONNX Runtime's generator writes it."""
    ms = "com.microsoft"
    g = Graph("decoding")
    x = g.input("x", ["batch", "len", width])
    head_dim = width // heads
    normed = g.add("SimplifiedLayerNormalization", [x, g.weight("gamma", width)], "normed",
                   epsilon=1e-5)
    q = g.linear(normed, "q", width, width, False)
    k, v = (g.linear(normed, part, width, kv_heads * head_dim, False) for part in "kv")
    past = [g.input(f"past.{part}", ["batch", kv_heads, "past", head_dim]) for part in "kv"]
    lengths = [g.input("lengths", ["batch"], TensorProto.INT32),
               g.input("total", [], TensorProto.INT32)]
    g.domains.add(ms)
    g.nodes.append(helper.make_node(
        "GroupQueryAttention", [q, k, v, *past, *lengths, "cos", "sin"],
        ["heard", g.output("present.k"), g.output("present.v")], name="/attention", domain=ms,
        num_heads=heads, kv_num_heads=kv_heads, do_rotary=1))
    g.weight("cos", 64, head_dim // 2)
    g.weight("sin", 64, head_dim // 2)
    moved = g.linear("heard", "proj", width, width, False)
    g.nodes.append(helper.make_node(
        "SkipSimplifiedLayerNormalization", [x, moved, "gamma"],
        [g.output("y"), "", "", g.output("sum")], name="/norm", domain=ms))
    return g
