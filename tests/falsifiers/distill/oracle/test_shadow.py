"""The shadow step on short real runs: a healthy run agrees, and each defect shows in its own quantity and tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest
import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import load, new_model
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, compare
from falsifiers.distill.oracle.tolerances import refuted
from falsifiers.distill.oracle.watch import ShadowWatch
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.loss import distillation_loss
from harness.authoring.shadow_step import worst
from tests.falsifiers.distill.trials import a_setting

SHORT = {
    "steps": 4,
    "warmup_steps": 2,
    "checkpoint_every": 2,
    "gradient_norm": 1.0,
    "batch": 4,
    "corpus": topics.__file__,  # one file of text is read sooner than the whole standard library
}
PROJECTION = "model.layers.1.self_attn.o_proj.weight"
NORM = "model.norm.weight"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take ten times as long as one thread does here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, so that the teacher is trained once."""
    return tmp_path_factory.mktemp("cache")


def watched(subject: type[Distillation], folder: Path, cache: Path, **parameters: Any) -> ShadowWatch:
    """A short run of the subject with the shadow beside it."""
    setting = replace(a_setting(folder, **{**SHORT, **parameters}), cache=cache)
    made = subject(setting)
    watch = ShadowWatch(made, setting)
    made.distill(watch)
    return watch


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_healthy_run_agrees_in_every_quantity(tmp_path: Path, cache: Path, dtype: str) -> None:
    """Every step is checked here; the quantities are all there, and none is beyond its tolerance."""
    watch = watched(Distillation, tmp_path, cache, dtype=dtype)
    assert watch.checked == [1, 2, 3, 4]
    assert worst(watch.differences).keys() == {
        *("student_logits", "teacher_logits", "loss", "number", "update", "exp_avg", "exp_avg_sq", "count", "applied")
    }
    assert refuted(watch.differences, dtype) == []


def test_watching_changes_nothing(tmp_path: Path, cache: Path) -> None:
    """The losses of a run with dropout are the same to the bit, with the shadow and without."""
    setting = replace(a_setting(tmp_path, **SHORT, dropout=0.1), cache=cache)
    alone, beside = Distillation(setting), Distillation(setting)
    assert alone.distill(lambda step, **values: None).losses == beside.distill(ShadowWatch(beside, setting)).losses


class _AnotherStep(Distillation):
    """Reports the right loss; the defects of the classes below are only in the update."""

    def update(self, loss: Tensor, step: int) -> None:
        """The reference's update with two places for a defect."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.zero_grad()
        self.objective(loss, step).backward()
        self.change_gradients(self.student_weights())
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.change_weights(self.student_weights(), step)

    def objective(self, loss: Tensor, step: int) -> Tensor:
        """What the step minimises in place of the loss that it reports."""
        return loss

    def change_gradients(self, weights: dict[str, Tensor]) -> None:
        """A defect between the backward pass and clipping."""

    def change_weights(self, weights: dict[str, Tensor], step: int) -> None:
        """A defect after the optimizer's step."""


class TwoTemperatures(_AnotherStep):
    """The update takes a temperature of 3, and the report that which was configured."""

    def objective(self, loss: Tensor, step: int) -> Tensor:
        """Another loss."""
        inputs, labels = self.batch(step)
        student = self.student(input_ids=inputs, use_cache=False).logits
        return distillation_loss(student, self.teacher_logits(inputs), labels, alpha=0.3, temperature=3.0)


class WrongSign(_AnotherStep):
    """One projection climbs."""

    def change_gradients(self, weights: dict[str, Tensor]) -> None:
        """Turn its sign."""
        weights[PROJECTION].grad.neg_()  # type: ignore[union-attr]


class Transposed(_AnotherStep):
    """One square projection takes the transposed gradient, so that no norm changes."""

    def change_gradients(self, weights: dict[str, Tensor]) -> None:
        """Transpose it."""
        weights[PROJECTION].grad = weights[PROJECTION].grad.T.clone()  # type: ignore[union-attr]


class StandsStill(_AnotherStep):
    """The last norm stops after the first half of the run; its slots go on."""

    def __init__(self, setting: Any) -> None:
        """Nothing is kept yet."""
        super().__init__(setting)
        self.kept: Tensor | None = None

    def change_weights(self, weights: dict[str, Tensor], step: int) -> None:
        """Put it back."""
        with torch.no_grad():
            if step > 2 and self.kept is not None:
                weights[NORM].copy_(self.kept)
            self.kept = weights[NORM].clone()


def with_optimizer(**changed: Any) -> type[Distillation]:
    """A subject whose optimizer is AdamW with another hyperparameter."""

    class AnotherOptimizer(Distillation):
        def __init__(self, setting: Any) -> None:
            super().__init__(setting)
            self.optimizer = torch.optim.AdamW(self.student.parameters(), **changed)

    return AnotherOptimizer


