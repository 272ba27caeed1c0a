"""Kernels that add in one order, so that equal runs give equal bits."""

from __future__ import annotations

import os

import torch

__all__ = ["be_deterministic"]


def be_deterministic() -> None:
    """Ask for deterministic kernels, or for an error where there is none; cuBLAS reads its part when CUDA starts."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
