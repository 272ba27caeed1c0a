"""SPEC-BLACKWELL-FIX-001: the training backward of a transformer block, on kernels of several makes."""
