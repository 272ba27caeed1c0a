"""F-DISTILL-LOG-OVERHEAD-001: a training log costs almost no time, by paired timing against steps without one."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from falsifiers.distill.measuring.log_lines import log_lines
from falsifiers.distill.measuring.next_loss import NextLoss
from falsifiers.distill.oracle.own_steps import own_steps
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.running.training import read_back
from falsifiers.distill.subject import Stepping
from harness import NotMeasured, Trial, Unobserved
from harness.authoring.timing import Interval, Timing, interleave

_SILENT, _LOGGING, _AGAIN = _ARMS = ("silent", "logging", "silent again")
_OWN = "our own"
_TOLD = 8  # steps of the run whose log is compared with the reported losses
_WARMUP = 2  # warm-up rounds, in which caches, the allocator and the optimizer's state settle


def falsify(trial: Trial[Stepping]) -> None:
    """Alternate steps with a log, without one, and without one again on one student, in random order.

    The falsifier's own steps alternate with them, to detect a subject that is equally slow without a log.

    Raises:
        NotMeasured: a limit lies within an interval. The interval widens with the noise between the two arms without a
            log.
    """
    parameters = trial.parameters
    if trial.device == "cpu":
        torch.set_num_threads(1)  # with more threads, other work of the machine would be timed too
    step_numbers: dict[str, list[int]] = {arm: [] for arm in _ARMS}
    with trial.subject_fault(), contextlib.ExitStack() as until_timed:
        steps = {arm: trial.subject.steps(parameters["log_every"] if arm == _LOGGING else 0) for arm in _ARMS}
        for arm in _ARMS:
            until_timed.enter_context(contextlib.closing(steps[arm]))
        arms = {arm: partial(_sample, steps[arm], parameters["steps_a_sample"], step_numbers[arm]) for arm in _ARMS}
        size = parameters["batch"], parameters["sequence"]
        own = own_steps(
            Configuration.of(parameters), size, torch.device(trial.device), getattr(torch, parameters["dtype"])
        )
        every = {**arms, _OWN: partial(_sample, own, parameters["steps_a_sample"], [])}
        rounds = parameters["steps"] // (len(_ARMS) * parameters["steps_a_sample"]) - _WARMUP
        timing = _timed(trial, every, rounds) if rounds > 1 else None
        if timing is None:  # the lines need fewer steps than the times
            for work in [*arms.values()] * (rounds + _WARMUP):
                work()
        log = Path(trial.subject.log)
    read_back(trial, len(set().union(*step_numbers.values())))
    logged = [line["step"] for line in log_lines(log)]
    expected = [step for step in step_numbers[_LOGGING] if step % parameters["log_every"] == 0]
    trial.measure(
        lines_expected=len(expected),
        lines_missing=sum(step not in logged for step in expected),
        lines_unasked=sum(step not in expected for step in logged),
    )
    trial.measure(lines_untrue=_untrue(trial))
    if timing is not None:
        _compare(trial, timing)


def _timed(trial: Trial[Stepping], arms: Mapping[str, Callable[[], None]], rounds: int) -> Timing:
    """The times of each arm, one per round."""
    timing = interleave(
        arms,
        rounds=rounds,
        warmup=_WARMUP,
        seed=trial.seed,
        synchronize=torch.cuda.synchronize if trial.device != "cpu" else lambda: None,
    )
    (trial.artifacts / "timing.json").write_text(json.dumps(timing.as_json()))
    return timing


def _sample(steps: Iterator[Any], of: int, step_numbers: list[Any]) -> None:
    """Make the steps of one sample, and append their numbers to `made`."""
    step_numbers.extend(islice(steps, of))


def _untrue(trial: Trial[Stepping]) -> list[int]:
    """The steps of a short run whose line in the log is missing, repeated or wrong.

    The line's loss must be the one that the run reports and that the independent model computes. Its learning rate, if
    any, must be the configured one.
    """
    with trial.subject_fault():
        subject = further_subject(trial, "told", steps=_TOLD)
        next_loss = NextLoss(trial, range(1, _TOLD + 1), subject)
        reported = dict(enumerate(subject.distill(on_step=lambda step, **values: next_loss()).losses, start=1))
        log = Path(subject.log)
    configuration = Configuration.of(trial.parameters)
    lines = log_lines(log)
    steps = [line["step"] for line in lines]
    wrong = {step for step in reported if steps.count(step) != (step % trial.parameters["log_every"] == 0)}
    losses = [reported] if isinstance(next_loss.expected, Unobserved) else [reported, next_loss.expected]
    for line in lines:
        step = line["step"]
        expected = [(line["loss"], of.get(step, math.nan)) for of in losses]
        expected += [(line["learning_rate"], configuration.rate(step))] if "learning_rate" in line else []
        if not all(math.isclose(seen, wanted, rel_tol=1e-4) for seen, wanted in expected):
            wrong.add(step)
    return sorted(wrong)


def _compare(trial: Trial[Stepping], timing: Timing) -> None:
    """Measure how much slower logging is, if this machine can decide that."""
    parameters = trial.parameters
    noise = timing.ratio(_AGAIN, _SILENT)
    ratio = timing.ratio(_LOGGING, _SILENT, again=_AGAIN)
    seconds = timing.difference(_LOGGING, _SILENT, again=_AGAIN)
    a_step = 1000 / parameters["steps_a_sample"]
    milliseconds = Interval(seconds.estimate * a_step, seconds.low * a_step, seconds.high * a_step)
    baseline = timing.ratio(_SILENT, _OWN, again=_AGAIN)
    trial.measure(noise_low=noise.low, noise_high=noise.high, baseline=baseline.estimate, baseline_low=baseline.low)
    limits = ((ratio, parameters["ratio_limit"]), (milliseconds, parameters["milliseconds_limit"]))
    is_exceeded = any(interval.low > limit for interval, limit in limits)
    if not is_exceeded and not all(interval.settles(limit) for interval, limit in limits):
        raise NotMeasured(
            f"this machine cannot decide: logging takes {ratio.low:.3f} to {ratio.high:.3f} of the time, and "
            f"{milliseconds.low:.3f} to {milliseconds.high:.3f} ms a step more; a limit lies within. Two arms "
            f"without a log differ by a factor between {noise.low:.3f} and {noise.high:.3f}"
        )
    trial.measure(
        ratio=ratio.estimate,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        milliseconds=milliseconds.estimate,
        milliseconds_low=milliseconds.low,
        milliseconds_high=milliseconds.high,
    )
