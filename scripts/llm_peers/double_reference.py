"""The forward pass of a llama model in double precision with NumPy, whole sequences at once.

What float32 programs are held against where they differ: whoever is nearer is right, and a gap
between two logits that is smaller than both errors decides nothing.
"""
from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize


class DoubleReference:
    """Weights of a GGUF file as float64: 8 bytes a parameter."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)

        def value(name: str) -> float:
            return reader.fields[f"llama.{name}"].contents()

        self._layers = int(value("block_count"))
        self._heads = int(value("attention.head_count"))
        self._kv_heads = int(value("attention.head_count_kv"))
        self._eps = value("attention.layer_norm_rms_epsilon")
        self._base = value("rope.freq_base")
        self._weights = {
            tensor.name.removesuffix(".weight"):
                dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors}

    def logits(self, ids: list[int], first: int) -> np.ndarray:
        """The logits after each token from number `first` on, [len(ids) - first, vocabulary]."""
        w = self._weights
        x = w["token_embd"][ids]
        for i in range(self._layers):
            x = x + self._attention(i, self._normed(x, w[f"blk.{i}.attn_norm"]))
            y = self._normed(x, w[f"blk.{i}.ffn_norm"])
            gate = y @ w[f"blk.{i}.ffn_gate"].T
            gate *= y @ w[f"blk.{i}.ffn_up"].T / (1 + np.exp(-gate))
            x = x + gate @ w[f"blk.{i}.ffn_down"].T
        return self._normed(x[first:], w["output_norm"]) @ w.get("output", w["token_embd"]).T

    def _normed(self, x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self._eps) * gamma

    def _rotated(self, x: np.ndarray) -> np.ndarray:
        """[tokens, heads, head_dim]: neighbours rotate together."""
        tokens, _, size = x.shape
        angles = np.arange(tokens)[:, None, None] * self._base ** (-np.arange(0, size, 2) / size)
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = np.empty_like(x)
        rotated[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
        rotated[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
        return rotated

    def _attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        def projected(name: str, heads: int) -> np.ndarray:
            return (x @ self._weights[f"blk.{layer}.{name}"].T).reshape(len(x), heads, -1)

        group = self._heads // self._kv_heads
        q = self._rotated(projected("attn_q", self._heads))
        k = self._rotated(projected("attn_k", self._kv_heads)).repeat(group, axis=1)
        v = projected("attn_v", self._kv_heads).repeat(group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        attended = np.einsum("hij,jhd->ihd", scores, v).reshape(len(x), -1)
        return attended @ self._weights[f"blk.{layer}.attn_output"].T
