"""The shadow step of a distillation: one AdamW step in float64, computed from the subject's state before its step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.oracle.loss import counted, summed_loss
from falsifiers.distill.oracle.qwen2 import NotTheModel, load, new_model
from harness.authoring.shadow_step import Difference, difference, differences

Slots = Mapping[str, Mapping[str, Tensor]]

_LOGITS_AT_ONCE = 2**27  # elements; 1 GiB in float64
# Units in the last place: the largest error of CUDA's powf by the CUDA C++ Programming Guide, "Standard Functions", as
# github.com/cms-patatrack/xtd cites its table; 8 in the guide of CUDA 10. NVIDIA tested it and does not guarantee it.
_POWER_UNITS = 4
_ROUNDINGS = 3  # AdamW rounds the decay factor, the product and the sum of each weight and each slot


@dataclass(frozen=True)
class Configuration:
    """The parameters of a contract that determine a step. The defaults are those of `torch.optim.AdamW`."""

    model: str
    learning_rate: float
    alpha: float
    temperature: float
    warmup_steps: int = 0
    gradient_norm: float | None = None
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Configuration:
        """Take the configuration's fields from the parameters; TypeError names a missing one."""
        return cls(**{name: parameters[name] for name in cls.__dataclass_fields__ if name in parameters})

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1: a linear warm-up, then constant."""
        return self.learning_rate * (step / self.warmup_steps if step < self.warmup_steps else 1.0)


@dataclass(frozen=True)
class Snapshot:
    """Copies of a training's tensors between two steps.

    Attributes:
        weights: by parameter.
        slots: by parameter, the optimizer's `exp_avg`, `exp_avg_sq` and `step`; empty before the first step; None if
            the subject never shows them.
    """

    weights: Mapping[str, Tensor]
    slots: Slots | None

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], slots: Slots | None = None) -> Snapshot:
        """Copy the tensors; they keep their device and dtype."""
        copies = None
        if slots is not None:
            copies = {name: {slot: _copied(tensor) for slot, tensor in of.items()} for name, of in slots.items()}
        return cls({name: _copied(weight) for name, weight in weights.items()}, copies)


@dataclass(frozen=True)
class Step:
    """A step as the configuration describes it. Tensors are float64, by parameter.

    Attributes:
        number: counted from 1.
        loss: of the batch, in nats per token, before the update.
        student_logits, teacher_logits: of the batch's first row, [1, sequence, vocabulary].
        rate: the learning rate.
        gradients: after clipping.
        slots: the optimizer's, after the step.
        weights: after the step.
    """

    number: int
    loss: float
    student_logits: Tensor = field(repr=False)
    teacher_logits: Tensor = field(repr=False)
    rate: float
    gradients: Mapping[str, Tensor] = field(repr=False)
    slots: Mapping[str, Mapping[str, Tensor]] = field(repr=False)
    weights: Mapping[str, Tensor] = field(repr=False)


class ShadowStep:
    """Computes steps with plain transformers, autograd and `torch.optim`."""

    def __init__(
        self,
        configuration: Configuration,
        device: torch.device,
        build: Callable[[torch.dtype], Any] | None = None,
    ) -> None:
        """Args:
        build: makes the model of a dtype, on the device; by default, the one that the configuration names.
        """
        self.configuration = configuration
        self.device = device
        self._build = build or (lambda dtype: new_model(configuration.model, device, dtype))
        self._models: dict[tuple[str, torch.dtype], Any] = {}

    def step(
        self,
        number: int,
        before: Snapshot,
        inputs: Tensor,
        labels: Tensor,
        teacher: Mapping[str, Tensor] | Tensor,
        dtype: torch.dtype = torch.float64,
    ) -> Step:
        """The step after `before`.

        Args:
            number: the number of the step, counted from 1.
            before: the state that the step starts from.
            inputs, labels: token ids [batch, sequence] of the step.
            teacher: the teacher's weights by name, or its logits [batch, sequence, vocabulary].
            dtype: in which models and gradients are computed. The optimizer always works in float64. The step in the
                subject's dtype shows how much rounding alone changes each tensor.

        Raises:
            NotTheModel: weights or slots are not those of the model.
        """
        with _full_precision():
            loss, logits, gradients = self._gradients(before.weights, inputs, labels, teacher, dtype)
        self._clip(gradients)
        return self.advanced(Step(number, loss, *logits, self.configuration.rate(number), gradients, {}, {}), before)

    def advanced(self, step: Step, before: Snapshot) -> Step:
        """The step with the slots and weights that result from its gradients.

        Raises:
            NotTheModel: weights or slots are not those of the model.
        """
        configuration, gradients = self.configuration, step.gradients
        weights = {name: _copied(weight).to(self.device, torch.float64) for name, weight in before.weights.items()}
        optimizer = torch.optim.AdamW(
            list(weights.values()),
            lr=step.rate,
            betas=(configuration.beta1, configuration.beta2),
            eps=configuration.epsilon,
            weight_decay=configuration.weight_decay,
            amsgrad=False,
            foreach=False,
        )
        for name, slots in (before.slots or {}).items():
            if name not in weights:
                raise NotTheModel(f"the optimizer has slots for {name}, which is no weight of {configuration.model}")
            if not slots:
                continue
            if not {"step", "exp_avg", "exp_avg_sq"} <= slots.keys():
                raise NotTheModel(f"the optimizer has for {name} only {sorted(slots)}, which AdamW cannot go on from")
            optimizer.state[weights[name]] = {
                "step": torch.tensor(float(slots["step"]), dtype=torch.float64),
                **{slot: slots[slot].to(weights[name], copy=True) for slot in ("exp_avg", "exp_avg_sq")},
            }
        for name, weight in weights.items():
            weight.grad = gradients[name]
        optimizer.step()
        slots = {name: dict(optimizer.state[weight]) for name, weight in weights.items()}
        return replace(step, slots=slots, weights=weights)

    def _model(self, role: str, dtype: torch.dtype, weights: Mapping[str, Tensor]) -> Any:
        """The model of a role, `student` or `teacher`, with these weights; it is built once for each dtype."""
        if (role, dtype) not in self._models:
            self._models[role, dtype] = self._build(dtype)
        model = self._models[role, dtype]
        load(model, weights)
        return model

    @torch.enable_grad()
    def _gradients(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        teacher: Mapping[str, Tensor] | Tensor,
        dtype: torch.dtype,
    ) -> tuple[float, tuple[Tensor, Tensor], dict[str, Tensor]]:
        """The mean loss of the batch, both models' logits of its first row, and the gradients in float64, by parameter.

        Few rows are computed at a time: with a vocabulary of 151,936, the float64 logits of a whole batch take
        gigabytes.
        """
        configuration = self.configuration
        student = self._model("student", dtype, weights)
        student.zero_grad(set_to_none=True)
        of_weights = None if isinstance(teacher, Tensor) else self._model("teacher", dtype, teacher)
        rows = max(1, _LOGITS_AT_ONCE // (inputs.shape[1] * int(student.config.vocab_size)))
        total = 0.0
        logits: tuple[Tensor, Tensor] | None = None
        for first in range(0, len(inputs), rows):
            part_inputs, answers = (part[first : first + rows].to(self.device) for part in (inputs, labels))
            with torch.no_grad():
                if of_weights is None:
                    of_teacher = teacher[first : first + rows].to(self.device)  # type: ignore[index]
                else:
                    of_teacher = of_weights(input_ids=part_inputs, use_cache=False).logits
            of_student = student(input_ids=part_inputs, use_cache=False).logits
            logits = logits or (of_student[:1].detach(), of_teacher[:1])
            loss = summed_loss(
                of_student.double(), of_teacher.double(), answers, configuration.alpha, configuration.temperature
            )
            (loss / counted(labels)).backward()
            total += float(loss.detach()) / counted(labels)
        return total, logits, {name: weight.grad.double() for name, weight in student.named_parameters()}  # type: ignore[return-value]

    def _clip(self, gradients: Mapping[str, Tensor]) -> None:
        """Scale all gradients down to the configured Euclidean norm."""
        most = self.configuration.gradient_norm
        norm = float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())
        if most is not None and norm > most:
            for gradient in gradients.values():
                gradient *= most / norm


def compare(
    configuration: Configuration,
    expected: Step,
    before: Snapshot,
    after: Snapshot,
    *,
    loss: float,
    number: int,
    gradients: Mapping[str, Tensor] | None = None,
    rounded: Step | None = None,
    corrections: torch.dtype = torch.float64,
) -> list[Difference]:
    """The differences between a subject's step and the expected one, by quantity and tensor.

    The quantities:

    - `loss`, `number`: what the subject reports, relative to the expected value.
    - `exp_avg`, `exp_avg_sq`: each slot's difference, relative to what this step adds to it.
    - `gradient`: the gradient after clipping, as the subject shows it, else derived from `exp_avg`.
    - `count`: the optimizer's own count of steps.
    - `applied`: the change of each weight, against the change that follows from the subject's own slots. It does not
      depend on the gradient: AdamW turns a tiny gradient, which may be rounding, into a whole step.
      Bias corrections in float32 are those of the whole step that explain it best: see `_rounded_factors`.
    - `update`: the change of each weight, if the subject shows no slots.

    Any other slot of the subject is a quantity of its own with an infinite difference.

    Args:
        configuration: what determines the step.
        expected: the step in float64.
        before: the subject's state before the step.
        after: its state after the step; the live tensors will do.
        loss, number, gradients: what the subject reports about the step.
        rounded: the step in the subject's dtype; differences that its rounding explains do not count.
        corrections: in which the subject computes the bias corrections: see `corrections_of`.
    """
    result = [difference("loss", loss, expected.loss), difference("number", number, expected.number)]
    if after.slots is None:
        moves = {name: weight - before.weights[name].to(weight) for name, weight in expected.weights.items()}
        twin = rounded and rounded.weights
        result += differences("update", after.weights, expected.weights, moves, roundings=_ROUNDINGS, rounded=twin)
    else:
        result += _of_slots(configuration, expected, after.slots, rounded)
        decayed, steps = _asked_by_slots(configuration, before.weights, after.slots, expected.rate)
        if corrections is torch.float32:
            seen = _common_factor(after.weights, decayed, steps)
            for name, step in steps.items():
                factors = _rounded_factors(configuration, float(after.slots[name]["step"]), _POWER_UNITS)
                step *= min(factors, key=lambda factor: abs(factor - seen))
        expected_weights = {name: decayed[name] + step for name, step in steps.items()}
        moves = {name: weight - before.weights[name].to(weight) for name, weight in expected_weights.items()}
        result += differences("applied", after.weights, expected_weights, moves, roundings=_ROUNDINGS)
    if gradients:
        result += differences("gradient", gradients, expected.gradients, rounded=rounded and rounded.gradients)
    else:
        result += [
            replace(difference, quantity="gradient") for difference in result if difference.quantity == "exp_avg"
        ]
    return result


def _of_slots(configuration: Configuration, expected: Step, seen: Slots, rounded: Step | None) -> list[Difference]:
    """The differences between a subject's optimizer slots and the expected ones."""
    result: list[Difference] = []
    share = {"exp_avg": 1 - configuration.beta1, "exp_avg_sq": 1 - configuration.beta2}
    for slot in sorted({slot for slots in seen.values() for slot in slots} | share.keys() | {"step"}):
        shown = {name: slots[slot] for name, slots in seen.items() if slot in slots}
        expected_slots = {name: slots[slot] for name, slots in expected.slots.items() if slot in slots}
        if slot not in share:
            result += differences("count" if slot == "step" else slot, shown, expected_slots)
            continue
        power = 2 if slot == "exp_avg_sq" else 1
        scale = {name: share[slot] * gradient**power for name, gradient in expected.gradients.items()}
        twin = rounded and {name: slots[slot] for name, slots in rounded.slots.items()}
        result += differences(slot, shown, expected_slots, scale, roundings=_ROUNDINGS, rounded=twin)
    return result


