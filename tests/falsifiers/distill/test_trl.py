"""TRL's GKD and SFT Trainers as subjects: healthy ones are not refuted, planted defects are. See `make trl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.outside import EXPORT, MAX_STEPS, PERIOD, SMOKE, failed
from tests.falsifiers.distill.test_hugging_face import BATCH, STEP, outcomes

pytest.importorskip("trl", reason="needs TRL: make trl installs it")

ASKED: dict[str, dict[str, Any]] = {"gkd": {"alpha": 0, "temperature": 1}, "sft": {"alpha": 1}}
"""Parameters with which the claim's loss is that of the Trainer."""
OF_A_TEACHER = {"teacher-logits", "teacher_logits_error.type", "teacher_logits_error.minimum"}

DEFECTS = [
    (MAX_STEPS, "overstates", {"surplus[].const", "overstated[].const", "resolved.steps"}),
    (MAX_STEPS, "idle", {"idle[].const"}),
    (PERIOD, "saves_before", {"different.maxItems"}),
    (EXPORT, "exports_initial", {"different.maxItems", "unmoved.maxItems", "not_of_last_step.maxItems"}),
    (STEP, "shifts_twice", {"loss", "gradient", "first-moment"}),
    (STEP, "divides_twice", {"loss"}),
    (STEP, "restarts_data", {"loss", "gradient", "first-moment"}),
    (STEP, "another_beta", {"second-moment"}),
]


@pytest.mark.parametrize("claim", [MAX_STEPS, PERIOD, STEP, BATCH])
def test_a_healthy_gkd_trainer_passes(claim: str, tmp_path: Path) -> None:
    """Every clause is measured."""
    found = outcomes(tmp_path, claim, "trainers.trl_gkd:build", **ASKED["gkd"])
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.PASS} == {}


@pytest.mark.parametrize("claim", [MAX_STEPS, PERIOD])
def test_a_healthy_sft_trainer_passes(claim: str, tmp_path: Path) -> None:
    """Every clause is measured."""
    found = outcomes(tmp_path, claim, "trainers.trl_sft:build", **ASKED["sft"])
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.PASS} == {}


def test_the_steps_of_an_sft_trainer_pass_but_for_its_teacher(tmp_path: Path) -> None:
    """Clauses that need a teacher are NOT_MEASURED, because the Trainer has none."""
    found = outcomes(tmp_path, STEP, "trainers.trl_sft:build", **ASKED["sft"])
    assert {name for name, outcome in found.items() if outcome is not Outcome.PASS} == OF_A_TEACHER
    assert failed(found) == set()


@pytest.mark.parametrize("kind", ["gkd", "sft"])
@pytest.mark.parametrize("claim", [STEP, EXPORT])
def test_micro_batches_and_exports_are_not_refuted(kind: str, claim: str, tmp_path: Path) -> None:
    """Facts that a Trainer does not write into its export, such as the teacher's name, are NOT_MEASURED."""
    name = f"tests.falsifiers.distill.planted_trl:{kind}_accumulates"
    assert failed(outcomes(tmp_path, claim, name, **ASKED[kind])) == set()


@pytest.mark.parametrize("kind", ["gkd", "sft"])
@pytest.mark.parametrize(("claim", "defect", "clauses"), DEFECTS)
def test_a_planted_defect_is_refuted(kind: str, claim: str, defect: str, clauses: set[str], tmp_path: Path) -> None:
    """Each defect fails the clauses that name it."""
    name = f"tests.falsifiers.distill.planted_trl:{kind}_{defect}"
    found = failed(outcomes(tmp_path, claim, name, **ASKED[kind]))
    assert clauses <= found, found


def test_a_student_that_is_its_own_teacher(tmp_path: Path) -> None:
    """There is no divergence between the two, before the run and after it."""
    found = failed(outcomes(tmp_path, SMOKE, "tests.falsifiers.distill.planted_trl:gkd_own_teacher", **ASKED["gkd"]))
    assert {"initial_kl.minimum", "final_kl.minimum", "teacher_drift.maximum"} <= found