class LowLoss(Distillation):
    """The reported loss is 2 % too low."""

    def reported(self, loss: Tensor, step: int) -> float:
        """Less."""
        return 0.98 * super().reported(loss, step)


class AnotherTeacher(Distillation):
    """The teacher that answers has other weights than the one that is shown."""

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The answer to other tokens."""
        return super().teacher_logits(tokens.flip(-1))


@pytest.mark.parametrize(
    ("subject", "quantities", "tensor"),
    [
        (TwoTemperatures, {"exp_avg", "exp_avg_sq", "update"}, None),
        (WrongSign, {"exp_avg", "update"}, PROJECTION),
        (Transposed, {"exp_avg", "exp_avg_sq", "update"}, PROJECTION),
        (StandsStill, {"applied", "update"}, NORM),
        (with_optimizer(betas=(0.9, 0.95)), {"exp_avg_sq"}, None),
        (with_optimizer(weight_decay=0.0), {"applied"}, None),
        (with_optimizer(amsgrad=True), {"max_exp_avg_sq"}, None),
        (LowLoss, {"loss"}, ""),
        (AnotherTeacher, {"teacher_logits", "loss", "exp_avg", "exp_avg_sq"}, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_defect_shows_in_its_quantity_and_tensor(
    tmp_path: Path, cache: Path, subject: type[Distillation], quantities: set[str], tensor: str | None
) -> None:
    """What it must show is beyond its tolerance; the other tensors and the quantities before it are not."""
    found = refuted(watched(subject, tmp_path, cache).differences, "float32")
    assert quantities <= {one.quantity for one in found}
    if tensor is not None:
        assert {one.tensor for one in found} == {tensor}
    if "loss" not in quantities:
        assert not {"loss", "student_logits", "teacher_logits", "number", "count"} & {one.quantity for one in found}


def test_a_wrong_number_rate_and_shown_gradient_are_compared_too(tmp_path: Path, cache: Path) -> None:
    """The gradient that the reference shows is the shadow's; half of it is 0.5 away."""
    setting = replace(a_setting(tmp_path, **SHORT), cache=cache)
    subject, configuration = Distillation(setting), Configuration.of(setting.parameters)
    before = Snapshot.of(subject.student_weights(), subject.optimizer_state())
    inputs, labels = subject.batch(1)
    shadow, teacher = ShadowStep(configuration, torch.device("cpu")), subject.teacher_weights()
    expected = shadow.step(1, before, inputs, labels, teacher)
    rounded = shadow.step(1, before, inputs, labels, teacher, torch.float32)
    gradients = subject.gradients(inputs, labels)

    def ratios(scale: float, number: int, rate: float) -> dict[str, float]:
        shown = {name: scale * gradient for name, gradient in gradients.items()}
        told: dict[str, Any] = {"loss": expected.loss, "number": number, "rate": rate, "gradients": shown}
        found = compare(configuration, expected, rounded, before, before, **told)
        return {quantity: one.ratio for quantity, one in worst(found).items()}

    right, wrong = ratios(1.0, 1, 0.005), ratios(0.5, 2, 0.01)
    assert right["gradient"] < 1e-4
    assert right["number"] == right["rate"] == right["loss"] == 0.0
    assert wrong["gradient"] == pytest.approx(0.5, rel=1e-3)
    assert wrong["number"] == wrong["rate"] == 1.0


def test_a_teachers_logits_stand_in_for_its_weights(tmp_path: Path, cache: Path) -> None:
    """A subject that shows no teacher's weights has its logits taken, and the step is the same."""
    setting = replace(a_setting(tmp_path, **SHORT), cache=cache)
    subject = Distillation(setting)
    shadow = ShadowStep(Configuration.of(setting.parameters), torch.device("cpu"))
    before, (inputs, labels) = Snapshot.of(subject.student_weights()), subject.batch(1)
    by_weights = shadow.step(1, before, inputs, labels, subject.teacher_weights())
    by_logits = shadow.step(1, before, inputs, labels, subject.teacher_logits(inputs))
    assert by_logits.loss == pytest.approx(by_weights.loss, rel=1e-6)
    assert torch.allclose(by_logits.gradients[PROJECTION], by_weights.gradients[PROJECTION], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop(NORM), NORM),
        (lambda weights: weights.update(foreign=torch.ones(1)), "foreign"),
        (lambda weights: weights.update({NORM: torch.ones(1)}), NORM),
    ],
)
def test_weights_of_another_model_are_refused(change: Callable[[dict[str, Tensor]], object], message: str) -> None:
    """A missing weight, a foreign one, and one of another shape, which would be broadcast."""
    model = new_model("qwen2-tiny", torch.device("cpu"))
    weights = dict(model.named_parameters())
    change(weights)
    with pytest.raises(ValueError, match=message):
        load(model, weights)


def test_a_model_without_a_shape_is_refused() -> None:
    """Another name is no guess."""
    with pytest.raises(ValueError, match="qwen3"):
        new_model("qwen3", torch.device("cpu"))
