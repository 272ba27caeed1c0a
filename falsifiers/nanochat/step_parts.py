"""F-GB10-STEP-SPLIT-001: data, forward and backward pass take 0.3, 33 and 67 % of a step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final, final

import torch
from torch.compiler import set_stance
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from falsifiers.nanochat.oracle.text_rows import right_rows, tokens_of_sources
from falsifiers.nanochat.step_inputs import StepInputs
from falsifiers.nanochat.subject import Batch, Parts, Paths, read_back
from harness import NotMeasured, Trial
from harness.authoring.timing import Interval, Timing

_PATH: Final = "current"
_WARMUP: Final = 2
_ROUNDS: Final = 3
"""Rounds on a GPU."""
_TEXT: Final = ("nn/utils",)
_LONG_TEXT: Final = ("_dynamo",)
"""For a GPU."""


def falsify(trial: Trial[Paths]) -> None:
    """Check what the subject's steps read, and compare its stated shares with those measured here.

    Without a GPU, time is the number of floating-point operations, so that other load does not matter.

    Raises:
        NotMeasured: a limit lies within the noise of the shares.
    """
    is_counted = trial.device == "cpu"
    with trial.subject_fault():
        batch = trial.subject.batch()
        rows = trial.parameters["watched"]
        pieces = list(map(Batch, batch.tokens.split(rows), batch.targets.split(rows)))
        # Not during timing, because recording takes time. Operators are recorded, which compiled steps do not have.
        with set_stance("force_eager"), StepInputs() as inputs:
            for piece in pieces:
                trial.subject.parts(_PATH, piece, _WARMUP, lambda: None, time.perf_counter)
        with sdpa_kernel(SDPBackend.MATH) if is_counted else nullcontext():
            if is_counted:
                with _Operations() as clock:
                    measured = [_measured(trial, batch, clock.synchronize, clock)]
            else:
                measured = [_measured(trial, batch, torch.cuda.synchronize, time.perf_counter) for _ in range(_ROUNDS)]
            with set_stance("force_eager"):
                waiting_error = _error_where_waiting_counts(trial, pieces[0])
    first = [share for before, _, _ in measured for share in _forward_shares(before)]
    second = [share for _, _, after in measured for share in _forward_shares(after)]
    _measure_inputs(trial, batch, inputs)
    read_back(trial, trial.subject.model(_PATH))
    right = forward_share(first, second, trial.seed)
    data, forward, backward = (
        _middle([stated.get(name, math.nan) for _, stated, _ in measured]) for name in ("data", "forward", "backward")
    )
    trial.measure(
        percent_sum=_middle([sum(stated.values()) for _, stated, _ in measured]),
        data_percent=data,
        waiting_error=waiting_error,
    )
    errors = {"forward_error": forward - right.estimate, "backward_error": backward - (100.0 - right.estimate)}
    intervals = {name: _about(abs(error), right) for name, error in errors.items()} | {
        "forward_percent": _about(forward, right),
        "backward_percent": _about(backward, right),
        "backward_over_forward": Interval(*(100.0 / share - 1.0 for share in (right.estimate, right.high, right.low))),
    }
    for name, interval in intervals.items():
        if open_at := [limit for limit in trial.parameters[name] if interval.low <= limit <= interval.high]:
            raise NotMeasured(
                f"this machine cannot decide: {name} is {interval.low:.2f} to {interval.high:.2f}, and the limit of "
                f"{open_at[0]:g} is in that interval"
            )
    trial.measure(**{name: interval.estimate for name, interval in intervals.items()})


def _measured(
    trial: Trial[Paths], batch: Batch, synchronize: Callable[[], object], clock: Callable[[], float]
) -> tuple[list[tuple[float, float]], Parts, list[tuple[float, float]]]:
    """Return times before the subject's own measurement, its stated shares, and times after it."""
    before = _laps(trial, batch, synchronize, clock)
    stated = dict(trial.subject.parts(_PATH, batch, trial.parameters["laps"], synchronize, clock))
    return before, stated, _laps(trial, batch, synchronize, clock)


