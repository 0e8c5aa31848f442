"""Finds kernels for the nodes of a graph. What has none, or would need a copy first, is left."""
from __future__ import annotations

from collections.abc import Mapping

from . import costs
from .building import Builder, Left
from .convolutions import map_convolution
from .costs import Cost
from .graph import OWN, Graph, Node
from .products import map_attention, map_gemm
from .reading import FLOATS
from .rows import map_add, map_embed, map_norm, map_pointwise, map_rope, map_softmax, map_topk
from .view_nodes import VIEW_NODES

Kernels = Mapping[str, frozenset[str]]  # names, with those of their parameters

MAPPERS = {
    OWN + "gemm": ("gemm", map_gemm),
    OWN + "attention": ("attention", map_attention),
    OWN + "layernorm": ("layernorm", map_norm),
    OWN + "rmsnorm": ("rmsnorm", map_norm),
    OWN + "activation": ("activation", map_pointwise),
    OWN + "rope": ("rope", map_rope),
    "Add": ("add", map_add),
    "Softmax": ("softmax", map_softmax),
    "Gather": ("embed", map_embed),
    "Conv": ("gemm", map_convolution),
    "TopK": ("topk", map_topk),
    "ArgMax": ("topk", map_topk),
}


class Mapped:
    """The result: steps in `builder`, what is left, and the costs of both."""

    def __init__(self, graph: Graph, kernels: Kernels):
        self.builder = Builder(graph)
        self.graph = graph
        self.kernels = kernels
        self.mapped = Cost()
        for node in graph.nodes:
            self._take(node)

    def _take(self, node: Node) -> None:
        graph = self.graph
        result = graph.values[node.result]
        if result.shape is not None and 0 in result.shape:
            return
        if result.is_weight:  # made when loading, unless it is a view of a loaded weight
            if node.op in VIEW_NODES:
                VIEW_NODES[node.op](self.builder, node)
            return
        cost = costs.cost(graph, node)
        if not cost.is_known:
            self.builder.left.append(Left(node.op, "its work is not known", cost))
            return
        if node.op in VIEW_NODES and VIEW_NODES[node.op](self.builder, node):
            return
        reason = self._reason(node)
        if reason:
            self.builder.left.append(Left(node.op.removeprefix(OWN), reason, cost))
        else:
            self.mapped += cost

    def _reason(self, node: Node) -> str:
        """Adds the steps of a node; why there are none, else."""
        if node.op not in MAPPERS:
            return "moves data" if node.op in VIEW_NODES else "no kernel"
        kernel, mapper = MAPPERS[node.op]
        if kernel not in self.kernels:
            return f"no kernel {kernel} in this program"
        if self.graph.values[node.result].element not in FLOATS and kernel != "topk":
            return "not of floats"
        return mapper(self.builder, node, self.kernels)
