"""F-GB10-ALLOC-001: the allocator's setting takes effect, and less reserved memory is unused."""

import json
from collections.abc import Mapping
from typing import Any

from falsifiers.nanochat.alternating_steps import steps
from falsifiers.nanochat.fresh_process import printed
from falsifiers.nanochat.subject import AllocatorSetting
from harness import Trial

_MODULE = "falsifiers.nanochat.alternating_steps"
_SECONDS = 240.0
"""The time for both processes."""


def falsify(trial: Trial[AllocatorSetting]) -> None:
    """Run steps with a varying batch in two processes: with the subject's setting, and without it."""
    with trial.subject_fault():
        variables, late = dict(trial.subject.environment()), dict(trial.subject.late())
        on = _steps(variables, late, trial.parameters["rows"])
    off = _steps({}, {}, trial.parameters["rows"])
    right = steps(trial.parameters["rows"])["losses"]  # this process has any allocator
    trial.measure(
        loss_differences=[
            abs(actual - true) / abs(true)
            for run in (on, off)
            for actual, true in zip(run["losses"], right, strict=True)
        ],
        setting_in_effect=on["expandable"],
        segments_expandable=on["segments_expandable"],
        expandable_without=off["expandable"],
        reserved=[off["reserved"], on["reserved"]],
        allocated=[off["allocated"], on["allocated"]],
        unused_over_off=(on["reserved"] - on["allocated"]) / max(1, off["reserved"] - off["allocated"]),
    )
    trial.resolve(device=on["device"])


def _steps(environment: Mapping[str, str], late: Mapping[str, str], rows: list[int]) -> dict[str, Any]:
    """Return what a process with these variables prints about its allocator."""
    statistics: dict[str, Any] = printed(
        _MODULE, json.dumps(dict(late)), json.dumps(rows),
        environment=environment, unset=("ALLOC_CONF",), seconds=_SECONDS,
    )  # fmt: skip
    return statistics
