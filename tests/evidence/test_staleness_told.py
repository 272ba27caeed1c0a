"""Remarks on what a bundle does not cover: the code, the place in the record, and the text (in the snapshot)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.base.vocabulary import Verdict
from harness.contract.imports import imported_files
from harness.contract.project import Project
from harness.evidence.findings import STALE, Code, Finding
from harness.evidence.staleness import Origin, ProjectState, changes, coverage, staleness
from harness.judging.record import Record
from harness.report.messages import finding_text
from tests.contracts import IDENTIFIER, write_project
from tests.evidence.factory import claim_result

SUBJECT = "falsifiers.demo.sorting:Sorter"
SOURCE = "falsifiers/demo/sorting.py"


def told(found: Iterable[Finding]) -> list[tuple[Code, str, str]]:
    """The code, the text and the pointer of each remark. Every remark is on record.json."""
    found = [*found]
    assert {one.file for one in found} <= {"record.json"}
    return [(one.code, finding_text.message(one), one.pointer) for one in found]


def places(found: list[tuple[Code, str, str]]) -> list[tuple[Code, str]]:
    """The code and the pointer of each remark."""
    return [(code, where) for code, _, where in found]


def texts(found: list[tuple[Code, str, str]]) -> list[str]:
    """The text of each remark."""
    return [message for _, message, _ in found]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A record of a full run on the target, from a clean checkout."""
    commit = {"revision": "c" * 40, "dirty": False, "reason": None}
    made = claim_result(tmp_path / "bundle").record
    return replace(made, profile="full", profile_reason="because", target={}, unjudged=(), commit=commit)


def test_what_covers_everything_has_nothing_to_tell(record: Record) -> None:
    """The record of the other tests, without their changes, has no remark."""
    assert not [*coverage(record, SUBJECT)]


def commit(dirty: bool | None, reason: str | None = None) -> dict[str, Any]:
    """A commit that a record may name."""
    return {"commit": {"revision": None, "dirty": dirty, "reason": reason}}


@pytest.mark.parametrize(
    ("fields", "code", "where"),
    [
        pytest.param(commit(True), Code.DIRTY_TREE, "/commit/dirty", id="dirty"),
        pytest.param(commit(None, "no git here"), Code.DIRTY_TREE, "/commit/dirty", id="unknown for a reason"),
        pytest.param(commit(None), Code.DIRTY_TREE, "/commit/dirty", id="unknown"),
        pytest.param({"target": {"device": "NVIDIA GB10"}}, Code.WRONG_TARGET, "/device", id="target"),
        pytest.param({"profile": "reduced"}, Code.REDUCED_PROFILE, "/profile", id="profile"),
        pytest.param({"mutants_skipped": True}, Code.MUTANTS_SKIPPED, "/mutants_skipped", id="mutants"),
        pytest.param({"overrides": {"steps": 5, "size": "small"}}, Code.OVERRIDDEN, "/overrides", id="two overrides"),
        pytest.param({"overrides": dict.fromkeys("abcde", 1)}, Code.OVERRIDDEN, "/overrides", id="five overrides"),
        pytest.param({"overrides": dict.fromkeys("abc", 1)}, Code.OVERRIDDEN, "/overrides", id="three overrides"),
        pytest.param({"overrides": {"a": "é" * 200}}, Code.OVERRIDDEN, "/overrides", id="long override"),
        pytest.param({"subject": "mine:Other"}, Code.OTHER_SUBJECT, "/subject", id="subject"),
    ],
)
def test_what_a_record_says_of_itself(
    record: Record, fields: dict[str, Any], code: Code, where: str, snapshot: SnapshotAssertion
) -> None:
    """Each way of covering less has one remark."""
    found = told(coverage(replace(record, **{"device": Device("cpu", "x86_64"), **fields}), SUBJECT))
    assert places(found) == [(code, where)]
    assert texts(found) == snapshot


