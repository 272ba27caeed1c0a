"""The shadow step on short real runs: a healthy run agrees, and each defect shows in its own quantity and tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest
import torch
from torch import Tensor

from falsifiers.distill.oracle.qwen2 import load, new_model
from falsifiers.distill.oracle.shadow import Configuration, ShadowStep, Snapshot, Step, compare, corrections_of
from falsifiers.distill.oracle.tolerances import QUANTITIES, refuted
from falsifiers.distill.oracle.watch import ShadowWatch
from falsifiers.distill.reference import Distillation
from harness.authoring.shadow_step import worst
from tests.falsifiers.distill.trials import a_mutant, a_setting

SHORT = {
    "steps": 4,
    "warmup_steps": 2,
    "checkpoint_every": 2,
    "gradient_norm": 1.0,
    "batch": 4,
    "corpus": topics.__file__,  # one file of text is read faster than the whole standard library
}
PROJECTION = "model.layers.1.self_attn.o_proj.weight"
NORM = "model.norm.weight"


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
    """Every step is checked here. All quantities are measured, and none is beyond its tolerance."""
    watch = watched(Distillation, tmp_path, cache, dtype=dtype)
    assert watch.checked == [1, 2, 3, 4]
    assert {*worst(watch.differences)} == QUANTITIES - {"update", "initial_scale", "initial_rank"}
    assert refuted(watch.differences, dtype) == []


class GradientLostOnce(Distillation):
    """The third step has no gradient."""

    def update(self, loss: Tensor, step: int) -> None:
        super().update(loss * 0.0 if step == 3 else loss, step)


def test_a_step_is_chosen_after_it_is_made(tmp_path: Path, cache: Path) -> None:
    """With the share 1, a defect of any step shows. With 0, the first and last step and those of events are left."""
    all_steps = watched(GradientLostOnce, tmp_path / "all", cache, steps=5, checked_share=1.0)
    assert "gradient" in {difference.quantity for difference in refuted(all_steps.by_step[3], "float32")}
    few = watched(Distillation, tmp_path / "few", cache, steps=9, warmup_steps=2, checked_share=0.0)
    assert few.checked == [1, 2, 3, 8, 9]


def test_watching_changes_nothing(tmp_path: Path, cache: Path) -> None:
    """With dropout, the losses of a run are the same to the bit with the shadow and without it."""
    setting = replace(a_setting(tmp_path, **SHORT, dropout=0.1), cache=cache)
    alone, beside = Distillation(setting), Distillation(setting)
    assert alone.distill(lambda step, **values: None).losses == beside.distill(ShadowWatch(beside, setting)).losses


@pytest.mark.parametrize(
    ("mutant", "quantities", "tensor"),
    [
        ("cross-entropy-updates", {"gradient", "exp_avg", "exp_avg_sq"}, None),
        ("transposed-gradient", {"gradient", "exp_avg", "exp_avg_sq"}, PROJECTION),
        ("norm-stands-still", {"applied"}, NORM),
        ("quick-squares", {"exp_avg_sq", "applied"}, None),
        ("no-decay", {"applied"}, None),
        ("maximum-of-squares", {"max_exp_avg_sq"}, None),
        ("smoothed-loss", {"loss"}, ""),
        ("peak-rate-told", {"rate"}, ""),
        ("numbers-from-zero", {"number"}, ""),
        ("another-activation", {"student_logits", "gradient", "exp_avg", "exp_avg_sq"}, None),
        ("moving-teacher", {"teacher_logits", "loss", "gradient", "exp_avg", "exp_avg_sq"}, None),
    ],
)
def test_a_defect_shows_in_its_quantity_and_tensor(
    tmp_path: Path, cache: Path, mutant: str, quantities: set[str], tensor: str | None
) -> None:
    """The expected quantity is beyond its tolerance. Other tensors and earlier quantities are not."""
    with a_mutant("F-DISTILL-STEP-001", mutant) as (subject, _):
        found = refuted(watched(subject, tmp_path, cache).differences, "float32")
    assert quantities <= {difference.quantity for difference in found}
    if tensor is not None:
        assert {difference.tensor for difference in found} == {tensor}
    exact = {"student_logits", "teacher_logits", "number", "rate", "count"} - quantities
    assert not exact & {difference.quantity for difference in found}


def test_shown_gradients_and_weights_without_slots_are_compared(tmp_path: Path, cache: Path) -> None:
    """Half of the shadow's gradient is 0.5 away. If there are no slots, a missing step is 1 away."""
    setting = replace(a_setting(tmp_path, **SHORT), cache=cache)
    subject, configuration = Distillation(setting), Configuration.of(setting.parameters)
    before = Snapshot.of(subject.student_weights())
    shadow = ShadowStep(configuration, torch.device("cpu"))
    expected = shadow.step(1, before, *subject.batch(1), subject.teacher_weights())

    def ratios(scale: float, after: Snapshot) -> dict[str, float]:
        shown = {name: (scale * gradient).float() for name, gradient in expected.gradients.items()}
        found = compare(configuration, expected, before, after, loss=expected.loss, number=1, gradients=shown)
        return {quantity: difference.ratio for quantity, difference in worst(found).items()}

    made = Snapshot({name: weight.float() for name, weight in expected.weights.items()}, None)
    right, wrong = ratios(1.0, made), ratios(0.5, before)
    assert right["gradient"] < 1e-6
    assert right["update"] < 1e-6
    assert wrong["gradient"] == pytest.approx(0.5, rel=1e-3)
    assert wrong["update"] == pytest.approx(1.0, rel=1e-3)


