"""A subject that changes the batch it was handed: one known defect."""

from __future__ import annotations

from torch import Tensor

from falsifiers.distill.reference import Distillation

__all__ = ["FirstRowWrittenOver"]


class FirstRowWrittenOver(Distillation):
    """The first row is written over all others, in the caller's memory."""

    def gradients(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Those of the batch as it is afterwards."""
        for tensor in (inputs, labels):
            tensor[1:] = tensor[0].clone()
        return super().gradients(inputs, labels)
