"""SPEC-BLACKWELL-FIX-001: kernels for training a transformer block on Blackwell GPUs, and their fallbacks."""
