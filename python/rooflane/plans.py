"""Plans: a variant made ready for one problem, for work that is repeated."""
from __future__ import annotations

import numbers
from typing import Any

from rooflane import _core, shapes
from rooflane.allocation import allocator_for
from rooflane.functions import Options


class _Matrices:
    """How the operands of a product lay where it was planned."""

    def __init__(self, parameters: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.asked = {name: bool(parameters.get(name)) for name in ("trans_a", "trans_b")}
        self.in_blocks = shapes.in_blocks(parameters.get("b_type"))
        self.views, self.planned = shapes.matrices(arrays, self.asked, self.in_blocks)

    def like_planned(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Raises ValueError for a view that would want other flags."""
        views, flags = shapes.matrices(arrays, self.asked, self.in_blocks)
        for name, flag in flags.items():
            if name[-1] in views and flag != self.planned[name]:
                raise ValueError(f"{name[-1]} was planned with {name}={int(not flag)}, where this "
                                 f"array lies as {name}={int(flag)}: plan again")
        return views


class Plan(_core.Plan):
    """A variant made ready for one problem: schedule chosen, memory allocated, constants packed.

    Made by rooflane.plan. run() computes on the arrays that bind() was last given and allocates
    nothing; the plan keeps them alive. Threads that share a plan run it one after the other; plans
    of their own run at once.

    >>> import numpy, rooflane
    >>> plan = rooflane.plan("softmax", rows=1, cols=2)
    >>> x = numpy.zeros((1, 2), "float32")
    >>> plan.bind(x=x, y=x)
    >>> plan.run()
    >>> x
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, problem: str, options: Options, constants: dict[str, Any]) -> None:
        super().__init__(problem, options, constants)
        self.arrays: dict[str, Any] = {}  # what is bound, by tensor name
        self.matrices: _Matrices | None = None

    def bind(self, **arrays: Any) -> None:
        """Takes arrays for every tensor but constants; may be called again. Raises ValueError for
        a missing or unknown one, a wrong format or shape, one that needs a copy, an output that is
        read only or overlaps, ids out of range; what was bound before then stays."""
        self._bind(self.matrices.like_planned(arrays) if self.matrices else arrays)
        self.arrays = arrays

    @property
    def tensors(self) -> dict[str, tuple[str, str, tuple[int, ...]]]:
        """Each tensor by name: role (input, constant, output or updated), dtype, shape."""
        return {name: (role, dtype, shape)
                for name, role, dtype, shape in _core.tensors(self.problem)}

    @property
    def facts(self) -> dict[str, Any]:
        """What the plan chose, by the CSV's columns: isa, library, device, driver, path, tuning,
        workspace_bytes, packed_bytes."""
        return self._facts()

    def __repr__(self) -> str:
        return f"<rooflane.Plan {self.problem}>"


def _split(named: dict[str, Any]) -> tuple[Options, dict[str, Any], dict[str, Any]]:
    """Arguments by what they are: options, parameters, arrays."""
    options: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name, value in named.items():
        if value is None:
            continue
        if name in Options.__annotations__:
            options[name] = value
        elif isinstance(value, (numbers.Number, str)):
            parameters[name] = value
        else:
            arrays[name] = value
    return options, parameters, arrays  # type: ignore[return-value]


def plan(kernel: str, **named: Any) -> Plan:
    """Plans a kernel: from sizes, from arrays, or from a problem's text.

    rooflane.plan("gemm", m=64, n=64, k=64)      bind(a=..., b=..., c=...) comes next
    rooflane.plan("gemm", a=a, b=b)              bound; plan.arrays["c"] was made
    rooflane.plan("gemm:m=64,n=64,k=64")         as the command line writes it
    rooflane.plan("gemm", a=a, b=b, prepack=1)   packs b now: it may change or go afterwards

    Besides: the options of rooflane.functions (variant, threads, tuning, math, ...) and the
    kernel's parameters. Raises as rooflane.gemm and the others do.

    >>> import numpy
    >>> a = numpy.ones((1, 4, 8), "float32")
    >>> ready = plan("gemm", a=a, b=a, trans_b=True, threads=1)
    >>> ready.run()
    >>> ready.arrays["c"][0, 0]
    array([8., 8., 8., 8.], dtype=float32)
    """
    options, parameters, arrays = _split(named)
    matrices, views = None, arrays
    if kernel == "gemm":
        matrices = _Matrices(parameters, arrays)
        views = matrices.views
        parameters = {name: value for name, value in {**parameters, **matrices.planned}.items()
                      if value is not False}
    if ":" in kernel:
        problem = kernel
        if parameters:
            raise ValueError(f"{kernel} says it all: {', '.join(parameters)} cannot be added")
    else:
        problem = _core.problem(kernel, parameters, views)
    roles = {name: role for name, role, _, _ in _core.tensors(problem)}
    constants = {name: array for name, array in views.items() if roles.get(name) == "constant"}
    made = Plan(problem, options, constants)
    made.matrices = matrices
    if len(arrays) > len(constants):
        allocate = allocator_for(next(iter(arrays.values())))
        for name, dtype, shape in _core.outputs(problem, views):
            if name not in arrays:
                arrays[name] = allocate(name, shape, dtype)
        made.bind(**{name: array for name, array in arrays.items() if name not in constants})
    return made
