"""Kernels that gather, add by segment, choose and rearrange, as PyTorch says them on a CPU.

PyTorch's own ids are int64; those of the problem are converted while planning, which is not timed.
Where it has several ways, `ways` names them all: the fastest is what a row shows.
"""
from __future__ import annotations

from collections.abc import Callable

import torch

from peer_workers.kernels import INDEX_KERNELS as KERNELS
from peer_workers.problem import Problem

__all__ = ["KERNELS", "function_of", "operands_of", "ways"]

Tensors = dict[str, torch.Tensor]
Call = Callable[..., object]


def operands_of(problem: Problem, tensors: Tensors) -> list[torch.Tensor]:
    """What the functions below work on, in their order."""
    if problem.kernel == "embed":
        return [tensors["table"], tensors["ids"].long()]
    if problem.kernel.startswith("segment_"):
        return [tensors["x"], tensors["segment"].long()]
    return [tensors["image" if problem.kernel == "im2patch" else "x"]]


def segment_softmax(segments: int) -> Call:
    """As PyTorch Geometric has it, without its clamp."""
    def softmax(x: torch.Tensor, segment: torch.Tensor) -> torch.Tensor:
        every = segment[:, None].expand_as(x)
        largest = x.new_full((segments, x.shape[1]), -torch.inf)
        largest = largest.scatter_reduce(0, every, x, "amax")
        terms = (x - largest.index_select(0, segment)).exp()
        sums = x.new_zeros(segments, x.shape[1]).scatter_add(0, every, terms)
        return terms / sums.index_select(0, segment)

    return softmax


def patches_of(p: Problem, image: torch.Tensor) -> torch.Tensor:
    """A view of the image: batch, patches down and across, channels, and a patch's own axes."""
    split = image.view(p.batch, p.channels, p.height // p.patch, p.patch, p.width // p.patch,
                       p.patch)
    return split.permute(0, 2, 4, 1, 3, 5)


def function_of(problem: Problem) -> Call:
    """The kernel as a function that returns new tensors."""
    p = problem
    if p.kernel == "embed":
        return lambda table, ids: torch.index_select(table, 0, ids)
    if p.kernel == "segment_sum":
        return lambda x, segment: x.new_zeros(p.segments, p.cols).index_add(0, segment, x)
    if p.kernel == "segment_softmax":
        return segment_softmax(p.segments)
    if p.kernel == "topk":
        return lambda x: tuple(torch.topk(x, p.k))
    return lambda image: patches_of(p, image).contiguous()


def ways(problem: Problem, outs: list[torch.Tensor]) -> dict[str, Call]:
    """The kernel as functions that write into `outs`, or return what stands for them."""
    p, y = problem, outs[0]
    if p.kernel == "embed":
        return {"index_select": lambda table, ids: torch.index_select(table, 0, ids, out=y)}
    if p.kernel == "segment_sum":
        every: dict[str, Call] = {
            "index_add": lambda x, segment: y.zero_().index_add_(0, segment, x),
            "scatter_add": lambda x, segment: y.zero_().scatter_add_(
                0, segment[:, None].expand_as(x), x)}
        if p.sorted:
            every["segment_reduce"] = lambda x, segment: torch.segment_reduce(
                x, "sum", lengths=torch.bincount(segment, minlength=p.segments), initial=0)
        return every
    if p.kernel == "segment_softmax":
        return {"scatter_reduce": segment_softmax(p.segments)}
    if p.kernel == "topk":
        into = (y, torch.empty(outs[1].shape, dtype=torch.long))
        every = {"topk": lambda x: torch.topk(x, p.k, out=into)}
        if p.k == 1:
            every["max"] = lambda x: torch.max(x, -1, keepdim=True, out=into)
        return every
    shape = (p.batch, p.height // p.patch, p.width // p.patch, p.channels, p.patch, p.patch)
    return {"permute": lambda image: y.view(shape).copy_(patches_of(p, image))}
