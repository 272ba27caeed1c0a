"""The words for results, which files and pipelines rely on, and the exit statuses of commands."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus, Fate, Outcome, Status, Verdict, exit_status

_SETS = [seen for size in range(len(Verdict) + 1) for seen in combinations(Verdict, size)]


@pytest.mark.parametrize("seen", _SETS, ids=lambda seen: "+".join(seen) or "nothing")
def test_the_worst_verdict_is_the_exit_status(seen: tuple[Verdict, ...]) -> None:
    """FAIL outranks VOID, VOID outranks NOT_MEASURED. The status is 0 if something ran and everything passed."""
    worst = next(
        (verdict for verdict in (Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, Verdict.PASS) if verdict in seen),
        None,
    )
    expected = {Verdict.FAIL: 1, Verdict.VOID: 4, Verdict.NOT_MEASURED: 3, Verdict.PASS: 0, None: 3}[worst]
    assert exit_status(iter(seen)) == expected
    assert exit_status(seen * 2) is exit_status(reversed(seen))


def test_the_numbers_are_those_of_the_documentation() -> None:
    """Scripts compare these numbers."""
    expected = {"PASS": 0, "FAIL": 1, "REFUSED": 2, "NOT_MEASURED": 3, "VOID": 4, "INTERRUPTED": 130, "UNREAD": 141}
    assert expected == {status.name: int(status) for status in ExitStatus}


def test_the_documentation_explains_the_statuses_in_the_same_words() -> None:
    """The terminal and the pages have the same legend."""
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert "\n".join(f"| `{status}` | {status.meaning} |" for status in Status) in page


def test_the_words_are_those_of_every_record() -> None:
    """Sealed bundles contain these words, so they must not change."""
    assert [*Outcome] == ["PASS", "FAIL", "NOT_MEASURED"]
    assert [*Verdict] == ["PASS", "FAIL", "NOT_MEASURED", "VOID"]
    assert [*Fate] == ["killed", "survived", "misattributed", "inconclusive", "not run", "interrupted"]
