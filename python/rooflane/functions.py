"""Kernels as functions of arrays.

Arrays are NumPy's, those of ml_dtypes (bfloat16), or any that DLPack or the buffer protocol carries
(PyTorch, JAX, CuPy's host memory): float32 unless a kernel takes other formats, row-major, the last
axis without gaps; leading axes may have any stride that is not negative. gemm takes what
numpy.matmul takes. Nothing is copied but ids, lengths and masks of another type: where only a copy
of other arrays would do, ValueError names the array. Masked arrays are refused. Results are written
to `out`, else to new arrays (tensors where the first input is PyTorch's). No input is written to;
results overlap no input, but for kernels over rows, where `out` may be `x` itself.

Every function takes these options besides its own:

  variant   the implementation, as rooflane.variants() lists them; default "hwy"
  threads   default: one per physical core
  tuning    "mc=96,kc=384"; default: this machine's tuned schedule, else the cost model's choice
  math      "fp32", or "3xtf32", "bf16", "f16", "int8", "int8-dynamic" where a variant has it
  isa       Highway's target, "AVX3"; default: the best of this CPU
  library   path of a CBLAS library, of variant "blas"
  device    number of a device, of variants for devices

The interpreter's lock is released while a kernel runs. Raises ValueError for a wrong argument,
TypeError for a value that is not an array, Unavailable for something that this machine, build or
variant lacks, MemoryError.
"""
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypedDict

from rooflane import _core, shapes
from rooflane.allocation import allocator_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = Any  # whatever exports its memory
Values = dict[str, Any]


class Options(TypedDict, total=False):
    """How a kernel is computed."""
    variant: str
    threads: int | None
    tuning: str | None
    math: str | None
    isa: str | None
    library: str | None
    device: int


def given(**values: Any) -> Values:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def compute(kernel: str, inputs: dict[str, Array], outputs: dict[str, Array] | None = None,
            **named: Any) -> list[Array]:
    """Any kernel of rooflane.kernels() by name: its outputs, in the kernel's order.

    inputs: arrays by tensor name. outputs: arrays to write to, by name; those that are missing are
    made. Other arguments are options or the kernel's parameters.

    >>> import numpy
    >>> x = numpy.array([[3, 1, 2]], "float32")
    >>> [array.tolist() for array in compute("topk", {"x": x}, k=2)]
    [[[3.0, 2.0]], [[0, 2]]]
    """
    options = {name: named.pop(name) for name in list(named) if name in Options.__annotations__}
    first = next(iter(inputs.values()), None)
    return _core.compute(kernel, inputs, outputs or {}, named, options, allocator_for(first))


def _one(kernel: str, output: str, inputs: Values, out: Array | None, parameters: Values,
         options: Options) -> Array:
    """The output of a kernel that has one."""
    first = next(iter(inputs.values()), None)
    results = _core.compute(kernel, inputs, {} if out is None else {output: out}, parameters,
                            options, allocator_for(first))
    return results[0]


def _chain(epilogue: str | None, bias: Array | None, residual: Array | None) -> str | None:
    """An epilogue with what its arrays stand for: a bias first, a residual last."""
    names = epilogue.split("+") if epilogue else []
    if bias is not None and "bias" not in names:
        names.insert(0, "bias")
    if residual is not None and "add" not in names:
        names.append("add")
    return "+".join(names) or None


