"""Accounts with one known defect each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from falsifiers.nanochat.reference.accounts import Accounting
from falsifiers.nanochat.reference.model import EPSILON, IGNORED, Gpt, Shape

__all__ = [
    "AccumulationForgotten", "AttentionForgotten", "CausalHalf", "EmbeddingCounted", "EmbeddingLeftOut",
    "FirstWeightsOfTorch", "ForwardOnly", "NormsDetached", "RoundedUp", "TimesAccumulation", "UncappedLogits",
]  # fmt: skip


class EmbeddingCounted(Accounting):
    """The embedding is counted as a product."""

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Count six operations for each of its parameters."""
        return super().flops_per_token(shape) + 6 * shape["vocabulary"] * shape["width"]


class AttentionForgotten(Accounting):
    """Only products with parameters are counted."""

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Count no attention."""
        return super().flops_per_token({**shape, "sequence": 0})


class CausalHalf(Accounting):
    """Attention is counted once for each pair that may see each other, which the kernel in use does not exploit."""

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Count half of the sequence."""
        return super().flops_per_token({**shape, "sequence": shape["sequence"] // 2})


class ForwardOnly(Accounting):
    """The backward pass is not counted."""

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Count a third."""
        return super().flops_per_token(shape) / 3


class TimesAccumulation(Accounting):
    """What eight micro-batches cost is stated for each token."""

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Multiply by the micro-batches of a step."""
        return super().flops_per_token(shape) * 8


class EmbeddingLeftOut(Accounting):
    """Tokens are planned for each parameter but the embedding's."""

    def parameters(self, shape: Mapping[str, int]) -> int:
        """Leave the embedding out, and add it where operations are counted."""
        return super().parameters(shape) - shape["vocabulary"] * shape["width"]

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Count operations as they are."""
        return super().flops_per_token(shape) + 6 * shape["vocabulary"] * shape["width"]


class AccumulationForgotten(Accounting):
    """A step is taken for one micro-batch."""

    def iterations(self, shape: Mapping[str, int], tokens_per_parameter: float, batch: Mapping[str, int]) -> int:
        """Plan with one."""
        return super().iterations(shape, tokens_per_parameter, {**batch, "accumulated": 1})


class RoundedUp(Accounting):
    """A last step is added for the rest of the tokens."""

    def iterations(self, shape: Mapping[str, int], tokens_per_parameter: float, batch: Mapping[str, int]) -> int:
        """Add one."""
        return super().iterations(shape, tokens_per_parameter, batch) + 1


class UncappedLogits(Accounting):
    """The logits have no cap, so the step counts what it should and is not nanochat's."""

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        """Take the cross-entropy of the logits as they are."""
        return Gpt(Shape(**shape), _uncapped)


class NormsDetached(Accounting):
    """No gradient flows through the size of a vector that is normalised."""

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        """Detach the size."""
        return Gpt(Shape(**shape), norm=_detached)


class FirstWeightsOfTorch(Accounting):
    """All matrices but the embedding begin as torch draws them."""

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        """Draw them again."""
        model = super().model(shape)
        for part in model.modules():
            if isinstance(part, torch.nn.Linear):
                part.reset_parameters()
        return model


def _uncapped(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = (hidden @ weight.T).float()
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def _detached(values: Tensor) -> Tensor:
    return values * (values.square().mean(dim=-1, keepdim=True) + EPSILON).rsqrt().detach()
