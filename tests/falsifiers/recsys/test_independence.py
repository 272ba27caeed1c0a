"""The oracle shares no code with the subjects that it judges."""

from __future__ import annotations

from pathlib import Path

from tests.falsifiers.distill.oracle.test_independence import reached

ORACLE = Path(__file__).parents[3] / "falsifiers" / "recsys" / "oracle"


def test_the_oracle_reaches_no_subject() -> None:
    """The oracle may import the Protocol.

    It imports neither the reference nor a mutant, directly or through another module.
    """
    found = reached(sorted(ORACLE.glob("*.py")))
    assert "falsifiers.recsys.subject" in found
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []
