"""Updates that are not what they are called: one known defect each."""

from __future__ import annotations

from torch import Tensor

from falsifiers.param_decomp.reference.updating import Updates

__all__ = ["DonationIgnored", "FirstMomentForgotten", "MomentsKept", "PieceByPiece"]


class DonationIgnored(Updates):
    """The donation is asked for and not made: old and new state live together (spd #971, #932)."""

    def update_donating(self) -> None:
        """Into new memory."""
        self.update_keeping()


class MomentsKept(Updates):
    """Only the weights are donated."""

    def update_donating(self) -> None:
        """The moments are made anew."""
        made = [self.updated(*three, gradient) for three, gradient in zip(self.tensors, self.gradients, strict=True)]
        self.tensors = [(old[0].copy_(new[0]), new[1], new[2]) for old, new in zip(self.tensors, made, strict=True)]


class PieceByPiece(Updates):
    """Labelled as keeping the old state; each old tensor is dropped as soon as its successor is there."""

    def update_keeping(self) -> None:
        """In effect a donation."""
        self.update_donating()


class FirstMomentForgotten(Updates):
    """The new state has the old first moment."""

    def updated(self, weight: Tensor, first: Tensor, second: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weight and second moment are right."""
        made = super().updated(weight, first, second, gradient)
        return made[0], first.clone(), made[2]
