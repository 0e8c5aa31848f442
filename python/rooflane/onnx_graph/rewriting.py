"""Makes a graph plainer before patterns are looked for: nodes that change no number in float32 go,
and several names of one thing become one."""
from __future__ import annotations

from .graph import OWN, Graph, Node
from .reading import FLOATS


def simplify(graph: Graph) -> None:
    """Removes what computes nothing."""
    graph.substitute(_aliases(graph))
    graph.substitute(_folded_norms(graph))
    for node in graph.nodes:
        if node.op == "Sum" and len(node.inputs) == 2:
            node.op = "Add"
        if node.op == "Swish" or (node.op == "ai.onnx.Silu"):
            node.op, node.attributes = OWN + "activation", {"kind": "silu"}


def _aliases(graph: Graph) -> dict[str, str]:
    """Outputs that are an input under another name: identities, dropout, conversions between
    floats, quantised there and back."""
    aliases: dict[str, str] = {}
    for node in graph.nodes:
        if not node.inputs or not node.outputs:
            continue
        source, result = node.input(0), node.outputs[0]
        if source not in graph.values or graph.values[result].is_weight != \
                graph.values[source].is_weight:
            continue
        if node.op in ("Identity", "Dropout"):
            aliases[result] = source
        elif node.op == "Cast" and _is_float(graph, source) and _is_float(graph, result):
            aliases[result] = source
        elif node.op == "DequantizeLinear":
            before = graph.producer(source)
            if before is not None and before.op in ("QuantizeLinear", "DynamicQuantizeLinear"):
                aliases[result] = before.input(0)
        elif node.op in ("Sum", "Max", "Min", "Mean", "Concat") and len(node.inputs) == 1:
            aliases[result] = source
    return aliases


def _is_float(graph: Graph, name: str) -> bool:
    return graph.values[name].element in FLOATS


def _folded_norms(graph: Graph) -> dict[str, str]:
    """Batch normalisation behind a convolution: when inferring it is part of the weights."""
    aliases: dict[str, str] = {}
    for node in graph.nodes:
        before = graph.producer(node.input(0)) if node.op == "BatchNormalization" else None
        if before is not None and before.op in ("Conv", "ConvTranspose", "Gemm") and \
                graph.sole_reader(node.input(0)) is node:
            aliases[node.outputs[0]] = node.input(0)
    return aliases


def last_axis_only(graph: Graph, node: Node) -> bool:
    """Whether a reduction is over the last axis alone and keeps it, as 1."""
    shape = graph.shape(node.input(0))
    axes = graph.integers(node, "axes", 1)
    return bool(shape) and axes is not None and len(axes) == 1 and \
        axes[0] in (-1, len(shape) - 1) and node.get("keepdims", 1) == 1


def is_vector(graph: Graph, name: str, length: int) -> bool:
    """Whether a value is one number for each column."""
    shape = graph.shape(name)
    return bool(shape) and shape[-1] == length and all(axis == 1 for axis in shape[:-1])
