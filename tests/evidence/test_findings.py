"""Findings that make a bundle unsound, and remarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.base.vocabulary import Verdict
from harness.evidence.findings import Code, Detail, Verification, finding

CHANGED = finding(Code.TAMPERED, Detail.CHANGED, "record.json")
OLD, UNSIGNED = (finding(code, Detail.FILES_CHANGED) for code in (Code.STALE_SUBJECT, Code.UNSIGNED))


def test_a_finding_makes_a_bundle_unsound() -> None:
    one = Verification(Path("bundle"), (), verdict=Verdict.PASS)
    assert (one.sound, one.accepted, one.objections, one.standing) == (True, True, (), "PASS")
    one = replace(one, findings=(CHANGED,))
    assert (one.sound, one.accepted, one.objections, one.standing) == (False, False, (CHANGED,), "UNSOUND")


def test_a_remark_is_an_objection_only_where_it_is_refused() -> None:
    """The findings that make a bundle unsound come first, then the refused remarks."""
    one = Verification(Path("bundle"), (), remarks=(UNSIGNED, OLD), verdict=Verdict.PASS)
    assert (one.accepted, one.objections, one.standing) == (True, (), "PASS")
    strict = replace(one, refused=(Code.STALE_SUBJECT,))
    assert (strict.accepted, strict.objections, strict.standing) == (False, (OLD,), "NOT_ACCEPTED")
    assert replace(strict, findings=(CHANGED,)).objections == (CHANGED,)
