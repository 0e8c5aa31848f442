"""Triton on an NVIDIA GPU: the row kernels, a row a program, and a tiled GEMM in strict float32.

Attention is left out: PyTorch's own is the peer for it. Device memory and its clock are in
cuda_plan.py.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from peer_workers.cuda_plan import CudaPlan, Tensors, device_names
from peer_workers.peer import Arrays, Peer, Plan, no_epilogue, no_prepack
from peer_workers.problem import Problem

# A row up to this long is held in registers by one program (16 warps: 32 values a thread) and read
# once; longer rows are read in blocks of this size, more than once.
LONGEST_BLOCK = 16384


@triton.jit
def softmax_kernel(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, BLOCK)
    row = tl.load(x + start + at, mask=at < cols, other=float("-inf"))
    weights = tl.exp(row - tl.max(row, 0))
    tl.store(y + start + at, weights / tl.sum(weights, 0), mask=at < cols)


@triton.jit
def long_softmax_kernel(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    largest = float("-inf")
    total = 0.0
    for first in range(0, cols, BLOCK):
        at = first + lane
        part = tl.load(x + start + at, mask=at < cols, other=float("-inf"))
        higher = tl.maximum(largest, tl.max(part, 0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(part - higher), 0)
        largest = higher
    for first in range(0, cols, BLOCK):
        at = first + lane
        part = tl.load(x + start + at, mask=at < cols, other=0.0)
        tl.store(y + start + at, tl.exp(part - largest) / total, mask=at < cols)


@triton.jit
def layernorm_kernel(x, gamma, beta, y, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, BLOCK)
    inside = at < cols
    row = tl.load(x + start + at, mask=inside, other=0.0)
    apart = tl.where(inside, row - tl.sum(row, 0) / cols, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / cols + eps)
    scaled = apart * scale * tl.load(gamma + at, mask=inside) + tl.load(beta + at, mask=inside)
    tl.store(y + start + at, scaled, mask=inside)


@triton.jit
def long_layernorm_kernel(x, gamma, beta, y, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + lane
        sums += tl.load(x + start + at, mask=at < cols, other=0.0)
    mean = tl.sum(sums, 0) / cols
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + lane
        apart = tl.load(x + start + at, mask=at < cols, other=0.0) - mean
        squares += tl.where(at < cols, apart * apart, 0.0)
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / cols + eps)
    for first in range(0, cols, BLOCK):
        at = first + lane
        inside = at < cols
        apart = tl.load(x + start + at, mask=inside) - mean
        scaled = apart * scale * tl.load(gamma + at, mask=inside) + tl.load(beta + at, mask=inside)
        tl.store(y + start + at, scaled, mask=inside)


# Tiles with accumulators that fit the register file at 4 or 8 warps (64 float32 a thread); Triton
# times them on the first call, which is part of the plan.
TILES = [triton.Config({"TM": tm, "TN": tn, "TK": tk}, num_warps=warps, num_stages=stages)
         for tm, tn, tk, warps, stages in [(128, 128, 16, 8, 3), (128, 64, 32, 4, 3),
                                           (64, 64, 32, 4, 3), (64, 128, 16, 4, 4),
                                           (32, 64, 32, 2, 3), (16, 64, 64, 4, 3)]]


@triton.autotune(configs=TILES, key=["m", "n", "k"])
@triton.jit
def gemm_kernel(a, b, c0, c, m, n, k, alpha, beta, a_batch, a_row, a_col, b_batch, b_row, b_col,
                READS_C0: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    across = tl.cdiv(n, TN)
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    rows = (tile // across * TM + tl.arange(0, TM)).to(tl.int64)
    cols = (tile % across * TN + tl.arange(0, TN)).to(tl.int64)
    depth = tl.arange(0, TK).to(tl.int64)
    a_at = a + batch * a_batch + rows[:, None] * a_row + depth[None, :] * a_col
    b_at = b + batch * b_batch + depth[:, None] * b_row + cols[None, :] * b_col
    sums = tl.zeros([TM, TN], tl.float32)
    for first in range(0, k, TK):
        inside = first + depth < k
        a_tile = tl.load(a_at, mask=(rows[:, None] < m) & inside[None, :], other=0.0)
        b_tile = tl.load(b_at, mask=inside[:, None] & (cols[None, :] < n), other=0.0)
        sums = tl.dot(a_tile, b_tile, sums, input_precision="ieee")
        a_at += TK * a_col
        b_at += TK * b_row
    at = batch * m * n + rows[:, None] * n + cols[None, :]
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    result = alpha * sums
    if READS_C0:
        result += beta * tl.load(c0 + at, mask=inside)
    tl.store(c + at, result, mask=inside)


def row_call(p: Problem, tensors: Tensors) -> Callable[[], torch.Tensor]:
    x, y = tensors["x"], tensors["y"]
    block = min(triton.next_power_of_2(p.cols), LONGEST_BLOCK)
    fits = p.cols <= block
    warps = min(16, max(1, block // 512))
    if p.kernel == "softmax":
        kernel, operands = softmax_kernel if fits else long_softmax_kernel, (x, y, p.cols)
    else:
        kernel = layernorm_kernel if fits else long_layernorm_kernel
        operands = (x, tensors["gamma"], tensors["beta"], y, p.cols, p.eps)

    def call() -> torch.Tensor:
        if p.rows > 0:
            kernel[(p.rows,)](*operands, BLOCK=block, num_warps=warps)
        return y

    return call


def gemm_call(p: Problem, tensors: Tensors) -> Callable[[], torch.Tensor]:
    a = tensors["a"].transpose(1, 2) if p.trans_a else tensors["a"]
    b = tensors["b"].transpose(1, 2) if p.trans_b else tensors["b"]
    c = tensors["c"]
    reads_c0 = p.beta != 0
    operands = (a, b, tensors.get("c0", c), c, p.m, p.n, 0 if p.alpha == 0 else p.k, p.alpha,
                p.beta, *a.stride(), *b.stride())

    def grid(tile: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(p.m, tile["TM"]) * triton.cdiv(p.n, tile["TN"]), p.batch

    def call() -> torch.Tensor:
        if c.numel() > 0:
            gemm_kernel[grid](*operands, READS_C0=reads_c0)
        return c

    return call


class TritonPeer(Peer):
    kernels = {"gemm": "device", "softmax": "device", "layernorm": "device"}

    def absent(self) -> str | None:
        return None if torch.cuda.is_available() else "Triton finds no CUDA device"

    def library(self) -> str:
        return f"Triton {triton.__version__} CUDA {torch.version.cuda} ieee"

    def device(self) -> tuple[str, str]:
        return device_names()

    def plan(self, problem: Problem, arrays: Arrays, threads: int) -> Plan:
        no_prepack(problem, "Triton")
        no_epilogue(problem, "Triton")
        make = gemm_call if problem.kernel == "gemm" else row_call
        return CudaPlan(problem, arrays, lambda tensors: make(problem, tensors))