def gemm(a: Array, b: Array, c0: Array | None = None, *, out: Array | None = None,
         trans_a: bool = False, trans_b: bool = False, alpha: float = 1, beta: float | None = None,
         epilogue: str | None = None, bias: Array | None = None, residual: Array | None = None,
         gate: bool = False, slope: float | None = None, low: float | None = None,
         high: float | None = None, b_scale: Array | None = None, b_type: str | None = None,
         c_type: str | None = None, **options: Unpack[Options]) -> Array:
    """c = alpha·op(a)·op(b) + beta·c0, then the epilogue.

    a [...,m,k], with trans_a [...,k,m]; b [...,k,n], with trans_b [...,n,k], how a linear layer
    stores its weights; c0 and c [...,m,n]. As in numpy.matmul, leading axes are broadcast, a may be
    [k] and b [k], and transposed views (w.T, Fortran order) are read in place. beta is 1 where c0
    is given. a and b: float32, float16, bfloat16, or int8 (a also uint8); c: what c_type, out or c0
    says (f32, f16, bf16, s32).

    epilogue: names joined by +, in their order: bias, relu, leaky_relu (slope), gelu, gelu_tanh,
    silu, add, clamp (low, high). bias [n] and residual, like c, add theirs, first and last.
    gate: b is [k,2n], gate then up, and c = silu(a·gate) · (a·up).

    Quantised b, with trans_b: uint8 [n, bytes of a row] and b_type "q8_0", "q4_0" or "q4_1" as
    GGUF files store them; or int8 and b_scale [n], float32.

    >>> import numpy
    >>> a, b = numpy.eye(2, dtype="float32"), numpy.array([[1, -2], [3, -4]], "float32")
    >>> gemm(a, b, epilogue="relu")
    array([[1., 0.],
           [3., 0.]], dtype=float32)
    """
    if b_scale is not None and b_type is None:
        b_type = "s8c"
    form = shapes.product(
        given(a=a, b=b, b_scale=b_scale, c0=c0, bias=bias, residual=residual),
        {"trans_a": trans_a, "trans_b": trans_b}, out, shapes.in_blocks(b_type))
    parameters = given(
        trans_a=form.flags["trans_a"] or None, trans_b=form.flags["trans_b"] or None,
        alpha=None if alpha == 1 else alpha, beta=1.0 if beta is None and c0 is not None else beta,
        epilogue=_chain(epilogue, bias, residual), gate=gate or None, slope=slope, low=low,
        high=high, b_type=b_type, c_type=c_type)
    if form.slices:
        return _by_slices(form, parameters, out, options)
    c = _one("gemm", "c", form.arrays, form.out, parameters, options)
    return form.seen(c) if out is None else out


def _by_slices(form: shapes.Product, parameters: Values, out: Array | None,
               options: Options) -> Array:
    """A product for each element of the leading axes but the last."""
    def at(index: tuple[int, ...]) -> Values:
        return {name: array[index] if name in ("a", "b", "c0", "residual") else array
                for name, array in form.arrays.items()}

    places = list(itertools.product(*map(range, form.slices)))
    c = form.out
    if c is None:
        first = at(places[0])
        problem = _core.problem("gemm", parameters, first)
        name, dtype, shape = _core.outputs(problem, first)[0]
        c = allocator_for(form.arrays["a"])(name, (*form.slices, *shape), dtype)
    for place in places:
        _one("gemm", "c", at(place), c[place], parameters, options)
    return form.seen(c) if out is None else out


