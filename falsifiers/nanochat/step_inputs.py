"""Records what steps read, at torch's operators: the looked-up tokens, and the targets of the loss."""

from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_LOOKUP = torch.ops.aten.embedding.default
_LOSS = torch.ops.aten.nll_loss_forward.default


@final
class StepInputs(TorchDispatchMode):
    """Records the inputs of every embedding lookup and of every cross-entropy while it is active.

    Attributes:
        tokens, targets: copies on the CPU, one per step.
        places: for each step, the memory addresses of its tokens and its targets.
        logit_bits: for each step, the bits of a number from which its loss was computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.places: list[tuple[int, int]] = []
        self.logit_bits: list[int] = []
        self._looked_up = 0

    def __torch_dispatch__(self, operator: Any, types: Any, parameters: Any = (), named: Any = None) -> Any:
        """Record an operator's inputs, and run it."""
        if operator is _LOOKUP:
            self.tokens.append(parameters[1].to("cpu", copy=True))
            self._looked_up = _place(parameters[1])
        if operator is _LOSS:
            self.targets.append(parameters[1].to("cpu", copy=True))
            self.places.append((self._looked_up, _place(parameters[1])))
            self.logit_bits.append(8 * parameters[0].element_size())
        return operator(*parameters, **(named or {}))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
