"""A llama of two layers with random weights in a GGUF file, and its forward pass in double.

Not a test itself: tiny_llama.py FILE writes the model. Standard library only: the formats are
written and read here as docs/gguf.md of github.com/ggml-org/ggml describes them, independently of
what is tested.
"""
from __future__ import annotations

import math
import random
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, CONTEXT = 64, 4, 2, 96, 2, 1600
HEAD_DIM = WIDTH // HEADS
KV_WIDTH = KV_HEADS * HEAD_DIM
EPS, BASE = 1e-5, 10000.0
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "Ġ Ġ"]
MERGED = ["he", "ll", "hell", "hello", "Ġw", "12", "ĠĠ"]
BEGIN, END = "<|begin|>", "<|end|>"
TEMPLATE = ("{% for m in messages %}" + BEGIN + "{{ m['role'] }}:{{ m['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}" + END + "{% endif %}")

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32, F16, Q8_0 = 0, 1, 8


def letters() -> list[str]:
    """The characters that stand for the bytes 0 to 255 in byte-level tokens."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) if byte in kept else chr(256 + others.index(byte)) for byte in range(256)]


TOKENS = [*letters(), *MERGED, BEGIN, END]
VOCABULARY = len(TOKENS)


def metadata() -> dict[str, tuple[int, Any]]:
    """Keys with type and value; an array's type is that of its elements."""
    types = [1] * (VOCABULARY - 2) + [3, 3]
    return {"general.architecture": (STRING, "llama"), "llama.block_count": (UINT32, LAYERS),
            "llama.context_length": (UINT32, CONTEXT), "llama.embedding_length": (UINT32, WIDTH),
            "llama.feed_forward_length": (UINT32, HIDDEN),
            "llama.attention.head_count": (UINT32, HEADS),
            "llama.attention.head_count_kv": (UINT32, KV_HEADS),
            "llama.attention.layer_norm_rms_epsilon": (FLOAT32, EPS),
            "llama.rope.freq_base": (FLOAT32, BASE),
            "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "smollm"),
            "tokenizer.ggml.tokens": (STRING, TOKENS), "tokenizer.ggml.merges": (STRING, MERGES),
            "tokenizer.ggml.token_type": (INT32, types),
            "tokenizer.ggml.bos_token_id": (UINT32, VOCABULARY - 2),
            "tokenizer.ggml.eos_token_id": (UINT32, VOCABULARY - 1),
            "tokenizer.chat_template": (STRING, TEMPLATE)}


@dataclass
class Tensor:
    """Rows of numbers as the file will hold them."""
    rows: list[list[float]]
    kind: int = F32
    shape: list[int] = field(default_factory=list)  # the file's order; empty: from the rows

    def sizes(self) -> list[int]:
        return self.shape or ([len(self.rows[0])] if len(self.rows) == 1 else
                              [len(self.rows[0]), len(self.rows)])

    def stored(self) -> bytes:
        """Rounds the rows to the format, and gives its bytes."""
        encode = {F32: _float32, F16: _float16, Q8_0: _q8_0}[self.kind]
        parts = [encode(row) for row in self.rows]
        self.rows = [values for values, _ in parts]
        return b"".join(data for _, data in parts)


def _floats(row: list[float], letter: str) -> tuple[list[float], bytes]:
    data = struct.pack(f"<{len(row)}{letter}", *row)
    return list(struct.unpack(f"<{len(row)}{letter}", data)), data


def _float32(row: list[float]) -> tuple[list[float], bytes]:
    return _floats(row, "f")


def _float16(row: list[float]) -> tuple[list[float], bytes]:
    return _floats(row, "e")


def _q8_0(row: list[float]) -> tuple[list[float], bytes]:
    values, data = [], b""
    for i in range(0, len(row), 32):
        block = row[i:i + 32]
        (scale,), head = _floats([max(map(abs, block)) / 127], "e")
        units = [max(-127, min(127, round(value / scale))) for value in block]
        values += [scale * unit for unit in units]
        data += head + struct.pack("<32b", *units)
    return values, data


