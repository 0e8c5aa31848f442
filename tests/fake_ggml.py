"""ggml as scripts/peer_workers/llama_cpp_peer.py calls it, in NumPy: tensors are numbers, a buffer
that repacks is faster than one that does not. For peers_test.py.
"""
import ctypes
import time

import numpy as np

from peer_workers import llama_cpp_peer
from peer_workers.formats import block_parts, stored_shape
from peer_workers.peer import Unsupported, aligned_array
from peer_workers.problem import Problem, Tensor, fill_inputs

REPACKING = 9000


def decoded(blocks):
    """q4_0 rows as float32."""
    integers, scale, low = block_parts(blocks, "q4_0")
    return integers * np.repeat(scale, 32, 1) + np.repeat(low, 32, 1)


class Ggml:
    """Computes q4_0 weights times float32."""

    device = 1

    def __init__(self):
        self.tensors, self.memory, self.graphs, self.slow = {}, {}, {}, True

    def features(self):
        return ["avx512", "avx512_vnni"]

    def repacking_buffers(self):
        return [REPACKING]

    def function(self, name):
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name, *arguments):
        return getattr(self, name, lambda *_: 0)(*arguments)

    def ggml_version(self):
        return b"0"

    def ggml_backend_buft_name(self, _):
        return b"REPACKED"

    def ggml_init(self, _):
        return 1

    def ggml_new_tensor_2d(self, _, kind, columns, rows):
        self.tensors[len(self.tensors) + 1] = kind.value, columns.value, rows.value
        return len(self.tensors)

    def ggml_mul_mat(self, _, weights, x):
        (_, k, n), (_, of_x, m) = self.tensors[weights], self.tensors[x]
        assert k == of_x
        product = len(self.tensors) + 1
        self.tensors[product] = 0, n, m
        self.product = weights, x, product
        return product

    def ggml_backend_buft_get_alloc_size(self, _, weights):
        return 640

    def ggml_backend_dev_supports_op(self, *_):
        return True

    def ggml_backend_tensor_alloc(self, _, tensor, address):
        self.memory[tensor] = address

    def ggml_backend_tensor_set(self, tensor, address, _, size):
        self.memory[tensor] = address
        self.slow = False

    def ggml_new_graph(self, _):
        return len(self.graphs) + 1

    def ggml_build_forward_expand(self, graph, product):
        assert product == self.product[2]
        self.graphs[graph] = self.product, self.slow
        self.slow = True

    def ggml_backend_graph_compute(self, _, graph):
        (weights, x, product), slow = self.graphs[graph.value]
        _, k, n = self.tensors[weights]
        m = self.tensors[x][2]
        rows = stored_shape((n, k), "q4_0")
        values = decoded(self._at(weights, rows[0] * rows[1], np.uint8).reshape(rows))
        a = self._at(x, 4 * m * k, np.float32).reshape(m, k)
        self._at(product, 4 * m * n, np.float32).reshape(m, n)[...] = a @ values.T
        if slow:
            time.sleep(0.05)  # longer than a busy machine keeps the other waiting
        return 0

    def _at(self, tensor, size, kind):
        return np.frombuffer((ctypes.c_char * size).from_address(self.memory[tensor]), kind)


def problem(math="fp32", kind="q4_0", prepack=1, trans_b=1):
    """A small product."""
    values = {"m": 2, "n": 3, "k": 64, "batch": 1, "trans_a": 0, "trans_b": trans_b, "alpha": 1.0,
              "beta": 0.0, "prepack": prepack, "gate": 0, "epilogue": "none"}
    return Problem("gemm", values, (
        Tensor("a", (1, 2, 64), "input"), Tensor("b", (1, 3, 64), "constant", dtype=kind),
        Tensor("c", (1, 2, 3), "output")), math)


def check(_):
    """Prints what the peer makes of five problems."""
    for prepack in (1, 0):
        peer = llama_cpp_peer.LlamaCppPeer.__new__(llama_cpp_peer.LlamaCppPeer)
        peer.ggml, peer.library = Ggml(), lambda: "llama.cpp"
        one = problem(prepack=prepack)
        arrays = {tensor.name: aligned_array(tensor.shape, tensor.dtype) for tensor in one.tensors}
        fill_inputs(one, 1, arrays, 1)
        plan = peer.plan(one, arrays, 1)
        plan.poison()
        plan.run()
        expected = arrays["a"][0] @ decoded(arrays["b"][0]).T
        error = np.abs(plan.output()[0] - expected).max()
        where = "repacked" if plan.packed_bytes == 640 and "REPACKED" in plan.library else \
            "where it lies"
        print(plan.math, plan.path, where, error)
    for one in (problem("bf16"), problem(trans_b=0), problem(kind="int8_per_channel")):
        try:
            peer.plan(one, {}, 1)
        except Unsupported as reason:
            print(f"refused: {reason}")
