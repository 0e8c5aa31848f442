"""Rooflane's kernels on your arrays, and their speed against this machine's limits.

>>> import numpy, rooflane
>>> a, b = numpy.ones((2, 3), "float32"), numpy.ones((3, 4), "float32")
>>> rooflane.gemm(a, b)[0]
array([3., 3., 3., 3.], dtype=float32)

Kernels: gemm, softmax, layer_norm, rms_norm, attention, activation, add, rope, embed, segment_sum,
segment_softmax, topk, im2patch, or any by name with compute; plan for work that is repeated.
Measuring: bench, read, roofline, compare, tune, ceilings, doctor, and @variant for your functions.
What there is: kernels, variants. `python -m rooflane` is the command line; docs/python.md the page.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooflane.errors import Unavailable as Unavailable
    from rooflane.functions import activation as activation
    from rooflane.functions import add as add
    from rooflane.functions import attention as attention
    from rooflane.functions import compute as compute
    from rooflane.functions import embed as embed
    from rooflane.functions import forget_plans as forget_plans
    from rooflane.functions import gemm as gemm
    from rooflane.functions import im2patch as im2patch
    from rooflane.functions import layer_norm as layer_norm
    from rooflane.functions import rms_norm as rms_norm
    from rooflane.functions import rope as rope
    from rooflane.functions import segment_softmax as segment_softmax
    from rooflane.functions import segment_sum as segment_sum
    from rooflane.functions import softmax as softmax
    from rooflane.functions import topk as topk
    from rooflane.listing import kernels as kernels
    from rooflane.listing import variants as variants
    from rooflane.measuring import bench as bench
    from rooflane.measuring import ceilings as ceilings
    from rooflane.measuring import compare as compare
    from rooflane.measuring import doctor as doctor
    from rooflane.measuring import read as read
    from rooflane.measuring import roofline as roofline
    from rooflane.measuring import tune as tune
    from rooflane.plans import Plan as Plan
    from rooflane.plans import plan as plan
    from rooflane.user_variants import variant as variant

# Imported when first asked for: the tuner and the workers of peers run where neither the module
# _core nor NumPy is.
_PLACES = {
    "errors": ["Unavailable"],
    "functions": ["activation", "add", "attention", "compute", "embed", "forget_plans", "gemm",
                  "im2patch", "layer_norm", "rms_norm", "rope", "segment_softmax", "segment_sum",
                  "softmax", "topk"],
    "listing": ["kernels", "variants"],
    "measuring": ["bench", "ceilings", "compare", "doctor", "read", "roofline", "tune"],
    "plans": ["Plan", "plan"],
    "user_variants": ["variant"],
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module("rooflane._core").version
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'rooflane' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"rooflane.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF, "__version__"])
