"""Compiled losses with one known defect each."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.nanochat.reference.compiled import CompiledLoss, Loss
from falsifiers.nanochat.reference.model import IGNORED

__all__ = [
    "AlwaysBreaks",
    "DividesByAllRows",
    "FirstResultKept",
    "GradientDoubled",
    "NeverAsks",
    "WrongInEager",
]


class DividesByAllRows(CompiledLoss):
    """Compiled, the mean is over all rows."""

    def compiled(self) -> Loss:
        """Rescale the compiled loss."""
        loss = super().compiled()

        def scaled(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            return loss(hidden, weight, targets) * ((targets != IGNORED).sum() / len(targets))

        return scaled


class FirstResultKept(CompiledLoss):
    """Compiled, the second call is off by what the first one left in a buffer."""

    def compiled(self) -> Loss:
        """Add a thousandth from the second call on."""
        loss, calls = super().compiled(), [0]

        def again(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            calls[0] += 1
            return loss(hidden, weight, targets) * (1.001 if calls[0] > 1 else 1.0)

        return again


class GradientDoubled(CompiledLoss):
    """Compiled, the gradient is added twice."""

    def compiled(self) -> Loss:
        """Double the gradient and keep the value."""
        loss = super().compiled()

        def doubled(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            value = loss(hidden, weight, targets)
            return value + (value - value.detach())

        return doubled


class WrongInEager(CompiledLoss):
    """What the compiled loss is compared with is wrong itself."""

    def eager(self) -> Loss:
        """Count a row more."""
        loss = super().eager()
        return lambda hidden, weight, targets: loss(hidden, weight, targets) * (1.0 - 1.0 / len(targets))


class NeverAsks(CompiledLoss):
    """The count of rows stays on the device."""

    def compiled(self) -> Loss:
        """Compile a loss without a scalar of the host."""
        plain = torch.nn.functional.cross_entropy
        return torch.compile(  # type: ignore[no-any-return]
            lambda hidden, weight, targets: plain(hidden @ weight.T, targets, ignore_index=IGNORED),
            backend=self._compiler,
        )


class AlwaysBreaks(CompiledLoss):
    """The graph breaks for another reason than a scalar."""

    def compiled(self) -> Loss:
        """Break the graph between two operations."""

        def broken(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            doubled = 2.0 * hidden
            torch._dynamo.graph_break()
            return self.loss(doubled - hidden, weight, targets)

        return torch.compile(broken, backend=self._compiler)  # type: ignore[no-any-return]
