"""Shapes of all values, node by node, with the sizes of all inputs at hand: what is computed from
shapes (as exporters write reshapes) is computed here, and a branch that is known is taken."""
from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from . import contrib, reading
from .graph import Graph, InputError, Node, Shape, Value
from .reading import MOST_FLOATS, MOST_INTEGERS, MOST_NODES
from .sizes import Sizes, check_shape

# Elements of all values computed here, together: half a gibibyte of 64-bit integers.
MOST_FOLDED = 2**26

# What exporters compute sizes, positions and masks with. Other operators' results are data.
FOLDED = set("""Abs Add And Cast Ceil Concat Constant ConstantOfShape CumSum Div Equal Expand
    Flatten Floor Gather Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or
    Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Shape Size Slice Split Sqrt Squeeze
    Sub Tile Transpose Trilu Unsqueeze Where""".split())


def infer(model: onnx.ModelProto, sizes: Sizes) -> Graph:
    """The graph with shapes. Raises InputError."""
    return _Inference(model, sizes).run()


class _Inference:
    def __init__(self, model: onnx.ModelProto, sizes: Sizes):
        self.graph = model.graph
        self.sizes = sizes
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        if "ai.onnx" in self.opsets:
            self.opsets.setdefault("", self.opsets["ai.onnx"])
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.known = dict(sizes.symbols)
        self.hints: dict[str, list[int | str]] = {}
        self.branches = 0
        self.folded = 0  # elements

    def run(self) -> Graph:
        for tensor in self.graph.initializer:
            self._add(reading.weight(tensor))
        for sparse in self.graph.sparse_initializer:
            check_shape(sparse.values.name, sparse.dims)
            self._add(Value(sparse.values.name, tuple(sparse.dims), sparse.values.data_type,
                            is_weight=True))
        self._add_inputs()
        for info in self.graph.value_info:
            tensor = info.type.tensor_type
            if info.type.HasField("tensor_type") and tensor.HasField("shape"):
                self.hints[info.name] = [reading.axis_of(axis) for axis in tensor.shape.dim]
        self._walk(self.graph.node, {})
        outputs = [output.name for output in self.graph.output]
        for name in outputs:
            if name not in self.values:
                raise InputError(f"output {name} is written by no node")
        return Graph(self.values, self.nodes, outputs)

    def _add(self, value: Value) -> None:
        if not value.name or value.name in self.values:
            raise InputError(f"tensor '{value.name}' is there twice, or has no name")
        self.values[value.name] = value

    def _add_inputs(self) -> None:
        infos = [info for info in self.graph.input if info.name not in self.values]
        axes = {info.name: reading.open_axes(info) for info in infos}
        shapes = self.sizes.resolve(axes)
        for name, shape in shapes.items():
            for axis, size in zip(axes[name], shape):
                if isinstance(axis, str) and axis:
                    self.known.setdefault(axis, size)
        for info in infos:
            value = Value(info.name, shapes[info.name], info.type.tensor_type.elem_type,
                          is_input=True)
            if (data := self.sizes.data.get(info.name)) is not None:
                if data.size != value.elements:
                    raise InputError(f"--value {info.name}: {data.size} numbers, the input has "
                                     f"{value.elements}")
                value.data = data.reshape(value.shape).astype(
                    helper.tensor_dtype_to_np_dtype(value.element))
            self._add(value)

    def _walk(self, nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> None:
        """Nodes of the graph or of a branch; `names`: what the branch's own values are called."""
        for proto in nodes:
            if len(self.nodes) >= MOST_NODES:
                raise InputError(f"more than {MOST_NODES} nodes")
            inputs = [names.get(name, name) for name in proto.input]
            for name in inputs:
                if name and name not in self.values:
                    raise InputError(f"node {proto.name or proto.op_type} reads '{name}', which "
                                     "nothing before it writes")
            if not any(proto.output):
                raise InputError(f"node {proto.name or proto.op_type} writes nothing")
            if proto.op_type == "If" and proto.domain in ("", "ai.onnx") and \
                    self._take_branch(proto, inputs, names):
                continue
            self._take(proto, inputs, [names.get(name, name) for name in proto.output])

    def _take_branch(self, proto: onnx.NodeProto, inputs: list[str], names: dict[str, str]) -> bool:
        """The nodes of an If with a known condition; false when it is not known."""
        data = self.values[inputs[0]].data if inputs else None
        if data is None or data.size != 1:
            return False
        wanted = "then_branch" if bool(data.reshape(())) else "else_branch"
        branch = next((a.g for a in proto.attribute if a.name == wanted), None)
        if branch is None or len(branch.output) != len(proto.output):
            raise InputError(f"node {proto.name or 'If'} has no {wanted} for its outputs")
        self.branches += 1
        own = [tensor.name for tensor in branch.initializer]
        own += [name for node in branch.node for name in node.output if name]
        within = {**names, **{name: f"{name}.{self.branches}" for name in own}}
        for tensor in branch.initializer:
            value = reading.weight(tensor)
            value.name = within[value.name]
            self._add(value)
        self._walk(branch.node, within)
        for output, result in zip(branch.output, proto.output):
            source = within.get(output.name, output.name)
            if source not in self.values:
                raise InputError(f"output {output.name} of a branch is written by no node")
            self._take(helper.make_node("Identity", [source], [result]), [source],
                       [names.get(result, result)])
        return True

    def _take(self, proto: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = Node(f"{domain}.{proto.op_type}" if domain else proto.op_type, inputs, outputs,
                    self._attributes(proto), proto.name, self.opsets.get(domain, 0))
        renamed = onnx.NodeProto()
        renamed.CopyFrom(proto)
        renamed.domain = domain
        del renamed.input[:], renamed.output[:]
        renamed.input.extend(inputs)
        renamed.output.extend(outputs)
        results = self._shapes(node, renamed)
        arrays = self._folded(node, renamed, results)
        is_weight = all(self.values[name].is_weight for name in inputs if name) and \
            not node.op.startswith("Random")
        for index, name in enumerate(outputs):
            if not name:
                continue
            value = results.get(name) or Value(name)
            value.is_weight = is_weight or arrays is not None
            if arrays is not None:
                value.data = arrays[index]
            self._add(value)
        # What is known needs no node, nor that its inputs be read; views of weights stay views.
        if arrays is None or node.op in ("Reshape", "Transpose", "Squeeze", "Unsqueeze"):
            self.nodes.append(node)

    @staticmethod
    def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for attribute in proto.attribute:
            kind = attribute.type
            if kind in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT,
                        onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
                value = helper.get_attribute_value(attribute)
                attributes[attribute.name] = \
                    list(value) if kind in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) \
                    else value
            elif kind == onnx.AttributeProto.STRING:
                attributes[attribute.name] = attribute.s.decode("utf-8", "replace")
        return attributes

    def _shapes(self, node: Node, proto: onnx.NodeProto) -> dict[str, Value]:
        """Outputs with their shapes, as far as they are known."""
        results = self._standard_shapes(node, proto)
        shapes = contrib.shapes(node, self.values) if not results else {}
        for name in node.outputs:
            if not name:
                continue
            value = results.setdefault(name, Value(name))
            if value.shape is None and name in shapes:
                value.shape = shapes[name]
            if not value.element and node.input(0):
                value.element = self.values[node.input(0)].element
            if value.shape is None:
                value.shape = self._hinted(name)
            if value.shape is not None:
                check_shape(f"tensor {name}", value.shape)
        return results

    def _standard_shapes(self, node: Node, proto: onnx.NodeProto) -> dict[str, Value]:
        """What the onnx package's inference finds."""
        has_graphs = any(attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
                         for attribute in proto.attribute)
        given = [self.values[name] for name in node.inputs if name]
        if has_graphs or any(value.shape is None or not value.element for value in given):
            return {}
        types = {v.name: helper.make_tensor_type_proto(v.element, v.shape) for v in given}
        data = {v.name: numpy_helper.from_array(np.ascontiguousarray(v.data).reshape(v.shape))
                for v in given if v.data is not None and v.elements <= MOST_FLOATS}
        try:
            schema = onnx.defs.get_schema(proto.op_type, node.opset, proto.domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data,
                opset_imports=[helper.make_opsetid(d, v) for d, v in self.opsets.items()])
        except onnx.defs.SchemaError:
            return {}  # an operator that the package does not know
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError,
                ValueError, TypeError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"node {proto.name or proto.op_type}: its inputs do not fit: {reason}"
                             ) from error
        results = {}
        for name, kind in found.items():
            tensor = kind.tensor_type
            value = results[name] = Value(name, element=tensor.elem_type)
            if kind.HasField("tensor_type") and tensor.HasField("shape") and \
                    all(axis.HasField("dim_value") for axis in tensor.shape.dim):
                value.shape = tuple(axis.dim_value for axis in tensor.shape.dim)
        return results

    def _hinted(self, name: str) -> Shape | None:
        """What the file itself says about a value."""
        axes = [self.known.get(axis) if isinstance(axis, str) else axis
                for axis in self.hints.get(name, [""])]
        return None if any(axis is None for axis in axes) else tuple(axis or 0 for axis in axes)

    def _folded(self, node: Node, proto: onnx.NodeProto,
                results: dict[str, Value]) -> Sequence[np.ndarray] | None:
        """The results of a node with known inputs, where they are small."""
        if node.op not in FOLDED:
            return None
        given = [self.values[name] for name in node.inputs if name]
        if node.op in ("Shape", "Size") and given and given[0].shape is not None:
            axes = given[0].shape[slice(node.get("start"), node.get("end"))]
            return [np.array(axes if node.op == "Shape" else math.prod(axes), np.int64)]
        if any(value.data is None for value in given):
            return None
        for name in node.outputs:
            value = results.get(name)
            most = MOST_FLOATS if value and value.element in reading.FLOATS else MOST_INTEGERS
            # Masks are floats: where they come from flags or from little, they may be large.
            if node.op in ("Where", "ConstantOfShape", "Expand", "Trilu", "Cast", "Mul", "Sub"):
                most = MOST_INTEGERS
            if value is None or value.shape is None or value.elements > most or \
                    value.element == onnx.TensorProto.STRING:
                return None
            self.folded += value.elements
        if self.folded > MOST_FOLDED:
            return None
        return _evaluated(proto, {value.name: value.data for value in given}, node.opset)


def _evaluated(proto: onnx.NodeProto, arrays: dict[str, Any],
               opset: int) -> Sequence[np.ndarray] | None:
    """A node's results by the onnx package's reference; nothing where that fails: its operators
    raise whatever NumPy does on attributes that make no sense."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(proto, opsets={"": opset}).run(None, arrays)
    except Exception:  # noqa: BLE001
        return None
