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
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from tests.falsifiers.in_process import PROJECT, Claims

FIRST = 24
"""The first cases of every search: six in each of four dtypes."""
NAMES = [f"F-DISTILL-KD-{name}-001" for name in ("LOSS", "GRAD", "CHUNKED")]
CLAIMS = Claims({name: PROJECT.contract(name) for name in NAMES}, {name: {"cases": FIRST} for name in NAMES})
CHUNKED = "falsifiers.distill.reference.chunked:ChunkedKdLoss"


@pytest.mark.parametrize("claim", NAMES)
@pytest.mark.parametrize("subject", ["falsifiers.distill.reference.kd:PlainKdLoss", CHUNKED])
def test_the_losses_that_we_ship_hold(claim: str, subject: str, tmp_path: Path) -> None:
    """The plain loss and the chunked one pass every clause."""
    judgment = CLAIMS.judged(claim, tmp_path, subject=subject)
    assert judgment.outcome is Outcome.PASS, judgment.reason
    assert not (tmp_path / "counterexample.json").exists()


@pytest.mark.parametrize(("claim", "mutant"), CLAIMS.mutants())
def test_mutants_die_of_the_first_cases(claim: str, mutant: Mutant, tmp_path: Path) -> None:
    """The first cases kill the mutants on the declared clauses, for any seed, and leave a counterexample."""
    CLAIMS.dies(claim, mutant, tmp_path)
    if not any("[]" in clause and not clause.startswith(("edge_", "scale_")) for clause in mutant.violates):
        return  # no search draws the edges or the case of the shared factor, and state is no matter of one case
    kept = json.loads((tmp_path / "counterexample.json").read_text())
    assert set(mutant.violates) & set(kept["clauses"])


class _NanInOneGradient(PlainKdLoss):
    def __call__(self, question: Question) -> Answer:
        answer = super().__call__(question)
        return replace(answer, head_gradient=torch.full_like(answer.head_gradient, float("nan")))


def test_a_gradient_of_nan_is_not_lost_beside_the_other(tmp_path: Path) -> None:
    claim = "F-DISTILL-KD-GRAD-001"
    subject = f"{__name__}:{_NanInOneGradient.__name__}"
    failed = CLAIMS.judged(claim, tmp_path, subject=subject).with_outcome(Outcome.FAIL)
    assert {"errors_float32[].maximum", "errors_half[].maximum"} <= {clause.id for clause in failed}


def test_the_formula_is_the_historical_one() -> None:
    """If all positions are ignored, loss and gradient are 0.

    Otherwise the gradient of a row sums to zero over logits.
    """
    case = first_cases(("float64",))[0]
    nothing = truth(question({**case, "ignored": 1.0}, "cpu"))
    assert nothing.loss == 0.0
    assert not nothing.student_gradient.any()
    drawn = question(case, "cpu")
    something = truth(drawn)
    assert something.loss > 0.0
    assert something.student_gradient.shape == drawn.student.shape
    assert something.head_gradient.shape == drawn.student_head.shape
