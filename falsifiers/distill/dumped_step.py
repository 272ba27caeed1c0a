"""F-DISTILL-STEP-001 and others in part, for a trainer in another process that dumps its steps: each is computed again.

A step starts from the state in the previous step's dump. So a change between two steps, such as a resume without the
optimizer's state, is a difference too. If the trainer's TOML file names a config.json that fits the weights, loss and
gradient are computed from weights and batch. Otherwise the dumped gradient is used, and only the optimizer is judged.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from falsifiers.distill.measuring.dumped_steps import DumpedStep
from falsifiers.distill.oracle.adapters import AdapterSteps
from falsifiers.distill.oracle.qwen2 import SHAPES, NotTheModel, new_model
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, Step, compare, corrections_of
from falsifiers.distill.oracle.tolerances import QUANTITIES, TOLERANCES, refuted
from falsifiers.distill.running.training import read_back
from harness import NotObserved, Trial, Unobserved, propagates
from harness.authoring.shadow_step import Difference, difference, worst

_NEAR = 1 / 3  # share of a tolerance beyond which the rounding of the dtype is computed too
_OF_LOSS = ("loss", "gradient")


def examine(trial: Trial[Any]) -> None:
    """Train, then compute each dumped step from the state after the previous one.

    Raises:
        NotObserved: the trainer dumps no steps.
    """
    run = DumpedRun(trial)
    differences: list[Difference] = []
    first = last = None
    for dump, before in run.steps():
        differences += run.differences(before, dump)
        first, last = first or dump, dump
    largest = worst(differences)
    hidden = {f"{name}_error": run.hidden for name in _OF_LOSS} if run.hidden is not None else {}
    trial.measure(
        **{f"{name}_error": largest[name].ratio for name in sorted(largest.keys() & QUANTITIES)},
        foreign_slots=sorted(largest.keys() - QUANTITIES),
        worst_tensors=[f"{difference.quantity} {difference.tensor}".strip() for difference in largest.values()],
        steps_executed=run.made,
        steps_checked=_checked(run.made),
        moved_share=_moved(first.before.weights, last.after.weights) if first and last else 0.0,
        **hidden,
        **dict.fromkeys(_INSIDE, Unobserved("this needs access to the process of the training")),
    )


_FEWEST_STEPS = 6
"""The contract's minimum of `steps_checked`."""


@propagates
def _checked(count: int) -> list[int]:
    if count < _FEWEST_STEPS:
        raise NotObserved(f"it dumped {count} steps, and {_FEWEST_STEPS} are compared; add -P steps={_FEWEST_STEPS}")
    return list(range(1, count + 1))


_INSIDE = (
    "student_logits_error", "teacher_logits_error", "batch_error", "initial_scale_error", "initial_rank_error",
    "unseeded", "misreported", "resumed_after", "told_speed",
)  # fmt: skip


