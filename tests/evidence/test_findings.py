"""What speaks against a bundle, as its verification says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.base.vocabulary import Verdict
from harness.evidence.findings import Code, Finding, Verification

FIRST, SECOND, THIRD = (Finding(Code.TAMPERED, name, "was changed") for name in ("a", "b", "c"))
OLD, UNSIGNED = Finding(Code.STALE_SUBJECT, "", "changed since"), Finding(Code.UNSIGNED, "", "is not signed")


@pytest.mark.parametrize(
    ("findings", "problem"),
    [((), ""), ((FIRST,), f"{FIRST}"), ((FIRST, SECOND), f"{FIRST}, and 1 more"),
     ((FIRST, SECOND, THIRD), f"{FIRST}, and 2 more")],
)  # fmt: skip
def test_the_first_of_the_findings_is_the_problem(findings: tuple[Finding, ...], problem: str) -> None:
    """The others are counted."""
    one = Verification(Path("bundle"), findings, verdict=Verdict.PASS)
    assert (one.problem, one.sound) == (problem, not findings)
    assert one.standing == ("UNSOUND" if findings else "PASS")


def test_a_remark_is_a_problem_only_where_it_is_refused() -> None:
    """Findings that make a bundle unsound come before it."""
    one = Verification(Path("bundle"), (), remarks=(UNSIGNED, OLD), verdict=Verdict.PASS)
    assert (one.accepted, one.objections, one.standing) == (True, (), "PASS")
    strict = replace(one, refused=(Code.STALE_SUBJECT,))
    assert (strict.accepted, strict.objections, strict.standing) == (False, (OLD,), "NOT_ACCEPTED")
    assert replace(strict, findings=(FIRST,)).objections == (FIRST,)
