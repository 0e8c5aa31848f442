"""The kernels in NumPy's double precision, one line of maths each, for python_kernels_test.py."""
from __future__ import annotations

import math

import numpy as np

ERF = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + beta


def rms_norm(x, gamma, eps):
    return gamma * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def attention(q, k, v, causal=False, mask=0.0, window=0, softcap=0.0):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat(groups, 1), v.repeat(groups, 1)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    query = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    key = np.arange(k.shape[2])[None, :]
    last = query if causal else np.full_like(query, k.shape[2] - 1)
    seen = (key <= last) & ((key > last - window) if window else True)
    return softmax(np.where(seen, scores + mask, -np.inf)) @ v


def rope(x, base, offset, style):
    dim = x.shape[3]
    angles = ((offset + np.arange(x.shape[2]))[:, None]
              * base ** (-2.0 * np.arange(dim // 2) / dim)[None, :])
    y = np.empty_like(x)
    first, second = ((np.s_[..., :dim // 2], np.s_[..., dim // 2:]) if style == "half"
                     else (np.s_[..., 0::2], np.s_[..., 1::2]))
    y[first] = x[first] * np.cos(angles) - x[second] * np.sin(angles)
    y[second] = x[second] * np.cos(angles) + x[first] * np.sin(angles)
    return y


def segment_sum(x, segment, segments):
    y = np.zeros((segments, x.shape[1]))
    np.add.at(y, segment, x)
    return y


def segment_softmax(x, segment):
    y = np.empty_like(x)
    for one in np.unique(segment):
        y[segment == one] = softmax(x[segment == one].T).T
    return y


def im2patch(image, patch):
    batch, channels, height, width = image.shape
    tiles = image.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return tiles.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)
