"""The independent oracle: a block's outputs and gradients by plain transformers and autograd; it imports no subject."""
