"""Liger's fused loss in a compiled function, and what stands in for it on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch._inductor import config as inductor
from torch.nn.functional import cross_entropy

from falsifiers.nanochat.reference.model import IGNORED
from harness import Setting

__all__ = ["CompiledLoss"]

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class CompiledLoss:
    """A loss, plainly and under torch.compile."""

    def __init__(self, setting: Setting) -> None:
        """Take Liger's loss on a GPU, and elsewhere one that asks for the count of rows as Liger's does."""
        self._compiler = setting.parameters["compiler"]
        inductor.compile_threads = 1  # a trial starts no pool of processes, one for each core of a large host
        self.loss: Loss = _with_count if setting.device == "cpu" else _liger()

    def eager(self) -> Loss:
        """See `MaybeCompiled`."""
        return self.loss

    def compiled(self) -> Loss:
        """See `MaybeCompiled`."""
        loss: Loss = torch.compile(self.loss, backend=self._compiler, dynamic=False)
        return loss

    def environment(self) -> Mapping[str, str]:
        """See `MaybeCompiled`."""
        return {"TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1"}


def _liger() -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    module = LigerFusedLinearCrossEntropyLoss(ignore_index=IGNORED)
    return lambda hidden, weight, targets: module(weight, hidden, targets)


def _with_count(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the rows that count. The host waits for their number, and divides by it.

    Without such a row it is 0, as Liger's is.
    """
    count = (targets != IGNORED).sum().item()
    return cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED, reduction="sum") / max(count, 1)
