"""Number formats as NumPy holds them (src/core/dtype.cpp has the same): the stored type of each,
what a block of 32 along a row takes, and how float values become such a block.

Integers and blocks are rounded to nearest, ties to even, relative to a scale as float16 holds it.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

# NumPy's types of the stored elements. It has no bfloat16: arrays hold its bits; of blocks their
# bytes.
STORED = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "int32": np.int32,
          "int8": np.int8, "uint8": np.uint8, "int8_per_channel": np.int8,
          "q8_0": np.uint8, "q4_0": np.uint8, "q4_1": np.uint8}
BLOCK = 32
BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}
# Ranges of seeded integers.
RANGES = {"int8": (-128, 127), "int8_per_channel": (-128, 127), "uint8": (0, 255)}


def stored_shape(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The shape of a tensor as it is stored: blocks along the last axis become their bytes."""
    if dtype not in BLOCK_BYTES:
        return shape
    return (*shape[:-1], shape[-1] // BLOCK * BLOCK_BYTES[dtype])


def _quotients(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Values over the scale of their block; zero where that is zero."""
    return np.divide(values, scales, out=np.zeros_like(values), where=scales != 0)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float16 numbers of values [blocks,1]: their bytes, and the numbers themselves."""
    halves = values.astype(np.float16)
    return halves.view(np.uint8), halves.astype(np.float64)


def _nibbles(units: np.ndarray) -> np.ndarray:
    """16 bytes of each block: element i in the low half of byte i, element i + 16 in the high."""
    whole = np.rint(np.clip(units, 0, 15)).astype(np.uint8)
    return whole[:, :16] | whole[:, 16:] << 4


def _q8_0(values: np.ndarray) -> list[np.ndarray]:
    scale, number = _halves(np.abs(values).max(1, keepdims=True) / 127)
    units = np.rint(np.clip(_quotients(values, number), -127, 127))
    return [scale, units.astype(np.int8).view(np.uint8)]


def _q4_0(values: np.ndarray) -> list[np.ndarray]:
    largest = np.take_along_axis(values, np.abs(values).argmax(1, keepdims=True), 1)
    scale, number = _halves(largest / -8)
    return [scale, _nibbles(_quotients(values, number) + 8)]


def _q4_1(values: np.ndarray) -> list[np.ndarray]:
    least, most = values.min(1, keepdims=True), values.max(1, keepdims=True)
    scale, number = _halves((most - least) / 15)
    low, low_number = _halves(least)
    return [scale, low, _nibbles(_quotients(values - low_number, number))]


_BLOCKS: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
    "q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1}


def encode_blocks(values: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of float values, a multiple of 32, in a block format."""
    blocks = values.astype(np.float64).reshape(-1, BLOCK)
    return np.concatenate(_BLOCKS[dtype](blocks), axis=1).reshape(-1)


def block_parts(array: np.ndarray, dtype: str
                ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From stored rows [n,bytes] the integers [n,k] as uint8, and float32 scales and minima
    [n,k/32]: value = scale · integer + minimum."""
    rows = array.shape[0]
    blocks = array.reshape(rows, -1, BLOCK_BYTES[dtype])
    scale = np.ascontiguousarray(blocks[:, :, :2]).view(np.float16)[..., 0].astype(np.float32)
    if dtype == "q8_0":
        return (blocks[:, :, 2:] ^ 0x80).reshape(rows, -1), scale, scale * np.float32(-128)
    head = 4 if dtype == "q4_1" else 2
    packed = blocks[:, :, head:]
    integers = np.concatenate([packed & 15, packed >> 4], axis=2).reshape(rows, -1)
    if dtype == "q4_0":
        return integers, scale, scale * np.float32(-8)
    return integers, scale, np.ascontiguousarray(
        blocks[:, :, 2:4]).view(np.float16)[..., 0].astype(np.float32)


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values in a format's stored type, rounded to nearest, ties to even. bfloat16 is the
    upper half of the bits; values are finite. Integers take values from -1 to 1 as their range."""
    if dtype in RANGES:
        least, most = RANGES[dtype]
        return np.rint(least + (most - least) * (0.5 * values.astype(np.float64) + 0.5)
                       ).astype(STORED[dtype])
    if dtype in BLOCK_BYTES:
        return encode_blocks(values, dtype)
    if dtype != "bfloat16":
        return values.astype(STORED[dtype])
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
            >> np.uint32(16)).astype(np.uint16)
