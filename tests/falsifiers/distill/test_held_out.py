"""The falsifier's evaluation, on a subject whose answers are tables."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from falsifiers.distill.measuring.held_out import HeldOut, evaluate
from falsifiers.distill.measuring.training_state import digest_of
from falsifiers.distill.running.shown import not_refused
from falsifiers.distill.running.training import StepWatch, read_back
from harness import NotMeasured, NotObserved
from harness.authoring.faults import SubjectFault
from tests.falsifiers.distill.trials import Tables, a_setting, a_trial


def test_the_evaluation_is_torchs_own_loss_over_all_tokens(tmp_path: Path) -> None:
    """It equals torch's cross entropy and kl_div on the whole held-out text at once."""
    trial, _ = a_trial(a_setting(tmp_path), Tables)
    held_out = HeldOut.of(trial)
    got = evaluate(trial, held_out)
    inputs, labels = (torch.cat(part).flatten() for part in zip(*held_out.batches, strict=True))
    student, teacher = (table[inputs].double() for table in (trial.subject.weights["table"], trial.subject.teacher))
    kl = torch.nn.functional.kl_div(
        (student / 4).log_softmax(-1), (teacher / 4).log_softmax(-1), reduction="batchmean", log_target=True
    ).item()
    cross_entropy = torch.nn.functional.cross_entropy(student, labels).item()
    assert got.kl == pytest.approx(kl, rel=1e-9)
    assert got.cross_entropy == pytest.approx(cross_entropy, rel=1e-9)
    assert got.teacher_cross_entropy == pytest.approx(torch.nn.functional.cross_entropy(teacher, labels).item())
    assert got.loss == pytest.approx(0.3 * cross_entropy + 0.7 * 16 * kl, rel=1e-9)


def test_the_blind_guess_is_the_teachers_mean(tmp_path: Path) -> None:
    """A student that always answers with the teacher's mean distribution scores blind_kl."""
    trial, _ = a_trial(a_setting(tmp_path), Tables)
    held_out = HeldOut.of(trial)
    inputs = torch.cat([inputs for inputs, _ in held_out.batches]).flatten()
    mean = (trial.subject.teacher[inputs].double() / 4).softmax(-1).mean(0)
    trial.subject.weights["table"] = (4 * mean.log()).expand(256, 256)
    got = evaluate(trial, held_out)
    assert got.kl == pytest.approx(got.blind_kl, rel=1e-9)


def test_the_other_blind_guess_counts_tokens(tmp_path: Path) -> None:
    """The text has four a's for each b in one line. The share of b's among the held-out labels is as drawn."""
    text = tmp_path / "text.txt"
    text.write_text("".join(random.Random(5).choices("aaaab", k=400_000)))
    held_out = HeldOut.of(a_trial(a_setting(tmp_path, corpus=str(text), batch=64), Tables)[0])
    share = sum((labels == ord("b")).float().mean().item() for _, labels in held_out.batches) / 2
    expected = -share * math.log(0.2) - (1 - share) * math.log(0.8)
    assert held_out.blind_cross_entropy == pytest.approx(expected, rel=0.01)


def test_logits_that_do_not_answer_are_the_subjects_fault(tmp_path: Path) -> None:
    """Too few rows, or a vocabulary other than the teacher's, are a fault of the subject."""
    trial, _ = a_trial(a_setting(tmp_path), Tables)
    held_out = HeldOut.of(trial)
    trial.subject.weights["table"] = trial.subject.weights["table"][:, :-1]
    with pytest.raises(SubjectFault, match="255"):
        evaluate(trial, held_out)


def test_every_trial_is_examined_on_the_same_text(tmp_path: Path) -> None:
    """The held-out sequences do not depend on the seed of the trial."""
    first, second = (HeldOut.of(a_trial(a_setting(tmp_path, seed), Tables)[0]) for seed in (1, 2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first.batches, second.batches, strict=True))


def test_a_step_that_moves_nothing_is_counted_and_seen(tmp_path: Path) -> None:
    """The tables do not change in the second of three steps. The resolved values come from the live weights."""
    trial, recorded = a_trial(a_setting(tmp_path), Tables)
    watch = StepWatch(trial)
    trial.subject.distill(watch)
    read_back(trial, watch.steps)
    assert (watch.steps, watch.changes) == (3, 2)
    assert recorded.steps == [1, 2, 3]
    assert recorded.resolved == {"device": "cpu", "dtype": "float32", "steps": 3}


def test_mixed_dtypes_are_all_named(tmp_path: Path) -> None:
    """The dtype is `bfloat16+float32`, which equals no requested one."""
    trial, recorded = a_trial(a_setting(tmp_path), Tables)
    watch = StepWatch(trial)
    trial.subject.weights["second"] = torch.ones(1, dtype=torch.bfloat16)
    read_back(trial, watch.steps)
    assert recorded.resolved["dtype"] == "bfloat16+float32"


SLOTS = {
    "a": {"exp_avg": torch.ones(3), "step": torch.tensor(2.0)},
    "b": {"exp_avg": torch.zeros(3), "step": torch.tensor(2.0)},
}
WHOLE = {"0/m": torch.ones(3), "0/n": torch.tensor(2.0), "1/m": torch.zeros(3), "1/n": torch.tensor(2.0)}


def test_a_whole_state() -> None:
    """With all slots and the state of a generator, nothing is lost and nothing is foreign; an earlier state is."""
    early, _ = torch.get_rng_state(), torch.rand(())
    state = digest_of(SLOTS)
    assert state.lost(WHOLE) == 0
    assert state.foreign({**WHOLE, "random": torch.get_rng_state()}) == []
    assert state.foreign({**WHOLE, "random": early}) == ["random"]


def test_lost_and_foreign_tensors() -> None:
    """A slot that is rounded or of another step is both lost and foreign. A slot that occurs twice is foreign once."""
    state = digest_of(SLOTS)
    rounded = {**WHOLE, "0/m": torch.ones(3).bfloat16(), "1/n": torch.tensor(3.0)}
    assert (state.lost(rounded), state.foreign(rounded)) == (2, ["0/m", "1/n"])
    assert state.foreign({**WHOLE, "0/o": torch.ones(3)}) == ["0/o"]
    assert state.foreign({**WHOLE, "counter": torch.zeros(1, dtype=torch.uint8)}) == ["counter"]


def _refuse(kind: type[Exception], text: str) -> NoReturn:
    raise kind(text)


def test_what_the_falsifier_can_do_a_subject_must_not_refuse() -> None:
    assert not_refused(lambda: 3, alike=lambda: _refuse(AssertionError, "not needed")) == 3
    with pytest.raises(RuntimeError, match="no room"):
        not_refused(lambda: _refuse(NotMeasured, "no room"), alike=lambda: None)


def test_a_machine_that_refuses_both_is_no_fault() -> None:
    """If the machine refuses subject and falsifier alike, the subject is not blamed.

    A hidden value is no fault either.
    """
    with pytest.raises(NotMeasured, match="full disk"):
        not_refused(lambda: _refuse(NotMeasured, "no room"), alike=lambda: _refuse(NotMeasured, "full disk"))
    with pytest.raises(NotObserved):
        not_refused(lambda: _refuse(NotObserved, "no batch"), alike=lambda: None)
