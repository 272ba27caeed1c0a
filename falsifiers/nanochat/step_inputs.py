"""What steps read, as torch's operators get it: the tokens that are looked up, and the targets of the loss."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["StepInputs"]

_LOOKUP = torch.ops.aten.embedding.default
_LOSS = torch.ops.aten.nll_loss_forward.default


@final
class StepInputs(TorchDispatchMode):
    """Keeps the inputs of every lookup of an embedding and of every cross-entropy, while it is active.

    Attributes:
        tokens, targets: copies on the CPU, one for each step.
        places: of each step, the addresses of the memory in which its tokens and its targets lay.
        logit_bits: of each step, the width of a number from which its loss was made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.places: list[tuple[int, int]] = []
        self.logit_bits: list[int] = []
        self._looked_up = 0

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """Look at an operator's inputs, and let it run."""
        if operator is _LOOKUP:
            self.tokens.append(given[1].to("cpu", copy=True))
            self._looked_up = _place(given[1])
        if operator is _LOSS:
            self.targets.append(given[1].to("cpu", copy=True))
            self.places.append((self._looked_up, _place(given[1])))
            self.logit_bits.append(8 * given[0].element_size())
        return operator(*given, **(named or {}))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
