"""The cases of a claim, which all machine-readable reports share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.report import ci_cases
from harness.report.ci_cases import Status
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result
from tests.report.bundles import every_verdict, unsound


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({}, "nothing-lost", "PASS"),
        ({"measurements": healthy(returned=2)}, "nothing-lost", "FAIL"),
        ({"measurements": healthy(smallest=...)}, "smallest.type", "NOT_MEASURED"),
        ({}, "mutant forgets-one", "PASS"),
        ({}, "mutant silent-fallback", "NOT_RUN"),
        ({"skipped": True}, "mutant forgets-one", "NOT_RUN"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, "mutant forgets-one", "VOID"),
        ({"mutants": {"forgets-one": {"given": 2, "returned": 2}}}, "mutant forgets-one", "VOID"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {"given": ...}}}, "mutant forgets-one", "NOT_MEASURED"),
        ({"cut_short": True}, "mutant silent-fallback", "NOT_MEASURED"),
    ],
)
def test_clauses_and_mutants_become_cases(tmp_path: Path, changes: Any, name: str, status: str) -> None:
    """Each has its result."""
    found = {case.name: case for case in ci_cases.of_record(claim_result(tmp_path, **changes).record)}
    assert found[name].status == status
    assert found[name].message


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED])
def test_a_verdict_that_no_case_shows_has_its_own(tmp_path: Path, verdict: Verdict) -> None:
    """A mutant that did not run does not show that the claim is NOT_MEASURED."""
    record = replace(
        claim_result(tmp_path).record, verdict=verdict, reason=Reason(ReasonCode.UNSEALED, text="no space")
    )
    (last,) = [case for case in ci_cases.of_record(record) if case.kind == "verdict"]
    assert (last.status, "no space" in last.message) == (str(verdict), True)


def test_no_verdict_but_pass_has_only_green_cases(tmp_path: Path) -> None:
    """A reader who counts the other cases sees the verdict."""
    for bundle in every_verdict(tmp_path):
        statuses = Counter(case.status for case in ci_cases.of_bundle(bundle))
        if bundle.record is None:
            assert statuses == {Status.UNSOUND: 1}
        elif bundle.record.verdict is Verdict.PASS:
            assert set(statuses) == {Status.PASS, Status.NOT_RUN}
        else:
            assert statuses[Status(bundle.record.verdict)]


def test_an_unsound_bundle_says_what_is_wrong(tmp_path: Path) -> None:
    """The record's texts are left out."""
    (case,) = ci_cases.of_bundle(unsound("summary.md"))
    assert case.message == "unsound: TAMPERED summary.md: summary.md"
