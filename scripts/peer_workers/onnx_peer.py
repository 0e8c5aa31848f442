"""ONNX Runtime on the CPU: one model per problem, inputs and output bound to the caller's arrays.

Operators are those of the ONNX standard; which kernels they become is the optimiser's choice.
"""
from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from peer_workers.kernels import KERNELS
from peer_workers.peer import Arrays, Peer, Plan, Unsupported, no_attention_options, no_epilogue
from peer_workers.problem import Problem

OPSET = 23       # the first with Attention
IR_VERSION = 11  # the file format that goes with it
# protobuf holds no message beyond 2 GiB; a constant matrix is part of the model.
LARGEST_CONSTANT = (2 << 30) - (1 << 20)


def gemm_nodes(p: Problem) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Gemm for a single matrix; MatMul, which knows batches, for several."""
    if p.batch == 1:
        inputs = ["a", "b"] + (["c0"] if p.beta != 0 else [])
        return [helper.make_node("Gemm", inputs, ["c"], alpha=p.alpha, beta=p.beta,
                                 transA=p.trans_a, transB=p.trans_b)], {}
    nodes, constants = [], {}
    names = {"a": "a", "b": "b"}
    for name, transposed in (("a", p.trans_a), ("b", p.trans_b)):
        if transposed:
            names[name] = f"{name}_t"
            nodes.append(helper.make_node("Transpose", [name], [names[name]], perm=[0, 2, 1]))
    steps = ["product"] + (["scaled"] if p.alpha != 1 else []) + (["sum"] if p.beta != 0 else [])
    outputs = dict(zip(steps, steps[:-1] + ["c"]))
    nodes.append(helper.make_node("MatMul", [names["a"], names["b"]], [outputs["product"]]))
    if p.alpha != 1:
        constants["alpha"] = np.float32(p.alpha)
        nodes.append(helper.make_node("Mul", ["product", "alpha"], [outputs["scaled"]]))
    if p.beta != 0:
        constants["beta"] = np.float32(p.beta)
        nodes.append(helper.make_node("Mul", ["c0", "beta"], ["scaled_c0"]))
        nodes.append(helper.make_node("Add", [steps[-2], "scaled_c0"], ["c"]))
    return nodes, constants


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


def model_of(p: Problem, arrays: Arrays) -> bytes:
    """The problem as a serialised model; constants of prepack=1 are part of it."""
    if p.kernel == "gemm":
        nodes, constants = gemm_nodes(p)
    elif p.kernel == "softmax":
        nodes, constants = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {}
    elif p.kernel == "layernorm":
        nodes, constants = [helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["y"],
                                             axis=-1, epsilon=p.eps)], {}
    elif p.kernel == "rmsnorm":
        nodes, constants = [helper.make_node("RMSNormalization", ["x", "gamma"], ["y"], axis=-1,
                                             epsilon=p.eps)], {}
    elif p.kernel == "add":
        nodes, constants = [helper.make_node("Add", ["x", "r"], ["y"])], {}
    elif p.kernel == "activation":
        nodes, constants = activation_nodes(p), {}
    else:
        nodes, constants = attention_nodes(p)
    inputs, outputs = [], []
    for name, array, role in operands(p, arrays):
        if role == "constant":
            constants[name] = array
            continue
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        (outputs if role == "output" else inputs).append(info)
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name)
                    for name, value in constants.items()]
    graph = helper.make_graph(nodes, p.kernel, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                              ir_version=IR_VERSION)
    return model.SerializeToString()


def operands(p: Problem, arrays: Arrays) -> list[tuple[str, np.ndarray, str]]:
    """Name, array and role of each operand; Gemm's matrices have no batch axis."""
    drop = p.kernel == "gemm" and p.batch == 1
    return [(tensor.name, arrays[tensor.name][0] if drop else arrays[tensor.name], tensor.role)
            for tensor in p.tensors]


class OnnxPlan(Plan):
    def __init__(self, problem: Problem, arrays: Arrays, threads: int):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3  # errors only
        model = model_of(problem, arrays)
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.arrays = arrays  # the binding holds their addresses only
        for name, array, role in operands(problem, arrays):
            if role == "constant":
                self.packed_bytes += array.nbytes
                continue
            bind = self.binding.bind_output if role == "output" else self.binding.bind_input
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        self._output = arrays[problem.output.name]

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def output(self) -> np.ndarray:
        return self._output


def refusal(p: Problem, arrays: Arrays) -> str | None:
    """Why the runtime cannot serve a problem; nothing when it can."""
    if p.kernel == "attention" and 0 in (p.batch, p.q_len, p.kv_len):
        return "its Attention takes no empty tensors"
    if p.kernel == "gemm" and p.batch == 1 and p.k == 0 and p.beta != 0:
        return "its Gemm forgets beta*c0 when k is 0"
    if p.kernel == "gemm" and p.prepack and arrays["b"].nbytes > LARGEST_CONSTANT:
        return "a model holds no constant beyond 2 GiB"
    return None


class OnnxPeer(Peer):
    kernels = dict.fromkeys(KERNELS, "many")

    def library(self) -> str:
        return f"ONNX Runtime {ort.__version__}"

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_attention_options(problem, "ONNX Runtime")
        no_epilogue(problem, "ONNX Runtime")
        if reason := refusal(problem, arrays):
            raise Unsupported(f"ONNX Runtime: {reason}")
        return OnnxPlan(problem, arrays, threads)
