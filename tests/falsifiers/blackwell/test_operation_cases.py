"""The sizes of single operations, for which a small adapter must have room."""

from __future__ import annotations

import torch

from falsifiers.blackwell.measuring.operation_cases import LARGEST, LARGEST_BATCH, product_errors
from falsifiers.blackwell.reference.torch_backend import TorchBackend


class Largest(TorchBackend):
    """Records the elements of the largest batch, and computes nothing."""

    elements = 0

    def matmul(
        self, a: torch.Tensor, b: torch.Tensor, *, transpose_a: bool = False, transpose_b: bool = False
    ) -> torch.Tensor:
        result = torch.empty(a.shape[0], a.shape[2 if transpose_a else 1], b.shape[1 if transpose_b else 2])
        self.elements = max(self.elements, a.numel(), b.numel(), result.numel())
        return result


def test_the_largest_batch_is_named() -> None:
    """Seed 20 draws this batch. An adapter with room for two matrices refused it, and a healthy subject failed."""
    backend = Largest()
    product_errors(backend, 20, "cpu")
    assert backend.elements == LARGEST_BATCH > 2 * LARGEST