class DumpedRun:
    """A run of the subject, whose steps are compared with steps computed from its weights, slots and batches.

    Attributes:
        made: the number of dumped steps.
        hidden: why loss and gradient are not judged; None if they are.
    """

    def __init__(self, trial: Trial[Any]) -> None:
        """Train, and read back device, dtype and steps.

        Raises:
            NotObserved: the trainer dumps no steps.
        """
        self._losses: list[float] = []

        def on_step(step: int, **values: float) -> None:
            with trial.falsifier_fault():
                trial.step(step, **values)
                self._losses.append(values.get("loss", math.nan))

        with trial.subject_fault():
            trial.subject.must_dump()
            trial.subject.distill(on_step=on_step)
            self._paths: list[Path] = trial.subject.dumps()
            read_back(trial, len(self._paths))
            if not self._paths:
                raise NotObserved("the run left no dump of a step")
        self._subject, self.made, self._number = trial.subject, len(self._paths), 0
        self._configuration = Configuration.of(trial.parameters)
        device, file = torch.device(trial.device), trial.subject.config_file()
        arguments = self._configuration, device, lambda dtype: _model(file, trial.parameters, dtype, device)
        adapters = trial.subject.adapters()
        self._shadow = ShadowStep(*arguments) if adapters is None else AdapterSteps(adapters, *arguments)
        self.hidden: Unobserved | None = None
        self._corrections: torch.dtype | None = None

    def steps(self) -> Iterator[tuple[DumpedStep, Snapshot]]:
        """Each dumped step, with the state after the previous one."""
        last = None
        for number, path in enumerate(self._paths, 1):
            self._number = number
            dump: DumpedStep = self._subject.dump(path)
            yield dump, dump.before if last is None else last
            last = dump.after

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The token ids and labels [rows, tokens] of each step, on the CPU.

        Raises:
            NotObserved: a dump holds no batch.
        """
        for path in self._paths:
            dump: DumpedStep = self._subject.dump(path)
            if dump.inputs is None or dump.labels is None:
                raise NotObserved(f"the dump {path.name} holds no batch")
            yield dump.inputs, dump.labels

    @propagates
    def gradient_error(self, before: Snapshot, dump: DumpedStep) -> float:
        """The largest error of a tensor's gradient, in tolerances of the weights' dtype. See `hidden`."""
        largest = worst(self.differences(before, dump))
        if self.hidden is not None:
            self.hidden.reveal()
        return largest["gradient"].ratio / TOLERANCES[_dtype_of(dump)]["gradient"]

    def differences(self, before: Snapshot, dump: DumpedStep) -> list[Difference]:
        """The differences of a step. The dtype's rounding is computed only if a difference is near its tolerance."""
        number, dtype = self._number, next(iter(dump.after.weights.values())).dtype
        loss = self._losses[number - 1] if number <= len(self._losses) else math.nan
        exact = self._compared(number, before, dump, loss)
        if self.hidden is None and refuted(exact, _dtype_of(dump), _NEAR):
            exact = self._compared(number, before, dump, loss, dtype)
        return [*exact, difference("rate", dump.rate, self._configuration.rate(number))]

    def _compared(
        self, number: int, before: Snapshot, dump: DumpedStep, loss: float, dtype: torch.dtype | None = None
    ) -> list[Difference]:
        expected = self._expected(number, before, dump, torch.float64)
        if self._corrections is None:  # one for all steps, so that no other factor passes for a rounding here and there
            self._corrections = corrections_of(self._configuration, before, dump.after, number)
        differences = compare(
            self._configuration,
            expected,
            before,
            dump.after,
            loss=loss,
            number=dump.number,
            gradients=dump.gradients,
            rounded=self._expected(number, before, dump, dtype) if dtype is not None else None,
            corrections=self._corrections,
        )
        return [difference for difference in differences if self.hidden is None or difference.quantity not in _OF_LOSS]

    def _expected(self, number: int, before: Snapshot, dump: DumpedStep, dtype: torch.dtype) -> Step:
        """The expected step: by the model if it is known, else by the dumped gradient."""
        why = "" if self.hidden is None else self.hidden.why
        if not why and (dump.inputs is None or dump.labels is None or bool((dump.labels < 0).any())):
            why = "the dump holds no batch in which each label counts"
        elif not why and dump.teacher_logits is None and self._configuration.alpha != 1:
            why = "the loss has a part of a teacher, whose logits are not dumped; without one, add -P alpha=1"
        if not why:
            teacher: Any = before.weights if dump.teacher_logits is None else dump.teacher_logits
            try:
                return self._shadow.step(number, before, dump.inputs, dump.labels, teacher, dtype)  # type: ignore[arg-type]
            except (NotTheModel, NotObserved) as error:
                why = str(error)
        self.hidden = Unobserved(why)
        none, rate = torch.zeros(0), self._configuration.rate(number)
        gradients = {name: gradient.to(self._shadow.device).double() for name, gradient in dump.gradients.items()}
        return self._shadow.advanced(Step(number, math.nan, none, none, rate, gradients, {}, {}), before)


def _dtype_of(dump: DumpedStep) -> str:
    """The dtype of a step's weights, as a key of `TOLERANCES`."""
    dtype = next(iter(dump.after.weights.values())).dtype
    return "bfloat16" if dtype in (torch.bfloat16, torch.float16) else "float32"


def _model(file: str, parameters: Mapping[str, Any], dtype: torch.dtype, device: torch.device) -> Any:
    """The model of a config.json, else the one that the claim names.

    Raises:
        NotObserved: transformers does not know it.
    """
    if not file:
        if parameters["model"] not in SHAPES:
            raise NotObserved("the trainer's file names no config.json as /models/config")
        return new_model(parameters["model"], device, dtype)
    try:
        config = AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        with torch.random.fork_rng(devices=[]):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds of errors for a configuration that it does not know
        raise NotObserved(f"{file} describes no language model that transformers knows: {error}") from error
    return model.to(device).eval()


def _moved(first: Mapping[str, Tensor], last: Mapping[str, Tensor]) -> float:
    """The share of all elements that changed."""
    moved = sum(int((last[name] != weight).sum()) for name, weight in first.items() if name in last)
    return moved / max(1, sum(weight.numel() for weight in first.values()))