def softmax(x: Array, mask: Array | None = None, *, out: Array | None = None, scale: float = 1,
            **options: Unpack[Options]) -> Array:
    """y = softmax(scale·x + mask) over the last axis.

    x, y [...,cols]: float32, float16 or bfloat16; mask [...,cols] like x, or with fewer rows that
    repeat; of bool, true where an element takes part. A row that is -inf throughout gives NaN.

    >>> import numpy
    >>> softmax(numpy.zeros((1, 4), "float32"))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    return _one("softmax", "y", given(x=x, mask=shapes.added_mask(mask)), out,
                given(scale=None if scale == 1 else scale), options)


def layer_norm(x: Array, gamma: Array, beta: Array, residual: Array | None = None, *,
               eps: float = 1e-5, out: Array | None = None, **options: Unpack[Options]) -> Array:
    """y = gamma·(x - mean)/sqrt(variance + eps) + beta over the last axis; biased variance.

    x, y [...,cols]; gamma, beta [cols]; all float32, float16 or bfloat16. residual, like x, is
    added to x first.

    >>> import numpy
    >>> one = numpy.ones(2, "float32")
    >>> layer_norm(numpy.array([[1, 3]], "float32"), one, 0 * one, eps=0).tolist()
    [[-1.0, 1.0]]
    """
    return _one("layernorm", "y", given(x=x, residual=residual, gamma=gamma, beta=beta), out,
                {"eps": eps}, options)


def rms_norm(x: Array, gamma: Array, residual: Array | None = None, *, eps: float = 1e-5,
             out: Array | None = None, **options: Unpack[Options]) -> Array:
    """y = gamma·x/sqrt(mean(x²) + eps) over the last axis.

    x, y [...,cols]; gamma [cols]; all float32, float16 or bfloat16. residual, like x, is added to
    x first.

    >>> import numpy
    >>> rms_norm(numpy.array([[3, 3]], "float32"), numpy.ones(2, "float32"), eps=0).tolist()
    [[1.0, 1.0]]
    """
    return _one("rmsnorm", "y", given(x=x, residual=residual, gamma=gamma), out, {"eps": eps},
                options)


def attention(q: Array, k: Array, v: Array, mask: Array | None = None, *, causal: bool = False,
              scale: float | None = None, window: int | None = None, softcap: float | None = None,
              lengths: Array | None = None, kv_type: str | None = None, out: Array | None = None,
              **options: Unpack[Options]) -> Array:
    """o = softmax(scale·q·kᵀ + mask)·v for every head.

    q [batch,heads,q_len,head_dim]; k [batch,kv_heads,kv_len,head_dim]; v
    [batch,kv_heads,kv_len,v_dim]; o [batch,heads,q_len,v_dim]; heads is a multiple of kv_heads;
    all may lack the batch axis. float32, float16 or bfloat16, q and o alike, k and v alike; k and v
    also uint8 blocks with kv_type "q8_0". scale defaults to 1/sqrt(head_dim).

    causal: query i sees keys j <= i + kv_len - q_len. window: only the last so many of them.
    softcap: C·tanh(score/C). mask [q_len,kv_len], with any leading axes of length 1: added to the
    scores; of bool, true where a query sees a key. lengths [batch], integers: of each sequence only
    so many keys count. A query that sees no key gives zeros.

    >>> import numpy
    >>> one = numpy.ones((1, 1, 2, 4), "float32")
    >>> attention(one, one, one, causal=True).shape
    (1, 1, 2, 4)
    """
    inputs = given(q=q, k=k, v=v)
    no_batch = all(len(getattr(array, "shape", ())) == 3 for array in inputs.values())
    if no_batch:
        inputs = {name: shapes.viewable(array)[None] for name, array in inputs.items()}
    if mask is not None:
        inputs["mask"] = shapes.added_mask(shapes.matrix_of("mask", mask))
    if lengths is not None:
        inputs["lengths"] = shapes.indices("lengths", lengths)
    o = _one("attention", "o", inputs, out[None] if no_batch and out is not None else out,
             given(causal=causal or None, scale=scale, window=window, softcap=softcap,
                   kv_type=kv_type), options)
    if not no_batch:
        return o
    return o[0] if out is None else out


def activation(x: Array, kind: str, g: Array | None = None, *, out: Array | None = None,
               **options: Unpack[Options]) -> Array:
    """y = kind(x), with g kind(x)·g, element by element.

    x, g, y [...,cols]: float32, float16 or bfloat16. kind: a word of the kernel's parameter of that
    name in rooflane.kernels(): relu, gelu, gelu_tanh, silu, ...

    >>> import numpy
    >>> activation(numpy.array([-1, 2], "float32"), "relu").tolist()
    [0.0, 2.0]
    """
    return _one("activation", "y", given(x=x, g=g), out,
                given(kind=kind, gate=None if g is None else True), options)


def add(x: Array, r: Array, *, out: Array | None = None, **options: Unpack[Options]) -> Array:
    """y = x + r.

    x, y [...,cols]; r like x, or [cols] for every row; float32, float16 or bfloat16.

    >>> import numpy
    >>> add(numpy.zeros((2, 2), "float32"), numpy.array([1, 2], "float32")).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    row = len(r.shape) == 1 and len(x.shape) > 1
    return _one("add", "y", {"x": x, "r": r}, out, given(broadcast=row or None), options)