def _asked_by_slots(
    configuration: Configuration, weights: Mapping[str, Tensor], seen: Slots, rate: float
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """AdamW's step with these slots in float64 (Loshchilov and Hutter, 2019, algorithm 2), by parameter.

    Returns:
        The weights after their decay, and what the step then adds to them.
    """
    wanted = configuration
    decayed, steps = dict[str, Tensor](), dict[str, Tensor]()
    for name, slots in seen.items():
        if name not in weights or not {"exp_avg", "exp_avg_sq", "step"} <= slots.keys():
            continue
        count = float(slots["step"])
        mean = slots["exp_avg"].double() / (1 - wanted.beta1**count)
        square = slots["exp_avg_sq"].double() / (1 - wanted.beta2**count)
        decayed[name] = weights[name].double() * (1 - rate * wanted.weight_decay)
        steps[name] = -rate * mean / (square.sqrt() + wanted.epsilon)
    return decayed, steps


def corrections_of(configuration: Configuration, before: Snapshot, after: Snapshot, number: int) -> torch.dtype:
    """The dtype of a step's bias corrections: float32 rounds them by a factor that all weights have in common.

    Ask about the first step. The rounded beta2 = 0.999 makes it 7e-6 shorter, and a power of 1 is no further rounding.
    """
    decayed, steps = _asked_by_slots(configuration, before.weights, after.slots or {}, configuration.rate(number))
    counts = {float(slots["step"]) for name, slots in (after.slots or {}).items() if name in steps}
    seen = _common_factor(after.weights, decayed, steps)
    is_rounded = any(
        abs(seen - factor) < abs(seen - 1) for count in counts for factor in _rounded_factors(configuration, count, 0)
    )
    return torch.float32 if is_rounded else torch.float64


@cache
def _rounded_factors(configuration: Configuration, count: float, units: int) -> tuple[float, ...]:
    """The factors by which bias corrections in float32 multiply a step.

    A correction is 1 - p, where p is the power of the rounded beta, itself rounded. So p lies on the grid of float32,
    and a factor between two of these is no rounding.

    Args:
        units: by how many units in the last place the power may be off.
    """
    first, second = (_rounded_corrections(beta, count, units) for beta in (configuration.beta1, configuration.beta2))
    return tuple(v**0.5 / m for m in first for v in second)


def _rounded_corrections(beta: float, count: float, units: int) -> list[float]:
    """1 - beta**count in float32, as multiples of the exact one."""
    exact = 1 - beta**count
    nearest = torch.tensor(float(torch.tensor(beta)) ** count)
    unit = float(nearest - torch.nextafter(nearest, torch.tensor(0.0)))
    corrections = [1 - float(nearest) - more * unit for more in range(-units, units + 1)]
    return [correction / exact for correction in corrections if correction > 0] if exact > 0 else [1.0]


def _common_factor(seen: Mapping[str, Tensor], decayed: Mapping[str, Tensor], steps: Mapping[str, Tensor]) -> float:
    """The common factor of all weights' steps, by least squares; 1.0 if there is none."""
    size = product = 0.0
    for name, step in steps.items():
        if name in seen and seen[name].shape == step.shape:
            size += float((step * step).sum())
            product += float(((seen[name].detach().to(step) - decayed[name]) * step).sum())
    factor = product / size if size else 1.0
    return factor if math.isfinite(factor) else 1.0


@contextmanager
def _full_precision() -> Iterator[None]:
    """Disable TF32, which the subject may have enabled in this process: float32 does not round that coarsely."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
