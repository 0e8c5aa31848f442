"""ONNX Runtime on the CPU: one model per problem, inputs and output bound to the caller's arrays.

Operators are those of the ONNX standard, and of its own where they fuse more; which kernels they
become is the optimiser's choice. GEMM's graphs are in onnx_gemm.py.
"""
from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from peer_workers.formats import BLOCK_BYTES
from peer_workers.kernels import KERNELS
from peer_workers.onnx_gemm import ACCURACY_LEVELS, OWN, Graph, node, ways
from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_attention_options
from peer_workers.problem import Problem
from peer_workers.sampling import undisturbed_run_ns

OPSET = 23       # the first with Attention
IR_VERSION = 11  # the file format that goes with it
# protobuf holds no message beyond 2 GiB; a constant matrix is part of the model.
LARGEST_CONSTANT = (2 << 30) - (1 << 20)


def attention_nodes(p: Problem) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """The standard's Attention. Its is_causal is aligned to the start, ours to the end: they agree
    on squares, other shapes take a mask."""
    inputs, constants = ["q", "k", "v"], {}
    if p.causal and p.q_len != p.kv_len and p.visible(0) < p.kv_len:
        seen = np.tril(np.ones((p.q_len, p.kv_len), bool), p.kv_len - p.q_len)
        constants["mask"] = seen
        inputs.append("mask")
    causal = int(p.causal and p.q_len == p.kv_len)
    node = helper.make_node("Attention", inputs, ["o"], scale=p.scale, is_causal=causal)
    return [node], constants


def activation_nodes(p: Problem) -> list[onnx.NodeProto]:
    """The function, which of silu is two operators, and the product with the gate."""
    value = "activated" if p.gate else "y"
    if p.kind == "silu":
        nodes = [helper.make_node("Sigmoid", ["x"], ["sigmoid"]),
                 helper.make_node("Mul", ["x", "sigmoid"], [value])]
    elif p.kind.startswith("gelu"):
        approximate = "tanh" if p.kind == "gelu_tanh" else "none"
        nodes = [helper.make_node("Gelu", ["x"], [value], approximate=approximate)]
    else:
        nodes = [helper.make_node(p.kind.capitalize(), ["x"], [value])]
    return nodes + ([helper.make_node("Mul", [value, "g"], ["y"])] if p.gate else [])


def norm_ways(p: Problem) -> dict[str, Graph]:
    """A norm; with a residual the runtime's fused operator, or a sum before it."""
    plain, fused = (("LayerNormalization", "SkipLayerNormalization") if p.kernel == "layernorm" else
                    ("RMSNormalization", "SkipSimplifiedLayerNormalization"))
    factors = ["gamma", "beta"] if p.kernel == "layernorm" else ["gamma"]

    def norm(value: str) -> onnx.NodeProto:
        return node(plain, [value, *factors], "y", axis=-1, epsilon=p.eps)

    if not p.values.get("residual"):
        return {"": Graph([norm("x")])}
    return {fused: Graph([node(f"{OWN}/{fused}", ["x", "residual", *factors], "y",
                               epsilon=p.eps)]),
            f"Add {plain}": Graph([node("Add", ["x", "residual"], "sum"), norm("sum")])}


def ways_of(p: Problem, arrays: Arrays, level: int | None) -> dict[str, Graph]:
    """The graphs that compute a problem, by name. Raises Unsupported."""
    if p.kernel == "gemm":
        return ways(p, arrays, level)
    if p.kernel == "attention":
        return {"": Graph(*attention_nodes(p))}
    if p.kernel in ("layernorm", "rmsnorm"):
        return norm_ways(p)
    nodes = {"softmax": lambda: [node("Softmax", ["x"], "y", axis=-1)],
             "add": lambda: [node("Add", ["x", "r"], "y")],
             "activation": lambda: activation_nodes(p)}
    return {"": Graph(nodes[p.kernel]())}


