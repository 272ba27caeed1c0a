"""The parameters of a watch: the requested values of the job, and the bounds beyond which it is refuted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from harness.cli.options import value_of

__all__ = ["Given", "given_of"]


@dataclass(frozen=True)
class Given:
    """The parameters of a watch. A check whose parameter is None or empty is not judged."""

    device: str = ""
    """The requested device: cpu or cuda."""
    steps: int | None = None
    """The requested optimizer steps."""
    learning_rate: float | None = None
    """The highest rate of the schedule."""
    warmup_steps: int = 0
    schedule: str = ""
    """constant, linear or cosine, as transformers defines them; empty judges only rates of 0 and rates too high."""
    optimizer: str = ""
    """adamw lets the movement of weights be judged by the learning rate."""
    checkpoint_every: int | None = None
    jit: str = ""
    """With none, the first image that the CUDA driver must compile refutes."""
    predicted_bytes: float | None = None
    """The memory that `harness probe` predicts for the process, on the GPU if the device is cuda."""
    learn_by: int | None = None
    """The step by which the median loss of a window must have fallen by the share `fall`."""
    fall: float = 0.05
    rise: float = 1.25
    """A loss that rose by this factor, as the median of a window, is refuted."""
    window: int = 20
    """Steps of a window."""
    stall_seconds: float = 300.0
    """Seconds without a step that refute a job, if they are also `stall_steps` times its slowest step."""
    stall_steps: float = 10.0
    collapse: float = 5.0
    """A rate of steps below the best one by this factor is refuted."""
    collapse_seconds: float = 300.0
    """Seconds over which a rate of steps is measured."""
    late_seconds: float = 120.0
    """Seconds and, at once, steps after which a checkpoint that is due is missing."""
    late_steps: int = 1
    settle_seconds: float = 5.0
    """Seconds without a change after which a checkpoint is read."""
    creep_windows: int = 6
    """The number of windows, of `creep_seconds` each. Growth is extrapolated once memory has grown in all of them."""
    creep_seconds: float = 60.0
    memory_slack: float = 1.1
    """The factor over `predicted_bytes` that refutes."""
    idle_seconds: float = 300.0
    """Seconds of steps without any use of the GPU that refute."""
    step_factor: float = 3.0
    """AdamW moves an element by about its rate in a step; a larger largest movement, by this factor, is refuted."""
    least_movement: float = 0.01
    """A largest movement below this share of the rates is refuted."""
    rate_error: float = 0.02
    """Relative error of a logged rate that refutes."""

    def texts(self) -> list[str]:
        """Return the parameters that are set or have a default, in the form of `-P`, which a contract stores."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return [f"{name}={value}" for name, value in found.items() if value is not None and value != ""]

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Given:
        """Reverse `texts`. Raises ValueError as `given_of` does."""
        return given_of({name: value_of(text) for name, _, text in (text.partition("=") for text in texts)})


_WORDS: Mapping[str, tuple[str, ...]] = {
    "device": ("cpu", "cuda"),
    "schedule": ("constant", "linear", "cosine"),
    "optimizer": ("adamw", "other"),
    "jit": ("none",),
}


def given_of(values: Mapping[str, Any]) -> Given:
    """Return the parameters among these values. The others belong to the trainer. Null or empty means not set.

    Raises:
        ValueError: a value is of another type or out of range.
    """
    names = {field.name: field.type for field in fields(Given)}
    chosen = {name: values[name] for name in names if values.get(name) not in (None, "", "null")}
    if not chosen.get("checkpoint_every", True):
        del chosen["checkpoint_every"]  # 0 writes none
    for name, value in chosen.items():
        if name in _WORDS:
            if value not in _WORDS[name]:
                raise ValueError(f"{name} is {' or '.join(_WORDS[name])}, not {value!r}")
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} is a number that is not negative, not {value!r}")
        if str(names[name]).startswith("int"):
            if value != int(value):
                raise ValueError(f"{name} is a whole number, not {value!r}")
            chosen[name] = int(value)
        else:
            chosen[name] = float(value)
    return replace(Given(), **chosen)
