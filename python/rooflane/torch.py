"""PyTorch's functions by Rooflane's kernels, on the CPU and without gradients.

linear, layer_norm, rms_norm and scaled_dot_product_attention have PyTorch's signatures. use() swaps
them into any model; bench() says what that gains, layer by layer. As the custom operators
torch.ops.rooflane.* they stay in graphs that torch.compile and torch.export make.

>>> import torch, rooflane.torch
>>> with torch.no_grad(), rooflane.torch.use() as used:
...     y = torch.nn.Linear(8, 4)(torch.ones(2, 8))
>>> print(used)
linear: 1 call by Rooflane
"""
from __future__ import annotations

import collections
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from rooflane import functions

Tensor = torch.Tensor
# A linear layer's result has its input's type; gemm's is float32 where nothing else is said.
_C_TYPES = {torch.bfloat16: "bf16", torch.float16: "f16"}


class Refused(ValueError):
    """Why a call is none of Rooflane's: the message says what is allowed."""


def _threads() -> int:
    return torch.get_num_threads()


def _check(*tensors: Tensor | None) -> None:
    """Raises Refused for a tensor that is not in this process's memory or requires a gradient."""
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.device.type != "cpu":
            raise Refused(f"a tensor is on {tensor.device}, allowed is cpu")
        if tensor.layout is not torch.strided:
            raise Refused(f"a tensor is {tensor.layout}, allowed is torch.strided")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise Refused("a gradient is wanted: call under torch.no_grad()")


def _detached(*tensors: Tensor | None) -> list[Any]:
    """Without the mark of a parameter, which kernels refuse."""
    return [None if tensor is None else tensor.detach() for tensor in tensors]


def _of_one_dtype(*tensors: Tensor) -> None:
    types = sorted({str(tensor.dtype) for tensor in tensors})
    if len(types) > 1:
        raise Refused(f"tensors are {', '.join(types)}, allowed is one type")


# ---- the kernels, for tensors that are allowed

def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    x, weight, bias = _detached(x, weight, bias)
    _of_one_dtype(*(tensor for tensor in (x, weight, bias) if tensor is not None))
    return functions.gemm(x, weight, trans_b=True, bias=bias, c_type=_C_TYPES.get(x.dtype),
                          threads=_threads())


@functools.lru_cache(maxsize=64)
def _constant(value: float, length: int, dtype: torch.dtype) -> Tensor:
    return torch.full((length,), value, dtype=dtype)


def _rows(x: Tensor, normalized_shape: Sequence[int]) -> Tensor:
    """[..., elements of normalized_shape], a view. Raises Refused."""
    axes = len(normalized_shape)
    if tuple(x.shape[x.ndim - axes:]) != tuple(normalized_shape):
        raise Refused(f"normalized_shape {list(normalized_shape)} is not how {list(x.shape)} ends")
    if axes == 1:
        return x
    try:
        return x.view(*x.shape[:x.ndim - axes], math.prod(normalized_shape))
    except RuntimeError:
        raise Refused("the axes of normalized_shape lie apart: x.contiguous() copies it") from None


def _layer_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None,
                bias: Tensor | None, eps: float) -> Tensor:
    x, weight, bias = _detached(x, weight, bias)
    rows = _rows(x, normalized_shape)
    gamma = _constant(1, rows.shape[-1], x.dtype) if weight is None else weight.reshape(-1)
    beta = _constant(0, rows.shape[-1], x.dtype) if bias is None else bias.reshape(-1)
    _of_one_dtype(x, gamma, beta)
    return functions.layer_norm(rows, gamma, beta, eps=eps, threads=_threads()).view(x.shape)


