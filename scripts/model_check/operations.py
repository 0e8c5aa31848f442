"""What models are made of, by NumPy in double precision and by PyTorch in float32.

Both classes have the same methods; `array` brings a tensor into the class's own kind.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np


class NumpyOperations:
    """Plain formulas in float64."""

    name = "NumPy, float64"

    def array(self, values: np.ndarray) -> Any:
        return values.astype(np.float64) if values.dtype == np.float32 else values

    def numbers(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        """Weight [out,in], as linear layers store it."""
        y = x @ weight.T
        return y if bias is None else y + bias

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + eps) * gamma + beta

    def rms_norm(self, x: Any, gamma: Any, eps: float) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma

    def softmax(self, x: Any) -> Any:
        exps = np.exp(x - x.max(-1, keepdims=True))
        return exps / exps.sum(-1, keepdims=True)

    def gelu(self, x: Any) -> Any:
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def gelu_tanh(self, x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def silu(self, x: Any) -> Any:
        return x / (1 + np.exp(-x))

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def concatenate(self, parts: list[Any], axis: int) -> Any:
        return np.concatenate(parts, axis)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        """q [batch,heads,q_len,dim], k and v with as many heads or a divisor; causal ends with the
        last key."""
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        if causal:
            behind = np.arange(k.shape[2]) - (k.shape[2] - q.shape[2])
            scores = np.where(behind[None, :] <= np.arange(q.shape[2])[:, None], scores, -np.inf)
        return self.softmax(scores) @ v

    def rope(self, x: Any, base: float, offset: int, interleaved: bool) -> Any:
        """x [batch,heads,len,dim]."""
        dim, length = x.shape[-1], x.shape[-2]
        angles = np.arange(offset, offset + length)[:, None] * base ** (
            -2 * np.arange(dim // 2) / dim)
        cos, sin = np.cos(angles), np.sin(angles)
        pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (
            slice(0, dim // 2), slice(dim // 2, None))
        first, second = x[..., pairs[0]], x[..., pairs[1]]
        y = np.empty_like(x)
        y[..., pairs[0]] = first * cos - second * sin
        y[..., pairs[1]] = first * sin + second * cos
        return y

    def segment_sum(self, x: Any, segment: Any, segments: int) -> Any:
        y = np.zeros((segments, *x.shape[1:]))
        np.add.at(y, segment, x)
        return y

    def segment_softmax(self, x: Any, segment: Any, segments: int) -> Any:
        largest = np.full((segments, *x.shape[1:]), -np.inf)
        np.maximum.at(largest, segment, x)
        exps = np.exp(x - largest[segment])
        return exps / self.segment_sum(exps, segment, segments)[segment]


class TorchOperations:
    """PyTorch's own functions in float32."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.name = f"PyTorch {torch.__version__}, float32"
        torch.set_float32_matmul_precision("highest")

    def array(self, values: np.ndarray) -> Any:
        tensor = self.torch.from_numpy(np.ascontiguousarray(values))
        return tensor.long() if values.dtype == np.int32 else tensor

    def numbers(self, x: Any) -> np.ndarray:
        return x.double().numpy()

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        return self.torch.nn.functional.linear(x, weight, bias)

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> Any:
        return self.torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta, eps)

    def rms_norm(self, x: Any, gamma: Any, eps: float) -> Any:
        return self.torch.nn.functional.rms_norm(x, gamma.shape, gamma, eps)

    def softmax(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)

    def gelu(self, x: Any) -> Any:
        return self.torch.nn.functional.gelu(x)

    def gelu_tanh(self, x: Any) -> Any:
        return self.torch.nn.functional.gelu(x, approximate="tanh")

    def silu(self, x: Any) -> Any:
        return self.torch.nn.functional.silu(x)

    def tanh(self, x: Any) -> Any:
        return self.torch.tanh(x)

    def concatenate(self, parts: list[Any], axis: int) -> Any:
        return self.torch.cat(parts, axis)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        torch = self.torch
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mask = None
        if causal:
            behind = torch.arange(k.shape[2]) - (k.shape[2] - q.shape[2])
            mask = behind[None, :] <= torch.arange(q.shape[2])[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def rope(self, x: Any, base: float, offset: int, interleaved: bool) -> Any:
        """Angles in double, as the tables of careful implementations are made."""
        torch = self.torch
        dim, length = x.shape[-1], x.shape[-2]
        powers = base ** (-2 * torch.arange(dim // 2, dtype=torch.float64) / dim)
        angles = torch.arange(offset, offset + length, dtype=torch.float64)[:, None] * powers
        cos, sin = torch.cos(angles).float(), torch.sin(angles).float()
        pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (
            slice(0, dim // 2), slice(dim // 2, None))
        first, second = x[..., pairs[0]], x[..., pairs[1]]
        y = torch.empty_like(x)
        y[..., pairs[0]] = first * cos - second * sin
        y[..., pairs[1]] = first * sin + second * cos
        return y

    def segment_sum(self, x: Any, segment: Any, segments: int) -> Any:
        return self.torch.zeros((segments, *x.shape[1:])).index_add(0, segment, x)

    def segment_softmax(self, x: Any, segment: Any, segments: int) -> Any:
        torch = self.torch
        index = segment.reshape(-1, *[1] * (x.dim() - 1)).expand_as(x)
        largest = torch.full((segments, *x.shape[1:]), -torch.inf).scatter_reduce(
            0, index, x, "amax")
        exps = torch.exp(x - largest[segment])
        return exps / self.segment_sum(exps, segment, segments)[segment]
