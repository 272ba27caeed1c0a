"""What the falsifiers of memory need: a step that can be predicted, and executed for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["StepProbe"]


class StepProbe(Protocol):
    """A prediction of the memory of a training step; built as `Subject(setting)`.

    A workload is a map of parameters that replace those of the profile.
    """

    def build(self, workload: Mapping[str, Any], device: str) -> Callable[[], object]:
        """Build trainer and state on a device; return what makes one step."""
        ...

    def peak(self, workload: Mapping[str, Any]) -> int:
        """The largest number of bytes that the CUDA allocator has allocated over the build and two steps, predicted."""
        ...

    def reserved(self, workload: Mapping[str, Any]) -> int:
        """The largest number of bytes that it has reserved, predicted."""
        ...

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """Whether the allocator needs at most `capacity` bytes: `fits`, `does not fit` or `unknown`."""
        ...
