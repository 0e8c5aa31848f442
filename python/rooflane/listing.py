"""What there is: kernels and variants."""
from __future__ import annotations

from typing import NamedTuple

from rooflane import _core


class Parameter(NamedTuple):
    """A parameter of a kernel. `kind`: size, flag, real, choice or chain (words joined by +, of
    `choices`). `default` None: required, or it follows from others."""
    name: str
    kind: str
    required: bool
    default: bool | int | float | str | None
    choices: tuple[str, ...]


class Kernel(NamedTuple):
    """A kernel: what it computes in one line, its parameters in the order of problems' text, and
    the arithmetics that variants may offer, the first the default."""
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    maths: tuple[str, ...]


class Variant(NamedTuple):
    """An implementation of a kernel. `threads`: one, many or device. `absent`: why this machine or
    build lacks it; None where it is here."""
    kernel: str
    name: str
    backend: str
    threads: str
    absent: str | None


def kernels() -> list[Kernel]:
    """Every kernel.

    >>> [parameter.name for parameter in kernels()[0].parameters][:3]
    ['m', 'n', 'k']
    """
    return [Kernel(name, summary, tuple(Parameter(*each) for each in parameters), maths)
            for name, summary, parameters, maths in _core.kernels()]


def variants(kernel: str | None = None) -> list[Variant]:
    """Every variant, or those of one kernel. Raises ValueError for an unknown kernel.

    >>> any(variant.name == "hwy" for variant in variants("softmax"))
    True
    """
    found = [Variant(*each) for each in _core.variants()]
    if kernel is None:
        return found
    names = list(dict.fromkeys(variant.kernel for variant in found))
    if kernel not in names:
        raise ValueError(f"unknown kernel '{kernel}'; valid: {', '.join(names)}")
    return [variant for variant in found if variant.kernel == kernel]