def rope(x: Array, *, base: float = 10000, offset: int = 0, style: str = "half",
         rotated: int | None = None, out: Array | None = None,
         **options: Unpack[Options]) -> Array:
    """Rotary position embedding: pairs of a head's elements rotated by position · base^(-2i/dim).

    x, y [batch,heads,len,head_dim]: float32, float16 or bfloat16. offset: the first position.
    style "half": element i with i + head_dim/2; "interleaved": 2i with 2i + 1. rotated: so many
    heads; those behind them are copied.

    >>> import numpy
    >>> x = numpy.ones((1, 1, 1, 2), "float32")
    >>> rope(x).tolist()  # position 0 is not rotated
    [[[[1.0, 1.0]]]]
    """
    return _one("rope", "y", {"x": x}, out,
                given(base=base, offset=offset, style=style, rotated=rotated), options)


def embed(table: Array, ids: Array, *, table_type: str | None = None, out: Array | None = None,
          **options: Unpack[Options]) -> Array:
    """y = table[ids].

    table [vocab,cols]: float32, or another format of the kernel's table_type, blocks as uint8;
    ids [...], integers, each below vocab; y [...,cols] float32.

    >>> import numpy
    >>> embed(numpy.eye(3, dtype="float32"), numpy.array([2], "int32")).tolist()
    [[0.0, 0.0, 1.0]]
    """
    return _one("embed", "y", {"table": table, "ids": shapes.indices("ids", ids)}, out,
                given(table_type=table_type), options)


def segment_sum(x: Array, segment: Array, segments: int, *, sorted: bool = False,
                out: Array | None = None, **options: Unpack[Options]) -> Array:
    """y[s] = the sum of the rows of x in segment s.

    x [edges,cols] float32; segment [edges], integers, each below segments; y [segments,cols].
    sorted: segment ascends.

    >>> import numpy
    >>> x = numpy.array([[1], [2], [3]], "float32")
    >>> segment_sum(x, numpy.array([1, 0, 1], "int32"), 2).tolist()
    [[2.0], [4.0]]
    """
    return _one("segment_sum", "y", {"x": x, "segment": shapes.indices("segment", segment)},
                out, given(segments=segments, sorted=sorted or None), options)


def segment_softmax(x: Array, segment: Array, segments: int, *, sorted: bool = False,
                    out: Array | None = None, **options: Unpack[Options]) -> Array:
    """y = softmax of x over the rows of one segment, column by column.

    x, y [edges,cols] float32; segment [edges], integers, each below segments. sorted: segment
    ascends.

    >>> import numpy
    >>> x = numpy.zeros((3, 1), "float32")
    >>> segment_softmax(x, numpy.array([1, 0, 1], "int32"), 2).tolist()
    [[0.5], [1.0], [0.5]]
    """
    return _one("segment_softmax", "y", {"x": x, "segment": shapes.indices("segment", segment)},
                out, given(segments=segments, sorted=sorted or None), options)


def topk(x: Array, k: int = 1, *, out: tuple[Array, Array] | None = None,
         **options: Unpack[Options]) -> tuple[Array, Array]:
    """The k largest of each row, the largest first: their values and columns.

    x [...,cols] float32; values float32 and ids int32 [...,k]; out: both.

    >>> import numpy
    >>> values, ids = topk(numpy.array([[1, 5, 3]], "float32"), 2)
    >>> values.tolist(), ids.tolist()
    ([[5.0, 3.0]], [[1, 2]])
    """
    outputs = {} if out is None else {"values": out[0], "ids": out[1]}
    values, ids = _core.compute("topk", {"x": x}, outputs, {"k": k}, options, allocator_for(x))
    return values, ids


def im2patch(image: Array, patch: int, *, out: Array | None = None,
             **options: Unpack[Options]) -> Array:
    """Patches of an image as rows, how a vision transformer reads it.

    image [batch,channels,height,width] float32, the batch axis may be missing; height and width
    are multiples of patch; the result is [batch,patches,channels·patch²].

    >>> import numpy
    >>> im2patch(numpy.zeros((3, 4, 4), "float32"), 2).shape
    (4, 12)
    """
    return _one("im2patch", "patches", {"image": image}, out, {"patch": patch}, options)


forget_plans = _core.forget_plans
