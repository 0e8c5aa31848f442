"""The kernels as PyTorch says them, for a CPU or CUDA, eager or compiled.

What is eager and has an out= form writes into the output given; the others return a new tensor.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from peer_workers.peer import Unsupported
from peer_workers.problem import Problem

Tensors = dict[str, torch.Tensor]


def operands_of(problem: Problem, tensors: Tensors) -> list[torch.Tensor]:
    """The views that `function_of` works on, in its order. Gemm drops a batch axis of 1, since
    torch.mm is a call of its own; attention adds the masks that its problem needs. Raises
    Unsupported."""
    if problem.kernel == "gemm":
        names = ["a", "b"] + (["c0"] if problem.beta != 0 else [])
        # c0, bias [n] and residual in the order in which they are added.
        names += [{"add": "residual"}.get(f, f) for f in problem.functions if f in ("bias", "add")]
        views = [tensors[name] for name in names]
        if problem.trans_a:
            views[0] = views[0].transpose(1, 2)
        if problem.trans_b:
            views[1] = views[1].transpose(1, 2)
        if problem.batch == 1:
            return [view[0] if view.dim() == 3 else view for view in views]
        return views
    if problem.kernel == "softmax":
        return [tensors["x"]]
    if problem.kernel == "layernorm":
        return [tensors["x"], tensors["gamma"], tensors["beta"]] + residual_of(problem, tensors)
    if problem.kernel == "rmsnorm":
        return [tensors["x"], tensors["gamma"]] + residual_of(problem, tensors)
    if problem.kernel == "add":
        return [tensors["x"], tensors["r"]]
    if problem.kernel == "activation":
        return [tensors["x"]] + ([tensors["g"]] if problem.gate else [])
    for option in ("softcap", "lengths"):
        if getattr(problem, option):
            raise Unsupported(f"{option}={getattr(problem, option):g}: "
                              "scaled_dot_product_attention has no such thing")
    views = [tensors["q"], tensors["k"], tensors["v"]]
    if hides(problem) and not by_flag(problem):
        views.append(attention_mask(problem, views[0].device))
    return views + ([tensors["mask"]] if problem.mask else [])


def residual_of(problem: Problem, tensors: Tensors) -> list[torch.Tensor]:
    """What a norm adds to x, where it does."""
    return [tensors["residual"]] if problem.values.get("residual") else []


def hides(problem: Problem) -> bool:
    """Whether some query does not see some key."""
    return bool(0 < problem.window < problem.kv_len
                or (problem.causal and problem.visible(0) < problem.kv_len))


def by_flag(problem: Problem) -> bool:
    """Whether is_causal=True hides it. It aligns causal attention to the start, we to the end: they
    agree only on squares. A single query, the last, sees every key."""
    return bool(problem.causal and problem.q_len == problem.kv_len
                and not problem.window and not problem.mask)


def joined(masks: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """The masks among an attention's operands as one: what a query does not see is -inf."""
    if len(masks) < 2:
        return masks[0] if masks else None
    return torch.where(*masks, -torch.inf)


def attention_mask(problem: Problem, device: torch.device) -> torch.Tensor:
    """True where query i sees key j: j <= i + kv_len - q_len if causal, and no more than `window`
    keys."""
    every = torch.ones(problem.q_len, problem.kv_len, dtype=torch.bool, device=device)
    last = problem.kv_len - problem.q_len
    if problem.causal:
        every = every.tril(last)
        return every.triu(last + 1 - problem.window) if problem.window else every
    if problem.window:
        every[:, :max(0, problem.kv_len - problem.window)] = False
    return every


def with_epilogue(p: Problem) -> Callable[..., torch.Tensor]:
    """A product and what follows it, one operation after the other; a bias that comes first is
    added by the product's own call. gate=1: one product of both halves."""
    product = torch.bmm if p.batch != 1 else torch.mm
    functions = p.functions

    def gated(a, b):
        both = product(a, b)
        return F.silu(both[..., :p.n]).mul_(both[..., p.n:])

    def chain(a, b, *operands):
        rest = list(operands)
        if p.beta != 0:
            add = torch.baddbmm if p.batch != 1 else torch.addmm
            c, later = add(rest.pop(0), a, b, beta=p.beta, alpha=p.alpha), functions
        elif functions[0] == "bias" and p.batch == 1:
            c, later = torch.addmm(rest.pop(0), a, b, alpha=p.alpha), functions[1:]
        else:
            c, later = product(a, b), functions
            c = c if p.alpha == 1 else c * p.alpha
        for name in later:
            c = (c + rest.pop(0)) if name in ("bias", "add") else epilogue_function(p, name)(c)
        return c

    return gated if functions == ["gate"] else chain


