"""ONNX files, read with care: whatever is wrong with one is an InputError. Weights are known by
their shapes; what lies in other files beside it is never opened."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper

from .graph import InputError, Value
from .sizes import check_shape

# Values as large as these are kept where nodes may compute shapes or masks from them: integers and
# flags up to a mask of 2048 by 2048, floats up to what a normalisation scales by.
MOST_INTEGERS = 2**22
MOST_FLOATS = 2**14
MOST_NODES = 200_000

FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16,
          onnx.TensorProto.DOUBLE}


def read_model(path: Path) -> onnx.ModelProto:
    """The file, with its own functions written out. Raises InputError."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (DecodeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is not an ONNX file, or only a part of one") from error
    if not model.graph.node or not model.opset_import:
        raise InputError(f"{path} holds no ONNX graph")
    if not _is_text(model):
        raise InputError(f"{path}: a name in it is not UTF-8")
    if model.functions:
        _require_finite(path, model)
        model = onnx.inliner.inline_local_functions(model)
    if len(model.graph.node) > MOST_NODES:
        raise InputError(f"{path}: {len(model.graph.node)} nodes, allowed are {MOST_NODES}")
    return model


def _is_text(message: Message) -> bool:
    """Whether all strings are: the parser lets others through."""
    for field, value in message.ListFields():
        values = value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) \
            else [value]
        if field.type == FieldDescriptor.TYPE_STRING:
            if not all(isinstance(one, str) for one in values):
                return False
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not all(map(_is_text, values)):
            return False
    return True


def _require_finite(path: Path, model: onnx.ModelProto) -> None:
    """Functions that call one another in a circle have no end when written out; those that call
    two others each may have far too many nodes."""
    functions = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    at_work: set[tuple[str, str]] = set()

    def size(key: tuple[str, str]) -> int:
        if key in at_work or len(at_work) > 100:
            raise InputError(f"{path}: function {key[1]} calls itself")
        if key not in sizes:
            at_work.add(key)
            sizes[key] = count(functions[key].node)
            at_work.discard(key)
        return sizes[key]

    def count(nodes: list[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            total += size(key) if key in functions else 1
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    total += count(graph.node)
        return total

    if (nodes := count(model.graph.node)) > MOST_NODES:
        raise InputError(f"{path}: {nodes} nodes with its functions, allowed are {MOST_NODES}")


def open_axes(value: onnx.ValueInfoProto) -> list[int | str]:
    """Axes as numbers, names of symbols, or "" where the file says nothing."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise InputError(f"input {value.name} is not a tensor")
    if not tensor.HasField("shape"):
        raise InputError(f"input {value.name} has no shape in the file")
    return [axis_of(axis) for axis in tensor.shape.dim]


def axis_of(axis: onnx.TensorShapeProto.Dimension) -> int | str:
    # Exporters write 0, -1 and "?" for sizes that are open.
    if axis.dim_value > 0:
        return axis.dim_value
    return "" if axis.dim_param == "?" else axis.dim_param


def weight(tensor: onnx.TensorProto) -> Value:
    """An initializer. Raises InputError."""
    check_shape(f"tensor {tensor.name}", tensor.dims)
    value = Value(tensor.name, tuple(tensor.dims), tensor.data_type, is_weight=True)
    most = MOST_FLOATS if tensor.data_type in FLOATS else MOST_INTEGERS
    is_here = tensor.data_location != onnx.TensorProto.EXTERNAL
    if value.elements <= most and is_here and tensor.data_type != onnx.TensorProto.STRING:
        value.data = array_of(tensor)
    return value


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """A tensor's numbers. Raises InputError."""
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise InputError(f"tensor {tensor.name}: its data do not fit its shape and type") from error
    return array
