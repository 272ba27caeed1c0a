"""F-DISTILL-STEP-001: each step is the step that the configuration describes."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.distill.measuring.log_lines import log_lines
from falsifiers.distill.oracle.initial import initial_differences
from falsifiers.distill.oracle.tolerances import QUANTITIES, refuted
from falsifiers.distill.oracle.watch import ShadowWatch, saved_steps
from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.running.training import Overrun, read_back
from falsifiers.distill.subject import Shadowed
from harness import Hidden, NotMeasured, Trial, elsewhere, not_shown
from harness.authoring.shadow_step import Difference, worst

__all__ = ["falsify"]

_PROBED = 3  # steps with dropout

Weights = Mapping[str, Tensor]


class _Interrupted(Exception):
    """The run is left: a step of it is refuted, or it shall be resumed."""


class _Watch:
    """An `OnStep` for a run that is interrupted and resumed once.

    Attributes:
        shadow: checks the chosen steps.
        steps: how many steps were made; those that an interruption lost do not count.
        told: by step, what the subject told of it: two tellings of a step that was made again.
    """

    def __init__(self, trial: Trial[Shadowed], subject: Shadowed, resumes_after: int) -> None:
        """Compute the first step."""
        self.shadow = ShadowWatch(subject, trial.setting, own_work=trial.falsifier_fault, resumes_after=resumes_after)
        self.steps = 0
        self.told: dict[int, list[Mapping[str, float]]] = {}
        self._trial = trial
        self._resumes_after = resumes_after
        self._interrupted = False

    def __call__(self, step: int, **values: float) -> None:
        """Count and compare a step; leave the run where it is to be interrupted."""
        with self._trial.falsifier_fault():
            self.steps += 1
            self.told.setdefault(self.steps, []).append(values)
            self._trial.step(step, **values)
        self.shadow(step, **values)
        if self.is_refuted or (self.is_resumable and not self._interrupted):
            raise _Interrupted
        if self.steps >= 2 * self._trial.parameters["steps"]:
            raise Overrun

    @property
    def is_refuted(self) -> bool:
        """Whether a step is not the one that is configured; the steps after it would tell nothing new."""
        return bool(refuted(self.shadow.differences, self._trial.parameters["dtype"]))

    @property
    def is_resumable(self) -> bool:
        """Whether the run has passed the checkpoint, with all steps as configured."""
        return self.steps > self._resumes_after and not self.is_refuted

    def go_on_with(self, subject: Shadowed) -> None:
        """Watch the subject that resumes the run; it makes the step after the checkpoint again."""
        self.shadow.go_on_with(subject)
        self.steps = self._resumes_after
        self._interrupted = True


@elsewhere(not_shown("weights, optimizer state and batch between two steps; a shadow step needs them"))
def falsify(trial: Trial[Shadowed]) -> None:
    """Train, interrupt and resume, and compute the chosen steps a second time, independently.

    What is refuted first ends the trial; the rest is not measured.

    Raises:
        NotMeasured: the run has no checkpoint to be resumed from.
    """
    saved = saved_steps(trial.setting)
    if not saved:
        raise NotMeasured("no checkpoint is due before the last step; ask for a smaller checkpoint_every")
    resumes_after = random.Random(trial.seed).choice([saved[0], saved[-1]])  # noqa: S311 - chance, and no secret
    with trial.subject_fault():
        first = type(trial.subject)(trial.setting)
        weights = first.student_weights()
    initial = initial_differences(weights)
    unseeded, repeated = _unseeded(trial, first), _masks_repeated(trial)
    trial.measure(unseeded=unseeded, masks_repeated=repeated)
    if unseeded or repeated or refuted(initial, trial.parameters["dtype"]):
        _measure_differences(trial, initial)
        return
    with trial.subject_fault():
        watch = _Watch(trial, first, resumes_after)
        with contextlib.suppress(_Interrupted):
            first.distill(on_step=watch)
    del first, weights
    losses: tuple[float, ...] = ()
    if watch.is_resumable:
        with trial.subject_fault():
            trial.subject.resume()
            watch.go_on_with(trial.subject)
            with contextlib.suppress(_Interrupted):
                losses = trial.subject.distill(on_step=watch).losses
    _measure_differences(trial, [*initial, *watch.shadow.differences])
    if watch.is_refuted:
        return
    read_back(trial, watch.steps)
    if not any("learning_rate" in values for tellings in watch.told.values() for values in tellings):
        trial.measure(rate_error=Hidden("the subject reports no learning rate"))
    trial.measure(
        steps_executed=watch.steps,
        steps_checked=watch.shadow.checked,
        resumed_after=resumes_after,
        misreported=_misreported(trial, watch.told, dict(enumerate(losses, start=resumes_after + 1))),
    )


def _measure_differences(trial: Trial[Shadowed], differences: list[Difference]) -> None:
    """The largest difference of each quantity."""
    found = worst(differences)
    trial.measure(
        foreign_slots=sorted(found.keys() - QUANTITIES),
        worst_tensors=[f"{one.quantity} {one.tensor}".strip() for one in found.values()],
        **{f"{name}_error": found[name].ratio for name in sorted(found.keys() & QUANTITIES)},
    )


def _unseeded(trial: Trial[Shadowed], first: Shadowed) -> list[str]:
    """What of first weights and first batch differs from that of `first`, or is the same with another seed."""
    elsewhere = replace(trial.setting, seed=trial.seed + 1, workspace=trial.workspace / "other-seed")
    with trial.subject_fault():
        other = type(trial.subject)(elsewhere)
        weights, alike, unlike = (one.student_weights() for one in (first, trial.subject, other))
        batch, same_batch, other_batch = (one.batch(1)[0] for one in (first, trial.subject, other))
    drawn = [name for name, weight in weights.items() if weight.dim() > 1]
    found = [f"{name}, of the same seed" for name in drawn if not torch.equal(weights[name], alike[name])]
    found += [f"{name}, of another seed" for name in drawn if torch.equal(weights[name], unlike[name])]
    found += ["batch, of the same seed"] * (not torch.equal(batch, same_batch))
    found += ["batch, of another seed"] * torch.equal(batch, other_batch)
    return found


def _misreported(
    trial: Trial[Shadowed], told: Mapping[int, list[Mapping[str, float]]], losses: Mapping[int, float]
) -> list[str]:
    """Where the log, or the losses that the run returns, say something else than was told after the step itself."""
    found = [f"run: step {step}" for step, loss in losses.items() if loss != told.get(step, [{}])[-1].get("loss")]
    with trial.subject_fault():
        lines = log_lines(Path(trial.subject.log))
    found += [f"log: step {line['step']}" for line in lines if not _agree(line, told.get(line["step"], []))]
    every = trial.parameters["log_every"]
    due = {step for step in told if every and step % every == 0}
    return found + [f"log: no step {step}" for step in sorted(due - {line["step"] for line in lines})]


def _agree(line: Mapping[str, float], tellings: list[Mapping[str, float]]) -> bool:
    """Whether one telling of the step has the loss and the learning rate that the line has."""
    names = [name for name in ("loss", "learning_rate") if name in line]
    return any(
        all(math.isclose(line[name], told.get(name, math.nan), rel_tol=1e-4) for name in names) for told in tellings
    )


def _masks_repeated(trial: Trial[Shadowed]) -> int:
    """After how many of three steps with dropout torch's generator is in a state that an earlier step left it in.

    A subject that drops nothing leaves the state as it is. One that seeds before each step comes to the same state.
    """
    device = torch.device(trial.device)
    states: list[bytes] = []

    def on_step(step: int, **values: float) -> None:
        state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        states.append(state.numpy().tobytes())

    with trial.subject_fault():
        dropout = trial.parameters["probe_dropout"]
        probe = further_subject(trial, "probe", dropout=dropout, steps=_PROBED, checkpoint_every=0)
        probe.distill(on_step=on_step)
    return len(states) - len(set(states))
