"""Compares gradients with those of the independent model for the same weights, batch and teacher."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import NotTheModel
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot
from falsifiers.distill.oracle.tolerances import TOLERANCES
from harness import Trial, propagates
from harness.authoring.shadow_step import differences, worst


class TrueGradients:
    """Computes the gradients, before clipping, of the loss that the trial's parameters describe."""

    def __init__(self, trial: Trial[Any]) -> None:
        configuration = replace(Configuration.of(trial.parameters), gradient_norm=None)
        self._shadow = ShadowStep(configuration, torch.device(trial.device))

    @propagates
    def error(
        self,
        seen: Mapping[str, Tensor],
        student: Mapping[str, Tensor],
        teacher: Mapping[str, Tensor],
        batch: tuple[Tensor, Tensor],
    ) -> float:
        """The largest error of a tensor, in tolerances of the student's dtype, without errors that rounding explains.

        It is infinite if a tensor has no gradient, or if the weights are not the model's.

        Args:
            seen: the subject's gradients.
            student, teacher: the weights with which the subject computed them.
            batch: inputs and labels [rows, sequence].
        """
        before = Snapshot(student, None)
        dtype = next(iter(student.values())).dtype
        tolerance = TOLERANCES["bfloat16" if dtype in (torch.bfloat16, torch.float16) else "float32"]["gradient"]
        try:
            expected = self._shadow.step(1, before, *batch, teacher).gradients
            largest = worst(differences("gradient", seen, expected))["gradient"]
            if largest.ratio > tolerance:
                rounded = self._shadow.step(1, before, *batch, teacher, dtype).gradients
                largest = worst(differences("gradient", seen, expected, rounded=rounded))["gradient"]
        except NotTheModel as error:
            print(f"not {self._shadow.configuration.model}: {error}")
            return math.inf
        print(f"largest error of a gradient: {largest.tensor}, {largest.ratio:.3g}")
        return largest.ratio / tolerance
