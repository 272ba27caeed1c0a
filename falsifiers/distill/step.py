"""F-DISTILL-STEP-001: each step is the step that the configuration describes."""

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor
from torch.overrides import TorchFunctionMode

from falsifiers.distill import dumped_step
from falsifiers.distill.measuring.log_lines import log_lines
from falsifiers.distill.oracle.initial import initial_differences
from falsifiers.distill.oracle.tolerances import QUANTITIES, refuted
from falsifiers.distill.oracle.watch import ShadowWatch, saved_steps
from falsifiers.distill.running.further_subjects import setting_of
from falsifiers.distill.running.training import Overrun, read_back
from falsifiers.distill.subject import Shadowed
from harness import NotMeasured, Trial, Unobserved, for_external
from harness.authoring.shadow_step import Difference, worst

_PROBE = {"model": "qwen2-tiny", "tokenizer": "bytes", "steps": 3, "checkpoint_every": 0, "teacher_steps": 1}
"""A small run whose random numbers are watched; it uses the same code for dropout."""

Weights = Mapping[str, Tensor]


class _Drops(TorchFunctionMode):
    """Collects the dropout probabilities, other than 0, of torch's functions in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: set[float] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            self.shares.add(float(named.get("dropout_p", args[4] if len(args) > 4 else 0.0)))
        elif func is F.dropout and named.get("training", args[2] if len(args) > 2 else True):
            self.shares.add(float(named.get("p", args[1] if len(args) > 1 else 0.5)))
        self.shares.discard(0.0)
        return func(*args, **named)

    def taken(self) -> set[float]:
        """The probabilities since the last call."""
        taken, self.shares = self.shares, set()
        return taken


class _Interrupted(Exception):
    """Leaves the run: a step is refuted, or the run will be resumed."""


class _Watch:
    """An `OnStep` for a run that is interrupted and resumed once.

    Attributes:
        shadow: checks the chosen steps.
        steps: the number of steps, without those that the interruption lost.
        reported: by step, what the subject reported; twice for a step that was repeated.
        speeds: the reported tokens per second, relative to the tokens per second between the reports.
    """

    def __init__(self, trial: Trial[Shadowed], subject: Shadowed, resumes_after: int) -> None:
        self.shadow = ShadowWatch(subject, trial.setting, own_work=trial.falsifier_fault, resumes_after=resumes_after)
        self.steps = 0
        self.reported: dict[int, list[Mapping[str, float]]] = {}
        self.speeds: list[float] = []
        self._returned = math.nan
        self._trial = trial
        self._resumes_after = resumes_after
        self._interrupted = False

    def __call__(self, step: int, **values: float) -> None:
        """Count and compare a step; interrupt the run at the chosen step."""
        seconds = time.perf_counter() - self._returned
        with self._trial.falsifier_fault():
            self.steps += 1
            if "tokens_per_second" in values and not math.isnan(seconds):
                tokens = self._trial.parameters["batch"] * self._trial.parameters["sequence"]
                self.speeds.append(values["tokens_per_second"] * seconds / tokens)
            self.reported.setdefault(self.steps, []).append(values)
            self._trial.step(step, **values)
        self.shadow(step, **values)
        if self.is_refuted or (self.is_resumable and not self._interrupted):
            raise _Interrupted
        if self.steps >= 2 * self._trial.parameters["steps"]:
            raise Overrun
        self._returned = time.perf_counter()

    @property
    def is_refuted(self) -> bool:
        """Whether a step is not the configured one. Later steps would show nothing new."""
        return bool(refuted(self.shadow.differences, self._trial.parameters["dtype"]))

    @property
    def is_resumable(self) -> bool:
        """Whether the run has passed the checkpoint without a refuted step."""
        return self.steps > self._resumes_after and not self.is_refuted

    def go_on_with(self, subject: Shadowed) -> None:
        """Watch the resumed subject, which repeats the step after the checkpoint."""
        self.shadow.go_on_with(subject)
        self.steps = self._resumes_after
        self._interrupted = True
        self._returned = math.nan


@for_external(dumped_step.examine)
def falsify(trial: Trial[Shadowed]) -> None:
    """Train, interrupt and resume, and compute the chosen steps independently.

    The first refuted step ends the trial; the rest is not measured.

    Raises:
        NotMeasured: the run has no checkpoint to resume from.
    """
    saved = saved_steps(trial.setting)
    if not saved:
        raise NotMeasured("no checkpoint is due before the last step; ask for a smaller checkpoint_every")
    resumes_after = random.Random(trial.seed).choice([saved[0], saved[-1]])  # noqa: S311 - chance, and no secret
    with trial.subject_fault():
        first = type(trial.subject)(trial.setting)
        weights = first.student_weights()
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    initial = initial_differences(weights)
    trial.measure(unseeded=(unseeded := _unseeded(trial, first) + _unmasked(trial)))
    if unseeded or refuted(initial, trial.parameters["dtype"]):
        _measure_differences(trial, initial)
        return
    with trial.subject_fault():
        watch = _Watch(trial, first, resumes_after)
        with contextlib.suppress(_Interrupted):
            first.distill(on_step=watch)
    del first, weights
    steps, losses = 0, list[float]()
    if watch.is_resumable:
        with trial.subject_fault():
            watch.go_on_with(trial.subject)  # releases the first subject and its memory
            trial.subject.resume()
            with contextlib.suppress(_Interrupted):
                run = trial.subject.distill(on_step=watch)
                steps, losses = resumes_after + run.steps, list(run.losses)
    _measure_differences(trial, [*initial, *watch.shadow.differences])
    if watch.is_refuted:
        return
    read_back(trial, watch.steps)
    if not any("learning_rate" in values for tellings in watch.reported.values() for values in tellings):
        trial.measure(rate_error=Unobserved("the subject reports no learning rate"))
    trial.measure(
        steps_executed=watch.steps,
        steps_checked=watch.shadow.checked,
        resumed_after=resumes_after,
        moved_share=_moved_share(trial, start),
        told_speed=median(watch.speeds) if watch.speeds else Unobserved("the subject reports no tokens a second"),
        misreported=["run: steps"] * (steps != watch.steps)
        + _misreported(trial, watch.reported, dict(enumerate(losses, start=resumes_after + 1))),
    )


def _moved_share(trial: Trial[Shadowed], start: Weights) -> float:
    """The share of all elements of the student's weights that differ from the start."""
    with trial.subject_fault():
        weights = trial.subject.student_weights()
        moved = sum(int((weight != start[name].to(weight)).sum()) for name, weight in weights.items())
    return moved / sum(weight.numel() for weight in start.values())


