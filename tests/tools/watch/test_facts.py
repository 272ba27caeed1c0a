"""The file of facts: it only grows, one watcher holds it, and a half line is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tools.watch.checks import state_of
from harness.tools.watch.facts import FACTS, FactFile, WatchedAlready, facts_in
from harness.tools.watch.planted import GIVEN, planted


def test_a_half_line_is_removed(tmp_path: Path) -> None:
    """The next watcher appends after the last whole fact."""
    path = tmp_path / FACTS
    with FactFile(path) as facts:
        facts.append({"fact": "tick", "at": 1.0})
    with path.open("a") as file:
        file.write('{"fact":"tick","a')
    assert facts_in(path) == ({"fact": "tick", "at": 1.0},)
    with FactFile(path) as facts:
        assert facts.earlier == ({"fact": "tick", "at": 1.0},)
        facts.append({"fact": "tick", "at": float("nan")})
    assert len(facts_in(path)) == 2
    assert facts_in(path)[1]["at"] != facts_in(path)[1]["at"]


def test_one_watcher_holds_a_job(tmp_path: Path) -> None:
    """A second one is refused, and changes nothing."""
    with FactFile(tmp_path / FACTS), pytest.raises(WatchedAlready):
        FactFile(tmp_path / FACTS)


def test_a_course_follows_from_the_facts_alone(tmp_path: Path) -> None:
    """Facts that were written and read again lead to the same refutations."""
    for defect in ("leak", "nan-from-step-30", "stale-checkpoints"):
        path = tmp_path / defect / FACTS
        with FactFile(path) as facts:
            for fact in planted(defect):
                facts.append(fact)
        assert state_of(facts_in(path), GIVEN).refutations == state_of(planted(defect), GIVEN).refutations
