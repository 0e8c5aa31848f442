#!/usr/bin/env python3
"""A model of PyTorch with rooflane's kernels, and what they gain in it."""
import rooflane.torch
import torch

torch.manual_seed(1)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True)
model, x = layer.eval(), torch.randn(2, 128, 256)

with torch.no_grad():
    want = model(x)
    with rooflane.torch.use() as used:
        y = model(x)
print("largest difference:", float((y - want).abs().max()))
print(used)

print(rooflane.torch.bench(model, x))