def test_a_teachers_logits_stand_in_for_its_weights(tmp_path: Path, cache: Path) -> None:
    """If a subject shows no weights of the teacher, its logits are used, and the step is the same."""
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
    """A missing weight, a foreign weight, and one of another shape, which would be broadcast, are refused."""
    model = new_model("qwen2-tiny", torch.device("cpu"))
    weights = dict(model.named_parameters())
    change(weights)
    with pytest.raises(ValueError, match=message):
        load(model, weights)


def test_a_model_without_a_shape_is_refused() -> None:
    """A model with an unknown name is refused."""
    with pytest.raises(ValueError, match="qwen3"):
        new_model("qwen3", torch.device("cpu"))


def applied(
    count: int, corrections: torch.dtype, factor: float = 1.0, judged: torch.dtype | None = None
) -> tuple[torch.dtype, float]:
    """For step `count` of weights at 0: the dtype that its corrections are taken for, and the error of what it did.

    Args:
        corrections: in which the step computes them.
        factor: by what a defect multiplies the step.
        judged: what they are taken for; `corrections` if None.
    """
    mean, square = torch.linspace(-1, 1, 1000), torch.linspace(1e-3, 1, 1000)
    betas = (torch.tensor(beta, dtype=corrections) for beta in (0.9, 0.999))
    first, second = (1 - beta ** torch.tensor(float(count), dtype=corrections) for beta in betas)
    move = -0.01 * factor * (mean / first.float()) / ((square / second.float()).sqrt() + 1e-8)
    slots = {"w": {"exp_avg": mean, "exp_avg_sq": square, "step": torch.tensor(float(count))}}
    before, after = Snapshot({"w": torch.zeros(1000)}, {}), Snapshot({"w": move}, slots)
    wanted, none = Configuration("none", 0.01, 1.0, 1.0), torch.zeros(0)
    expected = Step(count, 1.0, none, none, 0.01, {}, {}, {})
    dtype = corrections_of(wanted, before, after, count)
    found = compare(wanted, expected, before, after, loss=1.0, number=count, corrections=judged or corrections)
    return dtype, worst(found)["applied"].ratio


@pytest.mark.parametrize("corrections", [torch.float32, torch.float64])
def test_rounded_bias_corrections_are_no_defect_and_hide_none(corrections: torch.dtype) -> None:
    """The first step tells them apart, if no defect does what rounding does to it; then the next steps show it.

    A decay after the update makes each step 6e-6 shorter. Rounding makes the first one 7e-6 shorter, and no two alike.
    """
    assert applied(1, corrections)[0] is corrections
    steps = (1, 2, 3, 5, 8, 13, 50, 1000)
    assert max(applied(count, corrections)[1] for count in steps) < 1e-6
    for factor in (1 - 6e-6, 1 + 6e-6, 1 - 3e-6):
        for judged in (torch.float32, torch.float64):
            assert max(applied(count, corrections, factor, judged)[1] for count in steps) > 1e-6