def _error_where_waiting_counts(trial: Trial[Paths], batch: Batch) -> float:
    """Return the error of the stated forward share if each wait takes as long as a step.

    Operations are counted, also on a GPU, so load does not matter. A constant share, instead of a measured one, is off
    by 11 points. NaN if a share is missing.
    """
    with _Operations() as clock:
        clock.wait = _mean_step(_laps(trial, batch, clock.synchronize, clock))
        _, stated, laps = _measured(trial, batch, clock.synchronize, clock)
    shares = _forward_shares(laps)
    forward, backward = (stated.get(name, math.nan) for name in ("forward", "backward"))
    both = forward + backward
    return abs(100.0 * forward / both - sum(shares) / len(shares)) if both else math.nan


def _middle(stated: Sequence[float]) -> float:
    """Return the median, which single disturbed rounds do not move; NaN if one is NaN."""
    return math.nan if any(map(math.isnan, stated)) else statistics.median(stated)


def forward_share(first: Sequence[float], second: Sequence[float], seed: int) -> Interval:
    """Return the forward pass's share of a step, in percent, as an interval that covers two measurements.

    Args:
        first: the steps that were timed before the subject's.
        second: as many steps, timed after them.
    """
    timing = Timing({"first": tuple(first), "second": tuple(second), "nothing": (0.0,) * len(first)}, (), seed)
    share, noise = timing.difference("first", "nothing"), timing.difference("second", "first")
    most = max(noise.high, -noise.low)
    return Interval(share.estimate, share.low - most, share.high + most)


def _about(stated: float, measured: Interval) -> Interval:
    """Return a stated share with the uncertainty of the measured one. If that is NaN, no limit is left open."""
    open_by = max(measured.high - measured.estimate, measured.estimate - measured.low)
    return Interval(stated, stated - open_by, stated + open_by)


def _measure_inputs(trial: Trial[Paths], batch: Batch, inputs: StepInputs) -> None:
    """Compare the inputs of steps with rows of the text, and their addresses with the subject's batch."""
    parameters = trial.parameters
    text = tokens_of_sources(_TEXT if trial.device == "cpu" else _LONG_TEXT, parameters["vocabulary"])
    ignored = round(parameters["ignored"] * parameters["sequence"])
    here = {tensor.untyped_storage().data_ptr() for tensor in (batch.tokens, batch.targets)}
    trial.measure(
        right_rows=[
            right_rows(text, zip(tokens, targets, strict=False), parameters["sequence"], ignored)
            for tokens, targets in (
                (inputs.tokens[step::_WARMUP], inputs.targets[step::_WARMUP]) for step in range(_WARMUP)
            )
        ],
        read_in_place=[len(here.intersection(places)) for places in inputs.places],
        logit_bits=inputs.logit_bits,
    )


def _laps(
    trial: Trial[Paths], batch: Batch, synchronize: Callable[[], object], clock: Callable[[], float]
) -> list[tuple[float, float]]:
    """Return the time of the forward pass, and of both passes, of the subject's model in each step after warm-up."""
    model = trial.subject.model(_PATH)
    laps = []
    for step in range(_WARMUP + trial.parameters["laps"]):
        synchronize()
        started = clock()
        loss = trial.subject.forward(model, batch)
        synchronize()
        between = clock()
        loss.backward()
        synchronize()
        if step >= _WARMUP:
            laps.append((between - started, clock() - started))
        model.zero_grad()
    return laps


def _forward_shares(laps: Sequence[tuple[float, float]]) -> list[float]:
    """Return what the forward pass takes of each step, in percent."""
    return [100.0 * forward / whole for forward, whole in laps]


def _mean_step(laps: Sequence[tuple[float, float]]) -> float:
    return sum(whole for _, whole in laps) / len(laps)


@final
class _Operations:
    """A clock of floating-point operations, 1e12 per second. As on a GPU, work shows only after a wait.

    Attributes:
        wait: the seconds of a wait itself.
    """

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False)
        self._done = 0.0
        self._waited = 0.0
        self.wait = 0.0

    def __enter__(self) -> _Operations:
        self._counter.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._counter.__exit__(*raised)

    def __call__(self) -> float:
        return self._done

    def synchronize(self) -> None:
        """Advance the clock by all operations so far."""
        self._waited += self.wait
        self._done = self._counter.get_total_flops() / 1e12 + self._waited
