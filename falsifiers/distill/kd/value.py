"""F-DISTILL-KD-LOSS-001: the distillation loss has the value of its formula, for all inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falsifiers.distill.kd.cases import cases, first_cases, question
from falsifiers.distill.kd.formulas import truth
from falsifiers.distill.kd.subject import KdLoss
from harness import Trial

__all__ = ["falsify"]

_DTYPES = ("float64", "float32", "bfloat16")


def falsify(trial: Trial[KdLoss]) -> None:
    """Compare the loss with the formula in float64, case by case; the contract bounds the error for each dtype."""
    devices: set[str] = set()

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        asked = question(case, trial.device)
        right = truth(asked)  # first, because a subject may work in its inputs' memory
        with trial.subject_fault():
            answer = trial.subject(asked)
            devices.add(answer.loss.device.type)
            loss = float(answer.loss)
        # A sum is no more exact than its terms: beyond 1 nat, the error is taken relative to them.
        return {f"errors_{case['dtype']}": abs(loss - right.loss) / max(1.0, right.magnitude)}

    drawn = cases(trial.parameters, _DTYPES)
    first = first_cases(_DTYPES)
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=first))
    trial.resolve(device="+".join(sorted(devices)))
