"""The errors of the probe."""

from __future__ import annotations

__all__ = ["READ", "ProbeError", "StepFailed", "Unseeable"]

READ = "keep the value on the device, read it outside the step, or only log what .item() returns"
"""The remedy if a step branches on a value on the device."""


class ProbeError(Exception):
    """The probe cannot run; the text names the cause and the remedy."""


class StepFailed(ProbeError):
    """The build or the step raised an exception; it is the cause of this one."""


class Unseeable(ProbeError):
    """The step does something that fake tensors cannot show, so that no number would be right.

    Attributes:
        operator: the operator, such as `aten._local_scalar_dense.default`.
        place: the line of the step's code, as `file:line`.
        remedy: what to change.
    """

    def __init__(self, operator: str, place: str, remedy: str) -> None:
        super().__init__(f"{place}: the probe cannot see through {operator}; {remedy}")
        self.operator = operator
        self.place = place
        self.remedy = remedy
