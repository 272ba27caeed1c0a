"""Our CUDA C kernels, one per file, and the list of those that a block's training step runs."""
