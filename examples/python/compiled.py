#!/usr/bin/env python3
"""Functions that Numba and JAX compile, verified and measured beside rooflane's kernel."""
import jax
import numba
import numpy
import rooflane


@rooflane.variant("softmax", threads="many")
@numba.njit(parallel=True)
def by_numba(x, y):
    for i in numba.prange(len(x)):
        y[i] = numpy.exp(x[i] - x[i].max())
        y[i] /= y[i].astype(numpy.float64).sum()  # in float32 it would be INACCURATE


@rooflane.variant("softmax", arrays="jax", threads="many")
@jax.jit
def by_jax(x):
    return jax.nn.softmax(x, axis=1)


rows = rooflane.bench("softmax:rows=64,cols=512", variant="hwy", launches=1)
print(rows[["variant", "threads", "status", "p50_ns", "library"]].to_string())
