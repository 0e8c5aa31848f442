"""Arrays for results: PyTorch's where the first input is a tensor of it, else NumPy's."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rooflane.errors import Unavailable

Allocate = Callable[[str, tuple[int, ...], str], Any]


def numpy_empty(name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """An untouched NumPy array; bfloat16 is ml_dtypes'. Raises Unavailable."""
    try:
        import numpy
        if dtype != "bfloat16":
            return numpy.empty(shape, dtype)
        import ml_dtypes
    except ImportError as error:
        raise Unavailable(f"{name}, {dtype}, needs the package {error.name}; or pass out="
                          ) from None
    return numpy.empty(shape, ml_dtypes.bfloat16)


def torch_empty(name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """An untouched tensor of PyTorch."""
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype))


def allocator_for(example: object) -> Allocate:
    """What makes arrays like `example`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(example, torch.Tensor):
        return torch_empty
    return numpy_empty
