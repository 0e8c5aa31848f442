#!/usr/bin/env python3
"""Kernels on NumPy's arrays: calls, and a plan for what is repeated."""
import numpy as np
import rooflane

rng = np.random.default_rng(1)
x = rng.standard_normal((64, 256), dtype=np.float32)
weights = rng.standard_normal((512, 256), dtype=np.float32)  # [n,k], as a linear layer stores them
bias = np.zeros(512, np.float32)

# y = gelu(x·weightsᵀ + bias), one pass over y; then row by row, in place.
y = rooflane.gemm(x, weights, trans_b=True, bias=bias, epilogue="gelu")
rooflane.softmax(y, out=y)
print("rows sum to 1:", np.allclose(y.sum(axis=1), 1))

# Planned once, the weights packed; run() computes on the memory that is bound.
plan = rooflane.plan("gemm", a=x, b=weights, trans_b=True, prepack=True, threads=2)
for _ in range(3):
    x += 1
    plan.run()
print("plan agrees:", np.allclose(plan.arrays["c"], x @ weights.T, atol=1e-2))
print(plan.facts["isa"], plan.facts["tuning"])
