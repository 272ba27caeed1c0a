"""What nanochat computes before it trains: operations per token, and the number of steps."""

from collections.abc import Mapping

import torch

from falsifiers.nanochat.reference.model import Gpt, Shape
from harness import Setting


class Accounting:
    """The formulas of nanochat/gpt.py and scripts/base_train.py. See `Accounts`."""

    def __init__(self, setting: Setting) -> None: ...

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        return Gpt(Shape(**shape))

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Return 6 operations per parameter of a product, and 12 per number of a head for every attended token.

        Forward and backward pass make three products with each parameter, of two operations each. Attention makes two
        products in the forward pass and four in the backward pass; causality is ignored.
        """
        embedding = shape["vocabulary"] * shape["width"]
        return 6 * (self.parameters(shape) - embedding) + 12 * shape["layers"] * shape["width"] * shape["sequence"]

    def iterations(self, shape: Mapping[str, int], tokens_per_parameter: float, batch: Mapping[str, int]) -> int:
        tokens = batch["rows"] * shape["sequence"] * batch["accumulated"]
        return int(tokens_per_parameter * self.parameters(shape)) // tokens

    def parameters(self, shape: Mapping[str, int]) -> int:
        """Return the number of parameters: embedding, head, and twelve times the squared width per layer."""
        return 2 * shape["vocabulary"] * shape["width"] + shape["layers"] * 12 * shape["width"] ** 2
