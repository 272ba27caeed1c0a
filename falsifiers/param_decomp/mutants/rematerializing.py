"""Subjects that compute layers again wrongly, or not at all: one known defect each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from falsifiers.param_decomp.reference import Decomposition
from falsifiers.param_decomp.reference.drawing import Stream
from falsifiers.param_decomp.reference.target import Target
from harness import Setting

__all__ = ["DrawsAgain", "InputsRounded", "LastLayerOnly", "WrapsNothing"]


class _OtherTarget(Decomposition):
    """A target that computes its layers again in another way."""

    kind: type[Target] = Target

    def __init__(self, setting: Setting) -> None:
        """Exchange the target's code."""
        super().__init__(setting)
        self.target.__class__ = self.kind


class _Unwrapped(Target):
    def rematerialized(self, block: nn.Module, *inputs: Any) -> Tensor:
        output: Tensor = block(*inputs)
        return output


class WrapsNothing(_OtherTarget):
    """The option is read, and the layers are called as before."""

    kind = _Unwrapped


class _LastWrapped(_Unwrapped):
    def rematerialized(self, block: nn.Module, *inputs: Any) -> Tensor:
        if block is not self.blocks[-1]:
            return super().rematerialized(block, *inputs)
        output: Tensor = checkpoint(block, *inputs, use_reentrant=False)
        return output


class LastLayerOnly(_OtherTarget):
    """Only the last layer, which has no site, is computed again."""

    kind = _LastWrapped


class _Rounded(Target):
    def rematerialized(self, block: nn.Module, *inputs: Any) -> Tensor:
        x, *others = inputs
        return super().rematerialized(block, x.bfloat16().to(x.dtype), *others)


class InputsRounded(_OtherTarget):
    """The inputs that layers are computed again from are kept in half precision."""

    kind = _Rounded


class _RunningStream(Stream):
    """One generator for all draws, which goes on where it was."""

    running = torch.Generator().manual_seed(7)

    def generator(self, row: int, purpose: int) -> torch.Generator:
        return self.running if purpose >= 0 else super().generator(row, purpose)


class DrawsAgain(Decomposition):
    """The generator is not restored: a layer that is computed again has other masks than its forward had."""

    def stochastic_maskings(self, chunk: Any, lower: Any, stream: Stream) -> Any:
        """With the running generator."""
        return super().stochastic_maskings(chunk, lower, _RunningStream(*stream.key, stream.rows, stream.device))