def test_what_a_profile_left_unjudged_is_named(record: Record) -> None:
    """The remark on the profile names the clauses that were not judged."""
    reduced = replace(record, profile="reduced")
    ((_, short, _),) = told(coverage(reduced, SUBJECT))
    ((_, message, _),) = told(coverage(replace(reduced, unjudged=("nothing-lost",)), SUBJECT))
    assert message.startswith(short)
    assert "nothing-lost" in message.removeprefix(short)


def test_a_remark_is_bounded(record: Record) -> None:
    """The remark has a limited length, because a record is not trusted."""
    ((_, message, _),) = told(coverage(replace(record, subject="m:" + "x" * 1000), SUBJECT))
    assert len(message) == 600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tiny project, not under git."""
    return write_project(tmp_path / "project")


def digest(path: Path) -> str:
    """sha256, lower-case hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fresh(root: Path, record: Record, *more: str) -> Record:
    """The record of a run of the present project, with these additional sources."""
    (contract,) = root.glob("contracts/**/*.json")
    files = [path.relative_to(root).as_posix() for path in imported_files(SUBJECT, Project.find(root).search)]
    sources = {name: digest(root / name) for name in [*files, *more]}
    return replace(record, contract_digest=digest(contract), sources=sources)


def changed(root: Path, record: Record) -> list[tuple[Code, str, str]]:
    """The findings that make the record stale."""
    return told(changes(record, ProjectState(Project.find(root))))


def test_the_codes_that_make_evidence_stale() -> None:
    """The codes are those of contract, falsifier and subject."""
    assert {Code.STALE_CONTRACT, Code.STALE_FALSIFIER, Code.STALE_SUBJECT} == STALE


def test_a_contract_that_was_changed_is_told_from_one_that_is_gone(
    root: Path, record: Record, snapshot: SnapshotAssertion
) -> None:
    """The record's digest shows which of the two happened."""
    one = fresh(root, record)
    assert changed(root, one) == []
    (contract,) = root.glob("contracts/**/*.json")
    contract.write_text("{}")
    found = {"changed": changed(root, one)}
    contract.unlink()
    found["gone"] = changed(root, one)
    assert [places(each) for each in found.values()] == 2 * [[(Code.STALE_CONTRACT, "/contract_digest")]]
    assert {name: texts(each) for name, each in found.items()} == snapshot
    assert contract.stem == IDENTIFIER


def test_sources_that_differ_are_told_from_those_that_are_gone(
    root: Path, record: Record, snapshot: SnapshotAssertion
) -> None:
    """One file or several. If only some of them are gone, the text says that they differ."""
    for name in ("b.toml", "a.toml"):
        (root / name).write_text("")
    one = fresh(root, record, "b.toml", "a.toml")
    assert changed(root, one) == []
    found = {}
    (root / "b.toml").write_text("more")
    found["b differs"] = changed(root, one)
    (root / "b.toml").unlink()
    found["b is gone"] = changed(root, one)
    (root / "a.toml").write_text("more")
    found["a differs, b is gone"] = changed(root, one)
    (root / "a.toml").unlink()
    found["both are gone"] = changed(root, one)
    assert [places(each) for each in found.values()] == 4 * [[(Code.STALE_SUBJECT, "/sources")]]
    assert {name: texts(each) for name, each in found.items()} == snapshot


def test_of_many_sources_the_first_are_named(root: Path, record: Record, snapshot: SnapshotAssertion) -> None:
    """The text names the first sources in order, and the number of further ones."""
    names = [f"{letter}.toml" for letter in "hgfedcba"]
    for name in names:
        (root / name).write_text("")
    one = fresh(root, record, *names)
    for name in names:
        (root / name).unlink()
    found = changed(root, one)
    assert places(found) == [(Code.STALE_SUBJECT, "/sources")]
    assert texts(found) == snapshot


def test_a_project_is_looked_at_once(root: Path) -> None:
    """A report reads the project once, and sees one state of it. A new report reads it again."""

    def seen(state: ProjectState) -> tuple[Any, ...]:
        return state.contract_digest(IDENTIFIER), state.source_digest(SOURCE), state.uses(SUBJECT, IDENTIFIER)

    state = ProjectState(Project.find(root))
    before = seen(state)
    for path in (root / SOURCE, *root.glob("contracts/**/*.json")):
        path.write_text("import json\n")
    (root / "falsifiers" / "__init__.py").write_text("")
    assert seen(state) == before
    assert not set(seen(ProjectState(Project.find(root)))) & set(before)


