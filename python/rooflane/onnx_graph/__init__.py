"""ONNX graphs as model files (docs/models.md). Run by scripts/model_shapes.py, which makes the
environment that it needs.

The way of a file: `reading` parses it, `sizes` fills what it leaves open, `inference` knows every
shape, `contrib` writes fused operators out and `rewriting`, `patterns` and `attention` name what
several nodes compute together; `mapping` finds kernels for them, over `views` of tensors that
`building` lays out; `rolling` finds layers that repeat, `writing` prints the model and what no
kernel does."""
