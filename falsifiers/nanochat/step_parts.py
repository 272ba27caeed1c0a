"""F-GB10-STEP-SPLIT-001: data, forward and backward pass take 0.3, 33 and 67 % of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from falsifiers.nanochat.oracle.text_rows import right_rows, tokens_of_sources
from falsifiers.nanochat.step_inputs import StepInputs
from falsifiers.nanochat.subject import Batch, Paths, read_back
from harness import Trial

__all__ = ["falsify"]

_PATH: Final = "current"
_WARMUP: Final = 2
_TEXT: Final = ("falsifiers/nanochat",)
_LONG_TEXT: Final = ("falsifiers", "harness")
"""For a GPU."""


def falsify(trial: Trial[Paths]) -> None:
    """Look at what steps of the subject read, and compare what it says of a step with what is measured here.

    Without a GPU, time is the number of floating-point operations done, so that no load on the machine matters.
    """
    steps = trial.parameters["laps"]
    with trial.subject_fault():
        given = trial.subject.batch()
        with StepInputs() as inputs:  # not while time is measured: to look takes time
            trial.subject.parts(_PATH, given, _WARMUP, lambda: None, time.perf_counter)
        if trial.device == "cpu":
            with _Operations() as clock, sdpa_kernel(SDPBackend.MATH):
                said = dict(trial.subject.parts(_PATH, given, steps, clock.synchronize, clock))
                right = _parts(trial, given, steps, clock.synchronize, clock)
        else:
            said = dict(trial.subject.parts(_PATH, given, steps, torch.cuda.synchronize, time.perf_counter))
            right = _parts(trial, given, steps, torch.cuda.synchronize, time.perf_counter)
    forward, backward = right
    whole = forward + backward
    trial.measure(
        percent_sum=sum(said.values()),
        data_percent=said.get("data", float("nan")),
        forward_percent=said.get("forward", float("nan")),
        backward_percent=said.get("backward", float("nan")),
        forward_error=abs(said.get("forward", float("nan")) - 100.0 * forward / whole),
        backward_error=abs(said.get("backward", float("nan")) - 100.0 * backward / whole),
        backward_over_forward=backward / forward,
    )
    _measure_inputs(trial, given, inputs)
    read_back(trial, trial.subject.model(_PATH))


def _measure_inputs(trial: Trial[Paths], given: Batch, inputs: StepInputs) -> None:
    """Compare what steps read with rows of the text, and where it lay with the batch that the subject was given."""
    asked = trial.parameters
    text = tokens_of_sources(_TEXT if trial.device == "cpu" else _LONG_TEXT, asked["vocabulary"])
    ignored = round(asked["ignored"] * asked["sequence"])
    here = {one.untyped_storage().data_ptr() for one in (given.tokens, given.targets)}
    trial.measure(
        right_rows=[
            right_rows(text, tokens, targets, asked["sequence"], ignored)
            for tokens, targets in zip(inputs.tokens, inputs.targets, strict=False)
        ],
        read_in_place=[len(here.intersection(places)) for places in inputs.places],
        logit_bits=inputs.logit_bits,
    )


def _parts(
    trial: Trial[Paths], given: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
) -> tuple[float, float]:
    """Return what forward and backward pass of the subject's model take, after warming up."""
    model = trial.subject.model(_PATH)
    forward = backward = 0.0
    for step in range(_WARMUP + steps):
        synchronize()
        started = clock()
        loss = trial.subject.forward(model, given)
        synchronize()
        between = clock()
        loss.backward()
        synchronize()
        if step >= _WARMUP:
            forward += between - started
            backward += clock() - between
        model.zero_grad()
    return forward, backward


@final
class _Operations:
    """A clock of floating-point operations, 1e12 to the second. As on a GPU, what is done shows only after waiting."""

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False)
        self._done = 0.0

    def __enter__(self) -> _Operations:
        self._counter.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._counter.__exit__(*raised)

    def __call__(self) -> float:
        return self._done

    def synchronize(self) -> None:
        """Let the clock show all operations so far."""
        self._done = self._counter.get_total_flops() / 1e12