def test_a_file_that_cannot_be_read_is_none_and_is_closed(root: Path) -> None:
    """If the operating system cannot read the file, it counts as missing."""
    (root / "unreadable").symlink_to("/proc/self/mem")  # a regular file whose first byte cannot be read
    opened = len(os.listdir("/proc/self/fd"))
    for name in ("unreadable", SOURCE, "falsifiers"):
        assert (ProjectState(Project.find(root)).source_digest(name) is None) is (name != SOURCE)
    assert len(os.listdir("/proc/self/fd")) == opened


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("kernel.so", Code.STALE_FALSIFIER),
        ("types.pyi", Code.STALE_FALSIFIER),
        ("by_name.py", Code.STALE_FALSIFIER),
        ("trainer.toml", Code.STALE_SUBJECT),
        ("train.sh", Code.STALE_SUBJECT),
    ],
)
def test_a_file_that_no_entry_point_uses(root: Path, record: Record, name: str, code: Code) -> None:
    """If Python can import the file, it belongs to the falsifier. Any other file describes an external trainer."""
    (root / name).write_text("")
    one = fresh(root, record, name)
    (root / name).write_text("more")
    found = changed(root, one)
    assert places(found) == [(code, "/sources")]
    assert name in texts(found)[0]


def test_a_record_that_lists_no_sources_is_told(root: Path, record: Record, snapshot: SnapshotAssertion) -> None:
    """Falsifier and subject each get a remark, unless nothing was measured."""
    one = replace(fresh(root, record), sources={})
    found = changed(root, one)
    assert places(found) == [(Code.STALE_FALSIFIER, "/sources"), (Code.STALE_SUBJECT, "/sources")]
    assert texts(found) == snapshot
    assert changed(root, replace(one, verdict=Verdict.NOT_MEASURED)) == []


def test_history_is_told_with_its_place(root: Path, record: Record, snapshot: SnapshotAssertion) -> None:
    """One remark says why there is no revision, another one that another harness measured the run."""
    one = fresh(root, record)
    for recorded, ending in (
        ({"revision": None, "dirty": None, "reason": "no git there"}, ": no git there"),
        ({"revision": "c" * 40, "dirty": None, "reason": "no git there"}, ""),
        ({"revision": None, "dirty": None, "reason": None}, ""),
    ):
        state = ProjectState(Project.find(root))
        lacks = state.ancestry.lacks(recorded["revision"])
        harness = {"version": "9.9", "sha256": "b" * 64}
        found = told(staleness(replace(one, commit=recorded, harness=harness), state))
        assert places(found) == [(Code.COMMIT_NOT_IN_HISTORY, "/commit/revision"), (Code.OTHER_HARNESS, "/harness")]
        assert texts(found)[0] == f"{lacks}{ending}"
        assert texts(found)[1] == snapshot(name="harness")


def test_of_a_record_its_origin_is_enough(root: Path, record: Record) -> None:
    """Staleness needs only the origin of a record."""
    state = ProjectState(Project.find(root))
    for one in (record, fresh(root, record)):
        assert [*staleness(Origin.of(one), state)] == [*staleness(one, state)]


def test_a_file_too_large_for_a_source_is_none(root: Path) -> None:
    """A file of exactly the largest size is read. A folder has no digest."""
    from harness.evidence.bundle_layout import LARGEST_DOCUMENT

    for name, size in (("largest", LARGEST_DOCUMENT), ("larger", LARGEST_DOCUMENT + 1)):
        with (root / name).open("wb") as file:
            file.truncate(size)
    state = ProjectState(Project.find(root))
    assert state.source_digest("largest") == digest(root / "largest")
    assert state.source_digest("larger") is None
    assert state.source_digest("falsifiers") is None
    assert state.source_digest("no-such") is None
