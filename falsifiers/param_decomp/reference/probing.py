"""The probe of this project, asked about the steps of the reference trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from falsifiers.param_decomp.memory.workloads import workloads
from falsifiers.param_decomp.reference.trainer import Decomposition
from harness import Setting
from harness.tools.probe import Prediction, predict, verdict

_FIRST_STEP = 5
"""The sources' learning rate has risen by then."""


class Probe:
    """`harness.tools.probe.predict` of a step; each workload is predicted once."""

    def __init__(self, setting: Setting) -> None:
        """Nothing is built yet."""
        self.setting = setting
        self._predictions: dict[str, Prediction] = {}

    def build(self, workload: Mapping[str, Any], device: str) -> Callable[[], object]:
        """A trainer with the workload's parameters."""
        parameters = {**self.setting.parameters, **workload}
        trainer = Decomposition(replace(self.setting, parameters=parameters, device=device))
        steps = count(_FIRST_STEP)
        return lambda: trainer.update(next(steps))

    def prediction(self, workload: Mapping[str, Any]) -> Prediction:
        """What the probe says."""
        key = repr(sorted(workload.items()))
        if key not in self._predictions:
            self._predictions[key] = predict(self.build, workload, "cuda")
        return self._predictions[key]

    def peak(self, workload: Mapping[str, Any]) -> int:
        """Allocated."""
        return self.prediction(workload).allocated

    def reserved(self, workload: Mapping[str, Any]) -> int:
        """Reserved."""
        return self.prediction(workload).reserved

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """By the probe's own error; the cap is on the allocator, so no context is taken off."""
        return str(verdict(self.prediction(workload), capacity, context=0).fit)


def largest(**parameters: Any) -> Callable[[], object]:
    """The step of the last workload of a profile, which needs most memory."""
    setting = Setting(parameters, "cuda", 0, Path(), Path())
    return Probe(setting).build(workloads(parameters)[-1], "cuda")
