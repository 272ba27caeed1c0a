"""A step predicted for several values of its parameters, as a JSON document."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.base.strictjson import JsonObject
from harness.tools.probe.fit import Fit, Verdict, verdict
from harness.tools.probe.prediction import Prediction, predict

__all__ = ["Case", "document", "largest", "swept"]


@dataclass(frozen=True, slots=True)
class Case:
    """One choice of parameters, its prediction, and whether it fits."""

    parameters: dict[str, Any]
    prediction: Prediction
    verdict: Verdict


def swept(
    build: Callable[..., Callable[[], Any]],
    fixed: Mapping[str, Any],
    sweeps: Mapping[str, Sequence[Any]],
    *,
    device: str,
    ranks: int,
    capacity: int | None,
) -> Iterator[Case]:
    """Yield a case for every combination of the swept values."""
    for values in itertools.product(*sweeps.values()):
        parameters = {**fixed, **dict(zip(sweeps, values, strict=True))}
        prediction = predict(build, device=device, ranks=ranks, **parameters)
        yield Case(parameters, prediction, verdict(prediction, capacity))


def largest(cases: Sequence[Case], name: str) -> Any:
    """The largest value of a swept parameter up to which every case fits; None if not even the smallest does."""
    found = None
    for value in sorted({case.parameters[name] for case in cases}):
        if any(case.verdict.fit is not Fit.FITS for case in cases if case.parameters[name] == value):
            break
        found = value
    return found


def document(target: str, cases: Sequence[Case], sweeps: Mapping[str, Sequence[Any]]) -> JsonObject:
    """The document of `--json` (contracts/schema/probe.schema.json)."""
    device = cases[0].prediction.device
    numeric = [name for name, values in sweeps.items() if all(isinstance(value, int | float) for value in values)]
    return {
        "format": 1,
        "target": target,
        "device": {"name": device.name, "context": device.context, "error": device.error},
        "cases": [_case(case) for case in cases],
        "largest_that_fits": {name: largest(cases, name) for name in numeric},
    }


def _case(case: Case) -> JsonObject:
    prediction = case.prediction
    return {
        "parameters": case.parameters,
        "fit": case.verdict.fit.value,
        "capacity": case.verdict.capacity,
        "retries": case.verdict.retries,
        "unmeasured": sorted(prediction.trace.unmeasured),
        "allocated": prediction.allocated,
        "reserved": prediction.reserved,
        "by_owner": dict(prediction.by_owner),
        "by_module": dict(sorted(prediction.by_module.items(), key=lambda item: -item[1])),
        "peak": prediction.place._asdict(),
        "phases": [asdict(each) for each in prediction.phases],
        "timeline": [list(point) for point in prediction.timeline],
    }
