"""Words that follow from no measurement are marked with their author, because no check can find an edit of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.vocabulary import Fate
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.verification import verify
from harness.report.messages import reason_text
from harness.tools.ci_reports import ctrf, junit, sarif
from harness.tools.report_text import caveats
from harness.tools.text_report import bundle_results
from tests.evidence.factory import claim_result, rewrite, sealer, set_at

DERIVED = frozenset({ReasonCode.VIOLATED, ReasonCode.NOT_JUDGED, ReasonCode.PASSED})
"""Codes whose text, if there is one, is the contract's or the harness's own."""


@pytest.mark.parametrize("code", list(ReasonCode))
def test_a_reason_with_words_from_outside_names_their_author(code: ReasonCode) -> None:
    """A sentence that repeats the text of a reason is marked, unless the text is the contract's."""
    reason = Reason(code, "values", "FORGED", clauses=("one",), fate=Fate.INCONCLUSIVE)
    if "FORGED" in reason_text.of(reason) and code not in DERIVED:
        assert reason_text.stated(reason).startswith("stated by the ")
        assert reason_text.marked(reason).endswith(f"[{reason_text.stated(reason)}]")
    assert reason_text.stated(Reason(code, "values")) == ""


def test_the_innermost_cause_decides() -> None:
    """A mutant's reason repeats the words of its trial."""
    raised = Reason(ReasonCode.SUBJECT_FAULT, "subject", "boom")
    whole = Reason(ReasonCode.MUTANT, mutant="one", fate=Fate.INCONCLUSIVE, cause=raised)
    assert reason_text.stated(whole) == "stated by the subject"
    assert reason_text.stated(None) == reason_text.marked(None) == ""


def test_a_forged_reason_is_marked_among_the_caveats(tmp_path: Path) -> None:
    """Verify cannot find this edit, so the caveat names the author of the words."""
    bundle = sealer(tmp_path).seal(claim_result(tmp_path))
    rewrite(bundle, "record.json", set_at("mutants", 2, "reason", "text", "FORGED"))
    (result,) = bundle_results([verify(bundle)])
    assert result.verification.sound
    assert result.record is not None
    (text,) = [caveat.text for caveat in caveats(result.record, ()) if "FORGED" in caveat.text]
    assert text.endswith("FORGED [stated by the run]")


def test_a_forged_reason_is_marked_for_ci(tmp_path: Path) -> None:
    """In each format, every sentence with such words names their author."""
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, mutants={}, obstacle="FORGED"))
    results = bundle_results([verify(bundle)])
    for written in (junit.render(results), ctrf.render(results), sarif.render(results)):
        assert written.count("FORGED") == written.count("stated by the run") > 0
