"""Liger's fused loss in a compiled function, and its replacement on a machine without a GPU."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch._inductor import config as inductor
from torch.nn.functional import cross_entropy

from falsifiers.nanochat.reference.model import IGNORED
from harness import Setting

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class CompiledLoss:
    """A loss, eager and under torch.compile. See `MaybeCompiled`."""

    def __init__(self, setting: Setting) -> None:
        """Take Liger's loss on a GPU; elsewhere a loss that reads the row count on the host, as Liger's does."""
        self._compiler = setting.parameters["compiler"]
        inductor.compile_threads = 1  # a trial starts no pool of processes, one for each core of a large host
        self.loss: Loss = _with_count if setting.device == "cpu" else _liger()

    def eager(self) -> Loss:
        return self.loss

    def compiled(self) -> Loss:
        loss: Loss = torch.compile(self.loss, backend=self._compiler, dynamic=False)
        return loss

    def environment(self) -> Mapping[str, str]:
        return {"TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1"}


def _liger() -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    module = LigerFusedLinearCrossEntropyLoss(ignore_index=IGNORED)
    return lambda hidden, weight, targets: module(weight, hidden, targets)


def _with_count(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the rows that count. The host waits for their number, and divides by it.

    Without such a row the loss is 0, as Liger's is.
    """
    count = (targets != IGNORED).sum().item()
    return cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED, reduction="sum") / max(count, 1)
