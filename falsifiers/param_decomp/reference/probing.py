"""Applies this project's memory probe to the steps of the reference trainer."""

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
"""By this step, the sources' learning rate has risen."""


class Probe:
    """`harness.tools.probe.predict` for a step; each workload is predicted once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._predictions: dict[str, Prediction] = {}

    def build(self, workload: Mapping[str, Any], device: str) -> Callable[[], object]:
        parameters = {**self.setting.parameters, **workload}
        trainer = Decomposition(replace(self.setting, parameters=parameters, device=device))
        steps = count(_FIRST_STEP)
        return lambda: trainer.update(next(steps))

    def prediction(self, workload: Mapping[str, Any]) -> Prediction:
        key = repr(sorted(workload.items()))
        if key not in self._predictions:
            self._predictions[key] = predict(self.build, workload, "cuda")
        return self._predictions[key]

    def peak(self, workload: Mapping[str, Any]) -> int:
        return self.prediction(workload).allocated

    def reserved(self, workload: Mapping[str, Any]) -> int:
        return self.prediction(workload).reserved

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """By the probe's own error; the cap is on the allocator, so the CUDA context is not subtracted."""
        return str(verdict(self.prediction(workload), capacity, context=0).fit)


def largest(**parameters: Any) -> Callable[[], object]:
    """The step of the profile's last workload, which needs most memory."""
    setting = Setting(parameters, "cuda", 0, Path(), Path())
    return Probe(setting).build(workloads(parameters)[-1], "cuda")
