"""Predictions of memory with one known defect each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from falsifiers.param_decomp.reference.probing import Probe
from harness.tools.probe import Prediction

__all__ = [
    "AdamForgotten",
    "AlwaysUnknown",
    "BatchForgotten",
    "CompilesMeansFits",
    "EagerInit",
    "GradientsForgotten",
    "LogitsForgotten",
    "NeverUnknown",
    "OneStepOnly",
    "RematIgnored",
    "SequenceForgotten",
]


class _Without(Probe):
    """A prediction that leaves out what one owner holds."""

    owner = ""

    def peak(self, workload: Mapping[str, Any]) -> int:
        """Less that."""
        return super().peak(workload) - self.prediction(workload).by_owner[self.owner]


class AdamForgotten(_Without):
    """The optimizer's state is left out."""

    owner = "optimizer"


class GradientsForgotten(_Without):
    """The gradients are left out."""

    owner = "gradients"


class OneStepOnly(Probe):
    """Only the first step is looked at: the optimizer's state is made at its end."""

    def peak(self, workload: Mapping[str, Any]) -> int:
        """Of the build and one step."""
        return max(one.allocated for one in self.prediction(workload).phases[:-1])


class _OfAnother(Probe):
    """The prediction of another workload."""

    changed: ClassVar[Mapping[str, Any]] = {}

    def prediction(self, workload: Mapping[str, Any]) -> Prediction:
        """With some parameters replaced."""
        return super().prediction({**workload, **self.changed})


class RematIgnored(_OfAnother):
    """Rematerialization is not seen."""

    changed: ClassVar = {"remat": False}


class LogitsForgotten(_OfAnother):
    """The logits, temporary tensors, are not seen."""

    changed: ClassVar = {"vocabulary": 8}


class BatchForgotten(_OfAnother):
    """The prediction is that of one row, as if rows were accumulated."""

    changed: ClassVar = {"batch": 1, "reference_batch": 1}


class SequenceForgotten(_OfAnother):
    """The prediction is that of a short sequence."""

    changed: ClassVar = {"sequence": 8}


class CompilesMeansFits(Probe):
    """What can be traced is said to fit (the source's FULL32L_MEMORY_MODEL: compiles is not fits)."""

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """Always."""
        self.prediction(workload)
        return "fits"


class NeverUnknown(Probe):
    """The predicted number is compared with the cap, as if it had no error."""

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """One of two."""
        return "fits" if self.reserved(workload) <= capacity else "does not fit"


class AlwaysUnknown(Probe):
    """No verdict is ever given."""

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """Always."""
        return "unknown"


class EagerInit(Probe):
    """One large tensor of the state is made for real while the step is traced."""

    def prediction(self, workload: Mapping[str, Any]) -> Prediction:
        """Keep 2 GiB."""
        self.eager = torch.ones(2**29)
        return super().prediction(workload)
