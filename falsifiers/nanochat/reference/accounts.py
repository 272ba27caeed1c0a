"""What nanochat computes about itself before it trains: operations a token, and the number of steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from falsifiers.nanochat.reference.model import Gpt, Shape
from harness import Setting

__all__ = ["Accounting"]


class Accounting:
    """The formulas of nanochat/gpt.py and scripts/base_train.py."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        """See `Accounts`."""
        return Gpt(Shape(**shape))

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Return 6 operations a parameter of a product, and 12 a head's number for every token that is attended to.

        Forward and backward pass make three products of two operations with each parameter. Attention makes two
        products in the forward pass and four in the backward pass; the causal half is counted as if it were computed.
        """
        embedding = shape["vocabulary"] * shape["width"]
        return 6 * (self.parameters(shape) - embedding) + 12 * shape["layers"] * shape["width"] * shape["sequence"]

    def iterations(self, shape: Mapping[str, int], tokens_per_parameter: float, batch: Mapping[str, int]) -> int:
        """See `Accounts`."""
        tokens = batch["rows"] * shape["sequence"] * batch["accumulated"]
        return int(tokens_per_parameter * self.parameters(shape)) // tokens

    def parameters(self, shape: Mapping[str, int]) -> int:
        """Return the number of the model's parameters: embedding, head and twelve squares of the width a layer."""
        return 2 * shape["vocabulary"] * shape["width"] + shape["layers"] * 12 * shape["width"] ** 2
