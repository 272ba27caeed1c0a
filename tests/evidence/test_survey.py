"""Gaps in the evidence of a project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.schemas import Problem
from harness.base.vocabulary import Verdict
from harness.contract import ContractError
from harness.contract.mentions import mentions
from harness.contract.project import Project
from harness.evidence.survey import Gaps, Survey, gaps
from tests.contracts import IDENTIFIER, contract_of, document, write_contract, write_project
from tests.evidence.entries import entry
from tests.evidence.factory import MUTANTS, sealed


def test_gaps_of_every_kind() -> None:
    """Any verdict in the full profile counts, and a mutant is killed if one run killed it."""
    identifiers = [f"F-DEMO-{letter}-001" for letter in "CBAD"]
    full, unrun, reduced, void = identifiers
    contracts = [contract_of(document(id=identifier, mutants=MUTANTS)) for identifier in identifiers]
    refused = [ContractError(Path("F-DEMO-Z-001.json"), [Problem("/a", "is wrong", "mend it"), Problem("", "is bad")])]
    entries = [
        entry(1, id=full, killed=("forgets-one",), verdict=Verdict.FAIL),
        entry(2, id=full, killed=("stops-early", "silent-fallback"), profile="reduced"),
        entry(3, id=reduced, killed=("stops-early",), profile="reduced"),
        entry(4, id=void, killed=(), verdict=Verdict.NOT_MEASURED),
        entry(5, id=void, killed=(), verdict=Verdict.NOT_MEASURED),
        *(entry(second, id="F-GONE-B-001") for second in range(3)),
        entry(6, id="F-GONE-A-001"),
        entry(7, id="F-DEMO-Z-001"),
    ]
    mentions = {"F-LOST-B-001": ("a:1", "b:2"), "F-LOST-A-001": ("c:3",), full: ("d:4",), "F-DEMO-Z-001": ("e:5",)}
    found = gaps(contracts, refused, entries, mentions)
    every = [mutant["id"] for mutant in MUTANTS]
    assert found == Gaps(
        unclaimed={"F-LOST-A-001": ["c:3"], "F-LOST-B-001": ["a:1", "b:2"]},
        refused={"F-DEMO-Z-001": [str(problem) for problem in refused[0].problems]},
        never_full=(reduced, unrun, void),
        never_killed={reduced: [every[0], every[2]], void: every},
        orphaned={"F-GONE-A-001": 1, "F-GONE-B-001": 3},
    )
    for part in (found.unclaimed, found.refused, found.never_killed, found.orphaned):
        assert list(part) == sorted(part)


def test_a_refused_contract_has_no_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused contract has no status, also if its claim never ran."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    root = write_project(tmp_path / "project")
    write_contract(root, "{}", "F-DEMO-B-002")
    survey = Survey.of(Project.find(root))
    assert (len(survey.refused), [(claim.id, str(claim.status)) for claim in survey.claims]) == (
        1,
        [(IDENTIFIER, "UNRUN")],
    )


DAMAGES: list[Callable[[Path], object]] = [
    Path.unlink,
    lambda file: file.write_bytes(b""),
    lambda file: file.write_bytes(file.read_bytes()[:-20]),
    lambda file: file.write_bytes(file.read_bytes().replace(b"F-DEMO-SORT-001", b"F-DEMO-LOST-001")),
    lambda file: file.write_bytes(file.read_bytes().replace(b"UNRUN", b"STALE").replace(b"sorting", b"nothing")),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_cache_changes_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    """Each file of the cache is damaged by itself.

    A source that changes is noticed although its imports are remembered.
    """
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    project = Project.find(write_project(tmp_path / "project"))
    sealed(project.root)
    write_contract(project.root, document())

    def answer() -> object:
        survey = Survey.of(project)
        return survey.claims, len(survey.refused), survey.contents, mentions(project)

    expected = answer()
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.name.partition("-")[0] for path in files if path.suffix == ".json"} == {"imports", "index", "mentions"}
    for file in files:
        damage(file)
        assert answer() == expected
    (project.root / "falsifiers" / "demo" / "sorting.py").write_text("x = 1\n")
    assert answer() != expected