def model_of(p: Problem, arrays: Arrays, graph: Graph) -> bytes:
    """A graph as a serialised model; constants of prepack=1 are part of it."""
    inputs, outputs, constants = [], [], dict(graph.constants)
    for name, array, role in operands(p, arrays, graph):
        if role == "constant":
            constants[name] = array
            continue
        info = helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        (outputs if role == "output" else inputs).append(info)
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name)
                    for name, value in constants.items()]
    whole = helper.make_graph(graph.nodes, p.kernel, inputs, outputs, initializers)
    model = helper.make_model(whole, ir_version=IR_VERSION, opset_imports=[
        helper.make_opsetid("", OPSET), helper.make_opsetid(OWN, 1)])
    return model.SerializeToString()


def operands(p: Problem, arrays: Arrays, graph: Graph) -> list[tuple[str, np.ndarray, str]]:
    """Name, array and role of each operand; Gemm's matrices have no batch axis."""
    drop = p.kernel == "gemm" and p.batch == 1
    return [(tensor.name, array[0] if drop and array.ndim == 3 else array, tensor.role)
            for tensor in p.tensors if tensor.name not in graph.replaced
            for array in [arrays[tensor.name]]]


class OnnxPlan(Plan):
    def __init__(self, problem: Problem, arrays: Arrays, threads: int, graph: Graph):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3  # errors only
        model = model_of(problem, arrays, graph)
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.arrays = arrays  # the binding holds their addresses only
        self.math = graph.math
        bound = operands(problem, arrays, graph)
        if problem.kernel == "gemm" and problem.prepack:
            self.packed_bytes = sum(array.nbytes for array in graph.constants.values())
        for name, array, role in bound:
            if role == "constant":
                self.packed_bytes += array.nbytes
                continue
            bind = self.binding.bind_output if role == "output" else self.binding.bind_input
            bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._output = arrays[problem.output.name]

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def output(self) -> np.ndarray:
        return self._output


def refusal(p: Problem, arrays: Arrays) -> str | None:
    """Why the runtime cannot serve a problem; nothing when it can."""
    if p.kernel == "attention" and p.output.dtype != "float32":
        return "its Attention rounds scores to the operands' type"
    if p.kernel == "attention" and 0 in (p.batch, p.q_len, p.kv_len):
        return "its Attention takes no empty tensors"
    if p.kernel == "gemm" and p.batch == 1 and p.k == 0 and p.beta != 0:
        return "its Gemm forgets beta*c0 when k is 0"
    if p.kernel == "gemm" and p.prepack and arrays["b"].nbytes > LARGEST_CONSTANT:
        return "a model holds no constant beyond 2 GiB"
    return None


class OnnxPeer(Peer):
    kernels = dict.fromkeys(KERNELS, "many")
    dtypes = ("float32", "float16", "int8", "uint8", "int32", "int8_per_channel", *BLOCK_BYTES)
    maths = (*ACCURACY_LEVELS, "int8", "int8-tensor")
    accuracy_level: int | None = None  # of quantised weights; nothing: that of the math

    def library(self) -> str:
        return f"ONNX Runtime {ort.__version__}"

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_attention_options(problem, "ONNX Runtime")
        if reason := refusal(problem, arrays):
            raise Unsupported(f"ONNX Runtime: {reason}")
        plans = {name: OnnxPlan(problem, arrays, threads, graph)
                 for name, graph in ways_of(problem, arrays, self.accuracy_level).items()}
        name = next(iter(plans))
        if len(plans) > 1:
            name = min(plans, key=lambda name: undisturbed_run_ns(plans[name].run))
        if name:
            plans[name].library = f"{self.library()} {name}"
        return plans[name]


class OnnxInt8Peer(OnnxPeer):
    """Quantised weights where fp32 is asked for and a is quantised in the run all the same:
    accuracy level 4, and DynamicQuantizeMatMul."""
    kernels = {"gemm": "many"}
    maths = ("fp32",)
    accuracy_level = ACCURACY_LEVELS["int8-dynamic"]
