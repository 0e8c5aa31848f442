#!/usr/bin/env python3
"""A function of one's own, verified and measured beside all others."""
import numpy
import rooflane


@rooflane.variant("softmax")
def mine(x, y):
    numpy.exp(x - x.max(1, keepdims=True), out=y)
    y /= y.sum(1, keepdims=True)


rows = rooflane.bench("softmax:rows=64,cols=512", variant=["hwy", "scalar"], threads=1, launches=1)
print(rooflane.roofline(rows)[["variant", "status", "p50_ns", "roof_pct", "verdict"]])
