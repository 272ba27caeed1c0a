"""Deterministic kernels, so that equal runs give equal bits."""

import os

import torch


def be_deterministic() -> None:
    """Require deterministic kernels; operations without one raise. cuBLAS reads its setting when CUDA starts."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
