"""The falsifiers of losses on the first inputs of every search: healthy losses pass, and mutants are killed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from falsifiers.distill.kd.cases import first_cases, question
from falsifiers.distill.kd.formulas import truth
from falsifiers.distill.kd.subject import Answer, Question
from falsifiers.distill.reference.kd import PlainKdLoss
from harness.base.vocabulary import Fate, Outcome
from harness.contract import Mutant
from harness.contract.project import Project
from harness.judging.verdict import fate_of
from tests.falsifiers.distill.trials import CONTRACTS
from tests.falsifiers.in_process import judged

PROJECT = Project.find(CONTRACTS)
CLAIMS = {
    name: PROJECT.contract(name)
    for name in ("F-DISTILL-KD-LOSS-001", "F-DISTILL-KD-GRAD-001", "F-DISTILL-KD-CHUNKED-001")
}
FIRST = 24
"""The first cases of every search: six in each of four dtypes."""
CHUNKED = "falsifiers.distill.reference.chunked:ChunkedKdLoss"


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("subject", ["falsifiers.distill.reference.kd:PlainKdLoss", CHUNKED])
def test_the_losses_that_we_ship_hold(claim: str, subject: str, tmp_path: Path) -> None:
    """The plain loss and the chunked one pass every clause."""
    judgment = judged(CLAIMS[claim], subject, tmp_path, cases=FIRST)
    assert judgment.outcome is Outcome.PASS, judgment.reason
    assert not (tmp_path / "counterexample.json").exists()


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [
        pytest.param(name, one, id=f"{name}-{one.id}")
        for name, contract in CLAIMS.items()
        for one in contract.mutants
        if one.requires.get("device") != "cuda"
    ],
)
def test_mutants_die_of_the_first_cases(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """The first cases kill the mutants on the declared clauses, for any seed, and leave a counterexample."""
    outcome = fate_of(mutant, judged(CLAIMS[claim], mutant.subject, tmp_path, mutant, cases=FIRST))
    assert outcome.fate is Fate.KILLED, outcome.reason
    if not any("[]" in clause and not clause.startswith("edge_") for clause in mutant.violates):
        return  # no search draws the edges, and state is no matter of one case
    kept = json.loads((tmp_path / "counterexample.json").read_text())
    assert set(mutant.violates) & set(kept["clauses"])


class _NanInOneGradient(PlainKdLoss):
    def __call__(self, question: Question) -> Answer:
        answer = super().__call__(question)
        return replace(answer, head_gradient=torch.full_like(answer.head_gradient, float("nan")))


def test_a_gradient_of_nan_is_not_lost_beside_the_other(tmp_path: Path) -> None:
    claim = "F-DISTILL-KD-GRAD-001"
    subject = f"{__name__}:{_NanInOneGradient.__name__}"
    failed = judged(CLAIMS[claim], subject, tmp_path, cases=FIRST).with_outcome(Outcome.FAIL)
    assert {"errors_float32[].maximum", "errors_half[].maximum"} <= {clause.id for clause in failed}


def test_the_formula_is_the_historical_one() -> None:
    """If all positions are ignored, loss and gradient are 0.

    Otherwise the gradient of a row sums to zero over logits.
    """
    case = first_cases(("float64",))[0]
    nothing = truth(question({**case, "ignored": 1.0}, "cpu"))
    assert nothing.loss == 0.0
    assert not nothing.student_gradient.any()
    asked = question(case, "cpu")
    something = truth(asked)
    assert something.loss > 0.0
    assert something.student_gradient.shape == asked.student.shape
    assert something.head_gradient.shape == asked.student_head.shape