def epilogue_function(p: Problem, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of one operand, by its name in a chain."""
    if name == "leaky_relu":
        return lambda c: F.leaky_relu(c, p.slope)
    if name == "clamp":
        return lambda c: torch.clamp(c, p.low, p.high)
    return ACTIVATIONS[name]


def function_of(problem: Problem) -> Callable[..., torch.Tensor]:
    """The kernel as a function of `operands_of`, returning a new tensor."""
    p = problem
    if p.kernel == "gemm" and p.functions:
        return with_epilogue(p)
    if p.kernel == "gemm":
        batched = p.batch != 1
        if p.beta != 0:
            add = torch.baddbmm if batched else torch.addmm
            return lambda a, b, c0: add(c0, a, b, beta=p.beta, alpha=p.alpha)
        product = torch.bmm if batched else torch.mm
        if p.alpha == 1:
            return product
        return lambda a, b: product(a, b) * p.alpha
    if p.kernel == "softmax":
        return lambda x: torch.softmax(x, -1)
    if p.kernel == "layernorm":
        return lambda x, gamma, beta, *r: F.layer_norm(sum(r, x), (p.cols,), gamma, beta, p.eps)
    if p.kernel == "rmsnorm":
        return lambda x, gamma, *r: F.rms_norm(sum(r, x), (p.cols,), gamma, p.eps)
    if p.kernel == "add":
        return torch.add
    if p.kernel == "activation":
        activated = ACTIVATIONS[p.kind]
        return (lambda x, g: activated(x) * g) if p.gate else activated
    is_causal = by_flag(p)
    grouped = p.heads != p.kv_heads

    def attention(q, k, v, *masks):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=joined(masks), is_causal=is_causal,
                                              scale=p.scale, enable_gqa=grouped)

    return attention


ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}
# The same with an out=, which the functions of torch.nn.functional call and mostly do not show.
ACTIVATIONS_INTO: dict[str, Callable[..., torch.Tensor]] = {
    "relu": lambda x, out: torch.clamp_min(x, 0, out=out),
    "gelu": lambda x, out: F.gelu(x, out=out),
    "gelu_tanh": lambda x, out: F.gelu(x, approximate="tanh", out=out),
    "silu": lambda x, out: torch._C._nn.silu(x, out=out),
    "tanh": lambda x, out: torch.tanh(x, out=out),
}


def attention_ways(problem: Problem) -> dict[str, Callable[..., torch.Tensor]]:
    """Attention by each backend of scaled_dot_product_attention, as functions of `operands_of`. A
    backend that does not take the problem raises RuntimeError when called. Query heads that share
    keys are tried in three ways: by enable_gqa; with a copy of the keys for each of them; and,
    where every query sees every key, as more queries of one head."""
    p = problem
    group = p.heads // p.kv_heads
    plain = function_of(problem)

    def repeated(q, k, v, *masks):
        return F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
            attn_mask=joined(masks), is_causal=by_flag(p), scale=p.scale)

    def folded(q, k, v):
        queries = q.reshape(p.batch, p.kv_heads, group * p.q_len, p.head_dim)
        return F.scaled_dot_product_attention(queries, k, v, scale=p.scale).view(
            p.batch, p.heads, p.q_len, p.v_dim)

    forms = {"": plain}
    if group > 1:
        forms[" repeated"] = repeated
        if not hides(p) and not p.mask:
            forms[" folded"] = folded

    def by(backend: SDPBackend, form: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def way(*operands: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                return form(*operands)

        return way

    backends = {"efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH,
                "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return {f"SDPA {name}{form}": by(backend, function)
            for name, backend in backends.items() for form, function in forms.items()}


def function_into(problem: Problem, out: torch.Tensor) -> Callable[..., torch.Tensor] | None:
    """The kernel as a function that writes into `out` and returns it; nothing where PyTorch has no
    such form (layer_norm, scaled_dot_product_attention)."""
    p = problem
    if p.kernel == "softmax":
        return lambda x: torch.softmax(x, -1, out=out)
    if p.kernel == "add":
        return lambda x, r: torch.add(x, r, out=out)
    if p.kernel == "activation":
        activated = ACTIVATIONS_INTO[p.kind]
        if p.gate:
            return lambda x, g: torch.mul(activated(x, out), g, out=out)
        return lambda x: activated(x, out)
    if p.kernel != "gemm" or p.functions:
        return None
    batched = p.batch != 1
    into = out if batched else out[0]
    if p.beta != 0:
        add = torch.baddbmm if batched else torch.addmm
        return lambda a, b, c0: add(c0, a, b, beta=p.beta, alpha=p.alpha, out=into)
    if p.alpha == 1:
        product = torch.bmm if batched else torch.mm
        return lambda a, b: product(a, b, out=into)
    add = torch.baddbmm if batched else torch.addmm
    # beta=0: the output is not read.
    return lambda a, b: add(into, a, b, beta=0, alpha=p.alpha, out=into)