def tensors(seed: int = 38, tied: bool = True) -> dict[str, Tensor]:
    """Weights, large enough that logits differ clearly."""
    rng = random.Random(seed)

    def matrix(rows: int, cols: int, kind: int = F32) -> Tensor:
        scale = 2 / math.sqrt(cols)
        return Tensor([[rng.uniform(-scale, scale) for _ in range(cols)] for _ in range(rows)],
                      kind)

    def norm() -> Tensor:
        return Tensor([[rng.uniform(0.7, 1.3) for _ in range(WIDTH)]])

    made = {"token_embd": matrix(VOCABULARY, WIDTH, Q8_0), "output_norm": norm()}
    if not tied:
        made["output"] = matrix(VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        made |= {f"blk.{layer}.{name}": tensor for name, tensor in {
            "attn_norm": norm(), "ffn_norm": norm(), "attn_q": matrix(WIDTH, WIDTH, Q8_0),
            "attn_k": matrix(KV_WIDTH, WIDTH, F16), "attn_v": matrix(KV_WIDTH, WIDTH),
            "attn_output": matrix(WIDTH, WIDTH), "ffn_gate": matrix(HIDDEN, WIDTH, F16),
            "ffn_up": matrix(HIDDEN, WIDTH, Q8_0), "ffn_down": matrix(WIDTH, HIDDEN, Q8_0),
        }.items()}
    return {f"{name}.weight": tensor for name, tensor in made.items()}


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _text(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<B"}[kind], value)


def file_of(values: dict[str, tuple[int, Any]], weights: dict[str, Tensor]) -> bytes:
    """The file's bytes. Rounds the weights to what the file holds."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(values))
    for key, (kind, value) in values.items():
        head += _text(key)
        if isinstance(value, list):
            head += struct.pack("<IIQ", ARRAY, kind, len(value))
            head += b"".join(_value(kind, each) for each in value)
        else:
            head += struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, tensor in weights.items():
        data += bytes(-len(data) % 32)
        sizes = tensor.sizes()
        head += _text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.kind,
                                          len(data))
        data += tensor.stored()
    return head + bytes(-len(head) % 32) + data


class Reference:
    """The forward pass, one token at a time."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self._rows = {name.removesuffix(".weight"): tensor.rows for name, tensor in weights.items()}
        self._keys: list[list[list[float]]] = [[] for _ in range(LAYERS)]
        self._values: list[list[list[float]]] = [[] for _ in range(LAYERS)]

    def logits(self, token: int) -> list[float]:
        """The logits after `token`, which follows all earlier ones."""
        x = list(self._rows["token_embd"][token])
        for layer in range(LAYERS):
            attended = self._attend(layer, self._normed(x, f"blk.{layer}.attn_norm"))
            x = self._add(x, self._times(f"blk.{layer}.attn_output", attended))
            normed = self._normed(x, f"blk.{layer}.ffn_norm")
            gate = self._times(f"blk.{layer}.ffn_gate", normed)
            up = self._times(f"blk.{layer}.ffn_up", normed)
            product = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            x = self._add(x, self._times(f"blk.{layer}.ffn_down", product))
        output = "output" if "output" in self._rows else "token_embd"
        return self._times(output, self._normed(x, "output_norm"))

    def _times(self, name: str, x: list[float]) -> list[float]:
        return [math.fsum(w * v for w, v in zip(row, x)) for row in self._rows[name]]

    @staticmethod
    def _add(x: list[float], y: list[float]) -> list[float]:
        return [a + b for a, b in zip(x, y)]

    def _normed(self, x: list[float], name: str) -> list[float]:
        root = math.sqrt(sum(v * v for v in x) / len(x) + EPS)
        return [v / root * gamma for v, gamma in zip(x, self._rows[name][0])]

    @staticmethod
    def _rotated(x: list[float], position: int) -> list[float]:
        """Neighbours rotate together, the pair i of a head by position · base^(-2i/head_dim)."""
        result = []
        for at in range(0, len(x), 2):
            angle = position * BASE ** (-(at % HEAD_DIM) / HEAD_DIM)
            cosine, sine = math.cos(angle), math.sin(angle)
            result += [x[at] * cosine - x[at + 1] * sine, x[at] * sine + x[at + 1] * cosine]
        return result

    def _attend(self, layer: int, x: list[float]) -> list[float]:
        keys, values = self._keys[layer], self._values[layer]
        position = len(keys)
        query = self._rotated(self._times(f"blk.{layer}.attn_q", x), position)
        keys.append(self._rotated(self._times(f"blk.{layer}.attn_k", x), position))
        values.append(self._times(f"blk.{layer}.attn_v", x))
        result = []
        for head in range(HEADS):
            of = head // (HEADS // KV_HEADS) * HEAD_DIM
            mine = query[head * HEAD_DIM:(head + 1) * HEAD_DIM]
            scores = [sum(a * b for a, b in zip(mine, key[of:of + HEAD_DIM])) /
                      math.sqrt(HEAD_DIM) for key in keys]
            weights = [math.exp(score - max(scores)) for score in scores]
            total = sum(weights)
            result += [sum(w * value[of + d] for w, value in zip(weights, values)) / total
                       for d in range(HEAD_DIM)]
        return result


def greedy(weights: dict[str, Tensor], prompt: list[int],
           tokens: int) -> tuple[list[int], list[list[float]]]:
    """The likeliest tokens after the prompt, and the logits by which each was chosen."""
    model = Reference(weights)
    logits: list[float] = []
    for token in prompt:
        logits = model.logits(token)
    chosen, rows = [], []
    for _ in range(tokens):
        rows.append(logits)
        chosen.append(max(range(VOCABULARY), key=logits.__getitem__))
        logits = model.logits(chosen[-1])
    return chosen, rows


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(file_of(metadata(), tensors()))
