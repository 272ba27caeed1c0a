"""Subjects whose state has another size: one known defect each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.param_decomp.reference import Decomposition
from harness import Setting

__all__ = [
    "AmsGrad",
    "FewerSites",
    "HalfPrecisionState",
    "NoImportanceState",
    "OldSize",
    "PlainDescent",
    "SmallImportanceModel",
    "SteeperStart",
]


def _changed(setting: Setting, **parameters: object) -> Setting:
    return replace(setting, parameters={**setting.parameters, **parameters})


class HalfPrecisionState(Decomposition):
    """Components and their moments are stored in bfloat16."""

    def __init__(self, setting: Setting) -> None:
        """Half of the bytes."""
        super().__init__(_changed(setting, dtype="bfloat16"))


class SmallImportanceModel(Decomposition):
    """The importance model is left out of the sum: a tiny one stands in."""

    def __init__(self, setting: Setting) -> None:
        """A width of 256."""
        super().__init__(_changed(setting, importance_width=256, importance_hidden=64))


class NoImportanceState(Decomposition):
    """The importance model's optimizer is forgotten: a third of its bytes is left."""

    def slots(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Those of the components and sources."""
        return {name: one for name, one in super().slots().items() if name not in self.importance_weights()}


class PlainDescent(Decomposition):
    """Components are trained without moments."""

    def __init__(self, setting: Setting) -> None:
        """With SGD."""
        super().__init__(setting)
        self.component_optimizer = torch.optim.SGD(self.components().values())


class AmsGrad(Decomposition):
    """Adam keeps a third moment."""

    def __init__(self, setting: Setting) -> None:
        """With AMSGrad."""
        super().__init__(setting)
        self.component_optimizer = torch.optim.AdamW(self.components().values(), weight_decay=0.0, amsgrad=True)


class OldSize(Decomposition):
    """C is that of an older configuration."""

    def __init__(self, setting: Setting) -> None:
        """24,576."""
        super().__init__(_changed(setting, components=24576))


class FewerSites(Decomposition):
    """Only the down projections are decomposed."""

    def __init__(self, setting: Setting) -> None:
        """9 of 27."""
        super().__init__(_changed(setting, kinds=["down"]))


class SteeperStart(Decomposition):
    """p starts at 1.0."""

    def p(self, step: int) -> float:
        """From 1.0 to 0.4."""
        return 1.0 - 0.6 * step / self.config.steps
