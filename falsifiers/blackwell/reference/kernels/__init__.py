"""Our CUDA C kernels, one file each, and what a block's training step runs of them."""