def _rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None,
              eps: float | None) -> Tensor:
    x, weight = _detached(x, weight)
    rows = _rows(x, normalized_shape)
    gamma = _constant(1, rows.shape[-1], x.dtype) if weight is None else weight.reshape(-1)
    _of_one_dtype(x, gamma)
    return functions.rms_norm(rows, gamma, eps=torch.finfo(x.dtype).eps if eps is None else eps,
                              threads=_threads()).view(x.shape)


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None,
               is_causal: bool, scale: float | None) -> Tensor:
    query, key, value, attn_mask = _detached(query, key, value, attn_mask)
    if query.ndim not in (3, 4) or not query.ndim == key.ndim == value.ndim:
        raise Refused(f"query has {query.ndim} axes, allowed are 3 and 4, of key and value too")
    if query.dtype is not torch.float32:
        raise Refused(f"query is {query.dtype}, allowed is torch.float32")
    q_len, kv_len = query.shape[-2], key.shape[-2]
    if is_causal and q_len != kv_len:
        # PyTorch lets query i see keys up to i, the kernel up to i + kv_len - q_len.
        attn_mask, is_causal = torch.ones(q_len, kv_len, dtype=torch.bool).tril_(), False
    call = functools.partial(functions.attention, causal=is_causal, scale=scale, threads=_threads())
    if attn_mask is None:
        return call(query, key, value)
    if attn_mask.dtype not in (torch.bool, query.dtype):
        raise Refused(f"attn_mask is {attn_mask.dtype}, allowed are torch.bool and {query.dtype}")
    lead = tuple(attn_mask.shape[:-2])
    attn_mask = attn_mask.expand(*lead, q_len, kv_len)
    if attn_mask.stride(-1) == 0:
        attn_mask = attn_mask.contiguous()
    if math.prod(lead) <= 1:
        return call(query, key, value, attn_mask)
    # A mask of its own for each sequence, or each head: the kernel takes one for all.
    o = query.new_empty((*query.shape[:-1], value.shape[-1]))
    masks = attn_mask.expand(*query.shape[:-2], q_len, kv_len)
    each_head = lead[-1] > 1
    shared = query.shape[-3] // key.shape[-3]
    for batch in range(query.shape[0]) if query.ndim == 4 else [slice(None)]:
        q, k, v, out, mask = (tensor[batch] for tensor in (query, key, value, o, masks))
        for head in range(q.shape[0]) if each_head else [None]:
            if head is None:
                call(q, k, v, mask[0], out=out)
            else:
                one, of = slice(head, head + 1), slice(head // shared, head // shared + 1)
                call(q[one], k[of], v[of], mask[head], out=out[one])
    return o


# ---- custom operators: what torch.compile and torch.export keep

_linear_op = torch.library.custom_op("rooflane::linear", _linear, mutates_args=())
_layer_norm_op = torch.library.custom_op("rooflane::layer_norm", _layer_norm, mutates_args=())
_rms_norm_op = torch.library.custom_op("rooflane::rms_norm", _rms_norm, mutates_args=())
_attention_op = torch.library.custom_op("rooflane::scaled_dot_product_attention", _attention,
                                        mutates_args=())


@_linear_op.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@_layer_norm_op.register_fake
def _(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None,
      eps: float) -> Tensor:
    return x.new_empty(x.shape)


@_rms_norm_op.register_fake
def _(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None,
      eps: float | None) -> Tensor:
    return x.new_empty(x.shape)


@_attention_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
      scale: float | None) -> Tensor:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _call(plain: Callable[..., Tensor], operator: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """The operator where a graph is made; the kernel itself elsewhere, which costs less."""
    return (operator if torch.compiler.is_compiling() else plain)(*arguments)


# ---- PyTorch's signatures

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input·weightᵀ + bias: input [..., in], weight [out, in], bias [out]."""
    _check(input, weight, bias)
    return _call(_linear, _linear_op, input, weight, bias)


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """LayerNorm over the last axes, which are normalized_shape."""
    _check(input, weight, bias)
    return _call(_layer_norm, _layer_norm_op, input, list(normalized_shape), weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
             eps: float | None = None) -> Tensor:
    """RMSNorm over the last axes, which are normalized_shape. eps: the type's if None."""
    _check(input, weight)
    return _call(_rms_norm, _rms_norm_op, input, list(normalized_shape), weight, eps)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor,
                                 attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(scale·query·keyᵀ + attn_mask)·value: query [batch, heads, q_len, dim] or without
    batch, float32; a mask of bool is true where a query sees a key."""
    _check(query, key, value, attn_mask)
    if dropout_p > 0:
        raise Refused("dropout_p: allowed is 0")
    if attn_mask is not None and is_causal:
        raise Refused("attn_mask and is_causal: allowed is one of them")
    if not enable_gqa and query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        raise Refused("key has other heads than query: that needs enable_gqa=True")
    return _call(_attention, _attention_op, query, key, value, attn_mask, is_causal, scale)


REPLACED: dict[Callable[..., Any], Callable[..., Tensor]] = {
    torch.nn.functional.linear: linear,
    torch.nn.functional.layer_norm: layer_norm,
    torch.layer_norm: lambda input, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True:
        layer_norm(input, shape, weight, bias, eps),
    torch.nn.functional.rms_norm: rms_norm,
    torch.rms_norm: rms_norm,
    torch.nn.functional.scaled_dot_product_attention: scaled_dot_product_attention,
}

# They call none of the functions above where they could be replaced.
WHOLE = {torch.nn.functional.multi_head_attention_forward, torch._transformer_encoder_layer_fwd,
         torch._native_multi_head_attention}


def _name_of(function: Callable[..., Any]) -> str:
    return function.__name__.lstrip("_")


class Use(TorchFunctionMode):
    """Counts of calls computed by Rooflane (taken) and by PyTorch (refused: why)."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[tuple[str, str]] = collections.Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = kwargs or {}
        replacement = REPLACED.get(func)
        if replacement is None:
            if func in WHOLE:
                self.refused[_name_of(func), "it computes its products within"] += 1
            return func(*args, **arguments)
        try:
            result = self.computed(func, replacement, args, arguments)
            self.taken[_name_of(func)] += 1
            return result
        except (ValueError, TypeError) as reason:
            self.refused[_name_of(func), str(reason)] += 1
            return func(*args, **arguments)

    def computed(self, _: Any, replacement: Callable[..., Tensor], args: Any, kwargs: Any) -> Any:
        """One call by Rooflane."""
        return replacement(*args, **kwargs)

    def __str__(self) -> str:
        def calls(count: int) -> str:
            return f"{count} call{'s' if count > 1 else ''}"
        lines = [f"{name}: {calls(count)} by Rooflane" for name, count in self.taken.items()]
        lines += [f"{name}: {calls(count)} by PyTorch: {reason}"
                  for (name, reason), count in self.refused.items()]
        return "\n".join(lines) or "no call of a function that Rooflane has"


@contextmanager
def use() -> Iterator[Use]:
    """Within it PyTorch's functions are Rooflane's where these can be; print what it gives to see
    what was taken and what was not, and why."""
    mode = Use()
    with mode:
        yield mode


class Timing(NamedTuple):
    """A call measured both ways, alternating."""
    layer: str       # the module's name in the model
    function: str
    shape: str       # of its first two tensors
    torch_us: float  # medians
    rooflane_us: float
    ratio: float     # PyTorch's time over Rooflane's, the median of the rounds'
    low: float       # and its interval, which holds the true median with 95 % or more
    high: float
    difference: float  # the largest, over the largest magnitude of the result


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the median, by order statistics: 95 %, or all that so few values allow."""
    ordered, n = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < (n - 1) // 2:
        outside += 2 * math.comb(n, rank) / 2**n
        if outside > 0.05:
            break
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def _alternating(rounds: int, one: Callable[[], Any], other: Callable[[], Any],
                 ) -> tuple[float, float, float, float, float]:
    """Medians of both in seconds, the median ratio and its interval. Each is called once before."""
    times: tuple[list[float], list[float]] = ([], [])
    for index in range(rounds + 1):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        for which in order:
            start = time.perf_counter()
            (one, other)[which]()
            if index > 0:
                times[which].append(time.perf_counter() - start)
    ratios = [first / second for first, second in zip(*times)]
    return (statistics.median(times[0]), statistics.median(times[1]), statistics.median(ratios),
            *_interval(ratios))


class _Measuring(Use):
    """Measures each call where it happens, so that no layer's input has to be kept."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.layers = [""]  # the modules that are being computed, the innermost last
        self.timings: list[Timing] = []

    def leave(self, *_: Any) -> None:
        self.layers.pop()

    def computed(self, func: Any, replacement: Callable[..., Tensor], args: Any,
                 kwargs: Any) -> Any:
        result = replacement(*args, **kwargs)
        expected = func(*args, **kwargs)
        ours = functools.partial(replacement, *args, **kwargs)
        theirs = functools.partial(func, *args, **kwargs)
        torch_s, rooflane_s, ratio, low, high = _alternating(self.rounds, theirs, ours)
        largest = float(expected.abs().max()) if expected.numel() else 0.0
        apart = float((result - expected).abs().max()) if expected.numel() else 0.0
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        shape = " × ".join(str(list(tensor.shape)) for tensor in tensors[:2])
        self.timings.append(Timing(self.layers[-1], _name_of(func), shape, 1e6 * torch_s,
                                   1e6 * rooflane_s, ratio, low, high,
                                   apart / largest if largest > 0 else apart))
        return result


class Report(NamedTuple):
    """What Rooflane gains in a model: of the whole, and layer by layer."""
    whole: Timing
    layers: list[Timing]
    use: Use

    def __str__(self) -> str:
        head = f"{'PyTorch':>10} {'Rooflane':>10}  ratio"
        lines = [f"{head}  layer: function, shapes"]
        for row in [self.whole, *sorted(self.layers, key=lambda row: -row.torch_us)]:
            name = row.layer if not row.function else f"{row.layer}: {row.function}, {row.shape}"
            lines.append(f"{row.torch_us:8.1f} µs {row.rooflane_us:7.1f} µs  {row.ratio:.2f} "
                         f"[{row.low:.2f}, {row.high:.2f}]  {name}")
        return "\n".join([*lines, str(self.use)])


def bench(model: torch.nn.Module, *inputs: Any, rounds: int = 15, **named: Any) -> Report:
    """Measures model(*inputs, **named) as it is and within use(), alternating, then each call of a
    function that Rooflane has, both ways on the layer's own input. Without gradients."""
    if rounds < 1:
        raise ValueError(f"rounds: {rounds}: allowed: from 1")
    measuring = _Measuring(rounds)
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    hooks = []
    for module, name in names.items():
        hooks.append(module.register_forward_pre_hook(
            lambda *_, name=name: measuring.layers.append(name)))
        hooks.append(module.register_forward_hook(measuring.leave, always_call=True))
    with torch.no_grad():
        try:
            with measuring:
                model(*inputs, **named)
        finally:
            for hook in hooks:
                hook.remove()

        def swapped() -> None:
            with use():
                model(*inputs, **named)

        torch_s, rooflane_s, *ratios = _alternating(
            rounds, lambda: model(*inputs, **named), swapped)
    whole = Timing(f"whole {type(model).__name__}", "", "", 1e6 * torch_s, 1e6 * rooflane_s,
                   *ratios, max((row.difference for row in measuring.timings), default=0.0))
    return Report(whole, measuring.timings, measuring)