def _measure_differences(trial: Trial[Shadowed], differences: list[Difference]) -> None:
    """Measure the largest difference of each quantity."""
    largest = worst(differences)
    trial.measure(
        foreign_slots=sorted(largest.keys() - QUANTITIES),
        worst_tensors=[f"{difference.quantity} {difference.tensor}".strip() for difference in largest.values()],
        **{f"{name}_error": largest[name].ratio for name in sorted(largest.keys() & QUANTITIES)},
    )


def _unseeded(trial: Trial[Shadowed], first: Shadowed) -> list[str]:
    """The initial weights and the first batch that differ for the same seed, or are equal for another seed."""
    elsewhere = replace(trial.setting, seed=trial.seed + 1, workspace=trial.workspace / "other-seed")
    with trial.subject_fault():
        other = type(trial.subject)(elsewhere)
        weights, alike, unlike = (subject.student_weights() for subject in (first, trial.subject, other))
        batch, same_batch, other_batch = (subject.batch(1)[0] for subject in (first, trial.subject, other))
    drawn = [name for name, weight in weights.items() if weight.dim() > 1]
    unseeded = [f"{name}, of the same seed" for name in drawn if not torch.equal(weights[name], alike[name])]
    unseeded += [f"{name}, of another seed" for name in drawn if torch.equal(weights[name], unlike[name])]
    unseeded += ["batch, of the same seed"] * (not torch.equal(batch, same_batch))
    unseeded += ["batch, of another seed"] * torch.equal(batch, other_batch)
    return unseeded


def _misreported(
    trial: Trial[Shadowed], reports: Mapping[int, list[Mapping[str, float]]], losses: Mapping[int, float]
) -> list[str]:
    """The steps for which the log, or the losses that the run returns, differ from the reports during the run."""
    resumed = range(min(losses, default=1), max(reports, default=0) + 1)
    misreported = [f"run: step {step}" for step in resumed if losses.get(step) != reports[step][-1].get("loss")]
    with trial.subject_fault():
        lines = log_lines(Path(trial.subject.log))
    misreported += [f"log: step {line['step']}" for line in lines if not _agree(line, reports.get(line["step"], []))]
    every = trial.parameters["log_every"]
    logged = {step for step in reports if every and step % every == 0}
    return misreported + [f"log: no step {step}" for step in sorted(logged - {line["step"] for line in lines})]


def _agree(line: Mapping[str, float], tellings: list[Mapping[str, float]]) -> bool:
    """Whether a report of the step has the loss and the learning rate of the line."""
    names = [name for name in ("loss", "learning_rate") if name in line]
    return any(
        all(math.isclose(line[name], report.get(name, math.nan), rel_tol=1e-4) for name in names) for report in tellings
    )


def _unmasked(trial: Trial[Shadowed]) -> list[str]:
    """Defects of the random numbers in short runs with dropout, by the states of torch's generator after each step.

    A subject without dropout leaves the state unchanged. One that seeds before each step returns to the same state. The
    student is evaluated between the steps, which must not end its training mode. Where torch drops, the probability
    must be the configured one in every step.
    """
    seeds = trial.seed, trial.seed, trial.seed + 1
    drops: list[set[float]] = []
    states, again, other = (_states(trial, f"probe-{number}", seed, drops) for number, seed in enumerate(seeds))
    others = set.union(*drops) - {trial.parameters["probe_dropout"]}
    defects = [f"masks, of the share {share:g}" for share in sorted(others)]
    defects += ["masks, of some steps only"] * (any(drops) and not all(drops))
    defects += ["masks, of another step"] * (len(set(states)) < len(states))
    defects += ["masks, of the same seed"] * (states != again)
    return defects + ["masks, of another seed"] * (states == other)


def _states(trial: Trial[Shadowed], name: str, seed: int, drops: list[set[float]]) -> list[bytes]:
    """The state of torch's generator after each of a few steps with dropout. The generator starts at random.

    Args:
        drops: receives, for each step, the dropout probabilities of torch's functions.
    """
    device = torch.device(trial.device)
    states: list[bytes] = []
    dropping = _Drops()

    def on_step(step: int, **values: float) -> None:
        state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        states.append(state.numpy().tobytes())
        drops.append(dropping.taken())
        subject.student_logits(tokens)

    setting = replace(setting_of(trial, name, dropout=trial.parameters["probe_dropout"], **_PROBE), seed=seed)
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=device)
    torch.seed()
    with trial.subject_fault():
        subject = type(trial.subject)(setting)
        with dropping:
            subject.distill(on_step=on_step)
    return states
