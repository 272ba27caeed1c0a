"""The expected gradients of a training step: the same model and weights, with torch's own formulas."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor, nn

from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend

__all__ = ["TrueGradients", "relative_error"]


class TrueGradients:
    """A second model, in float32 on the same device, that takes the subject's weights."""

    def __init__(self, shape: BlockShape, layers: int, vocabulary: int, device: torch.device) -> None:
        """Build the model with few drawn weights, because they are replaced. Products use full float32, not TF32."""
        block = Block(shape, CublasBackend("ieee") if device.type == "cuda" else TorchBackend())
        self._model = LanguageModel(shape, [block], 1, 0, device)
        self._model.embedding = nn.Parameter(torch.empty(vocabulary, shape.hidden, device=device))
        self._model.blocks.extend(copy.deepcopy(self._model.blocks[0]) for _ in range(1, layers))

    def other_weights(self, weights: Sequence[Tensor]) -> list[str]:
        """The subject's weights whose shape differs from the model's, by position; empty if all agree."""
        shapes = zip_longest(
            (list(one.shape) for one in weights), (list(one.shape) for one in self._model.parameters())
        )
        return [
            f"weight {number} is {found or 'none'}, and should be {wanted or 'none'}"
            for number, (found, wanted) in enumerate(shapes)
            if found != wanted
        ]

    def at(self, weights: Sequence[nn.Parameter], tokens: Tensor) -> list[Tensor]:
        """The gradients of all weights, in the order of `LanguageModel.parameters`, for ids [batch, sequence + 1]."""
        own = list(self._model.parameters())
        with torch.no_grad():
            for mine, theirs in zip(own, weights, strict=True):
                mine.copy_(theirs)
        gradients = torch.autograd.grad(self._model.loss(tokens), own)
        return list(gradients)


def relative_error(found: Tensor | None, wanted: Tensor) -> float:
    """The distance of two gradients relative to the length of the true one. None counts as zeros."""
    length = float(torch.linalg.vector_norm(wanted))
    difference = wanted if found is None else found.to(wanted) - wanted
    distance = float(torch.linalg.vector_norm(difference))
    return distance / length if length > 0.0 else 0.0 if distance == 0.0 else math.inf
