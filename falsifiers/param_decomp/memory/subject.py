"""What the falsifiers of memory need: a step that can be predicted, and run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class StepProbe(Protocol):
    """Predicts the memory of a training step; built as `Subject(setting)`.

    A workload is a map of parameters that replace those of the profile.
    """

    def build(self, workload: Mapping[str, Any], device: str) -> Callable[[], object]:
        """Build trainer and state on a device; return a function that makes one step."""
        ...

    def peak(self, workload: Mapping[str, Any]) -> int:
        """The predicted peak of bytes that the CUDA allocator has allocated over the build and two steps."""
        ...

    def reserved(self, workload: Mapping[str, Any]) -> int:
        """The predicted peak of bytes that it has reserved."""
        ...

    def fits(self, workload: Mapping[str, Any], capacity: int) -> str:
        """Whether the allocator needs at most `capacity` bytes: `fits`, `does not fit` or `unknown`."""
        ...


@dataclass(frozen=True)
class Plan:
    """A compiler's figures for one device and one step, in bytes.

    Attributes:
        arguments: state, weights and inputs.
        temporaries: what exists only during the step.
        results: the new state.
        shared: results that reuse the memory of arguments.
        dtype: of the state.
    """

    arguments: int
    temporaries: int
    results: int
    shared: int
    dtype: str

    @property
    def peak(self) -> int:
        """The sum, with shared bytes counted once."""
        return self.arguments + self.temporaries + self.results - self.shared


class StepPlan(Protocol):
    """A compiler's plan for a training step on several devices; built as `Subject(setting)`."""

    def plan(self, workload: Mapping[str, Any]) -> Plan:
        """The plan of the step with a workload's parameters; nothing is executed."""
        ...

    def kept(self, workload: Mapping[str, Any]) -> tuple[int, int]:
        """Bytes of arguments and of the new state on the first device, without compilation."""
        ...
