"""Plans: a variant made ready for one problem, for work that is repeated."""
from __future__ import annotations

import numbers
from typing import Any

from rooflane import _core
from rooflane.allocation import allocator_for
from rooflane.functions import Options


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

    def bind(self, **arrays: Any) -> None:
        """Takes arrays for every tensor but constants; may be called again. Raises ValueError for
        a missing or unknown one, a wrong format or shape, one that needs a copy, an output that is
        read only or overlaps, ids out of range; what was bound before then stays."""
        self._bind(arrays)
        self.arrays = arrays

    @property
    def tensors(self) -> dict[str, tuple[str, str, tuple[int, ...]]]:
        """Of each tensor by name: role (input, constant, output or updated), dtype, shape."""
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
    if ":" in kernel:
        problem = kernel
        if parameters:
            raise ValueError(f"{kernel} says it all: {', '.join(parameters)} cannot be added")
    else:
        problem = _core.problem(kernel, parameters, arrays)
    roles = {name: role for name, role, _, _ in _core.tensors(problem)}
    constants = {name: array for name, array in arrays.items() if roles.get(name) == "constant"}
    made = Plan(problem, options, constants)
    if len(arrays) > len(constants):
        allocate = allocator_for(next(iter(arrays.values())))
        for name, dtype, shape in _core.outputs(problem, arrays):
            if name not in arrays:
                arrays[name] = allocate(name, shape, dtype)
        made.bind(**{name: array for name, array in arrays.items() if name not in constants})
    return made
