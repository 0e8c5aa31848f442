"""The kernels that there may be peers of. Standard library only."""

KERNELS = ("gemm", "softmax", "layernorm", "attention", "add", "activation", "rmsnorm")
# With ids, or of them; on a CPU.
INDEX_KERNELS = ("embed", "segment_sum", "segment_softmax", "topk", "im2patch")
