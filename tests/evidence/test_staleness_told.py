"""What a bundle does not cover, to the letter: the remark's words, and its place in the record."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Verdict
from harness.contract.imports import imported_files
from harness.contract.project import Project
from harness.evidence.findings import Code, Finding
from harness.evidence.staleness import STALE, Origin, ProjectState, changes, coverage, staleness
from harness.judging.record import Record
from tests.contracts import IDENTIFIER, write_project
from tests.evidence.factory import claim_result

SUBJECT = "falsifiers.demo.sorting:Sorter"
SOURCE = "falsifiers/demo/sorting.py"


def told(found: tuple[Finding, ...]) -> list[tuple[Code, str, str]]:
    """Each remark, all of which are of record.json."""
    assert {one.file for one in found} <= {"record.json"}
    return [(one.code, one.message, one.pointer) for one in found]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Of a full run on the target, from a clean checkout."""
    commit = {"revision": "c" * 40, "dirty": False, "reason": None}
    made = claim_result(tmp_path / "bundle").record
    return replace(made, profile="full", profile_reason="because", target={}, unjudged=(), commit=commit)


def test_what_covers_everything_has_nothing_to_tell(record: Record) -> None:
    """As the other tests have it before they change a field."""
    assert coverage(record, SUBJECT) == ()


_REDUCED = "the claim speaks of the full profile; this is the reduced one (because)"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"commit": {"revision": None, "dirty": True, "reason": None}},
            (Code.DIRTY_TREE, "the checkout had changes that are in no commit", "/commit/dirty"),
        ),
        (
            {"commit": {"revision": None, "dirty": None, "reason": "no git here"}},
            (Code.DIRTY_TREE, "it is not known whether the checkout had any: no git here", "/commit/dirty"),
        ),
        (
            {"commit": {"revision": None, "dirty": None, "reason": None}},
            (Code.DIRTY_TREE, "it is not known whether the checkout had any: git did not say", "/commit/dirty"),
        ),
        (
            {"target": {"device": "NVIDIA GB10"}},
            (Code.WRONG_TARGET, "the claim speaks of NVIDIA GB10; this is CPU x86_64", "/device"),
        ),
        ({"profile": "reduced"}, (Code.REDUCED_PROFILE, _REDUCED, "/profile")),
        (
            {"mutants_skipped": True},
            (
                Code.MUTANTS_SKIPPED,
                "the mutants were skipped: nothing shows that this falsifier could have failed",
                "/mutants_skipped",
            ),
        ),
        (
            {"overrides": {"steps": 5, "size": "small"}},
            (
                Code.OVERRIDDEN,
                "this run has other parameters than the contract's: steps=5, size=small",
                "/overrides",
            ),
        ),
        (
            {"overrides": dict.fromkeys("abcde", 1)},
            (
                Code.OVERRIDDEN,
                "this run has other parameters than the contract's: a=1, b=1, c=1 and 2 more",
                "/overrides",
            ),
        ),
        (
            {"overrides": dict.fromkeys("abc", 1)},
            (Code.OVERRIDDEN, "this run has other parameters than the contract's: a=1, b=1, c=1", "/overrides"),
        ),
        (
            {"overrides": {"a": "é" * 200}},
            (
                Code.OVERRIDDEN,
                f"this run has other parameters than the contract's: a={'é' * 118}",
                "/overrides",
            ),
        ),
        (
            {"subject": "mine:Other"},
            (Code.OTHER_SUBJECT, f"measured was mine:Other, not {SUBJECT}", "/subject"),
        ),
    ],
)
def test_what_a_record_says_of_itself(record: Record, fields: dict[str, Any], expected: tuple[Code, str, str]) -> None:
    """One remark for each way of covering less."""
    assert told(coverage(replace(record, **{"device": Device("cpu", "x86_64"), **fields}), SUBJECT)) == [expected]


def test_what_a_profile_left_unjudged_is_named(record: Record) -> None:
    """With the remark on the profile."""
    ((_, message, _),) = told(coverage(replace(record, profile="reduced", unjudged=("nothing-lost",)), SUBJECT))
    assert message.startswith(f"{_REDUCED}; not judged: ")
    assert "nothing-lost" in message


def test_a_remark_is_bounded(record: Record) -> None:
    """Whatever a stranger's record says."""
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
    """The record as a run of the project as it is would leave it, with these sources too."""
    (contract,) = root.glob("contracts/**/*.json")
    files = [path.relative_to(root).as_posix() for path in imported_files(SUBJECT, Project.find(root).search)]
    sources = {name: digest(root / name) for name in [*files, *more]}
    return replace(record, contract_digest=digest(contract), sources=sources)


def changed(root: Path, record: Record) -> list[tuple[Code, str, str]]:
    """What makes it stale."""
    return told(changes(record, ProjectState(Project.find(root))))


def test_the_codes_that_make_evidence_stale() -> None:
    """Contract, falsifier and subject, and nothing else."""
    assert {Code.STALE_CONTRACT, Code.STALE_FALSIFIER, Code.STALE_SUBJECT} == STALE


def test_a_contract_that_was_changed_is_told_from_one_that_is_gone(root: Path, record: Record) -> None:
    """Both by the record's digest."""
    one = fresh(root, record)
    assert changed(root, one) == []
    (contract,) = root.glob("contracts/**/*.json")
    contract.write_text("{}")
    said = "the claim's contract was changed since"
    assert changed(root, one) == [(Code.STALE_CONTRACT, said, "/contract_digest")]
    contract.unlink()
    said = "this project has no contract of this claim"
    assert changed(root, one) == [(Code.STALE_CONTRACT, said, "/contract_digest")]
    assert contract.stem == IDENTIFIER


def test_sources_that_differ_are_told_from_those_that_are_gone(root: Path, record: Record) -> None:
    """One or many; some of them gone are told as different."""
    for name in ("b.toml", "a.toml"):
        (root / name).write_text("")
    one = fresh(root, record, "b.toml", "a.toml")
    assert changed(root, one) == []

    def subject(words: str) -> list[tuple[Code, str, str]]:
        return [(Code.STALE_SUBJECT, words, "/sources")]

    (root / "b.toml").write_text("more")
    assert changed(root, one) == subject("b.toml differs from what was measured")
    (root / "b.toml").unlink()
    assert changed(root, one) == subject("b.toml is not there any more")
    (root / "a.toml").write_text("more")
    assert changed(root, one) == subject("a.toml, b.toml differ from what was measured")
    (root / "a.toml").unlink()
    assert changed(root, one) == subject("a.toml, b.toml are not there any more")


def test_of_many_sources_the_first_are_named(root: Path, record: Record) -> None:
    """In order, and how many more there are."""
    names = [f"{letter}.toml" for letter in "hgfedcba"]
    for name in names:
        (root / name).write_text("")
    one = fresh(root, record, *names)
    for name in names:
        (root / name).unlink()
    said = "a.toml, b.toml, c.toml and 5 more are not there any more"
    assert changed(root, one) == [(Code.STALE_SUBJECT, said, "/sources")]


def test_a_project_is_looked_at_once(root: Path) -> None:
    """What changes while a report is made splits it not in two; another state looks again."""

    def seen(state: ProjectState) -> tuple[Any, ...]:
        return state.contract_digest(IDENTIFIER), state.source_digest(SOURCE), state.uses(SUBJECT)

    state = ProjectState(Project.find(root))
    before = seen(state)
    for path in (root / SOURCE, *root.glob("contracts/**/*.json")):
        path.write_text("import json\n")
    (root / "falsifiers" / "__init__.py").write_text("")
    assert seen(state) == before
    assert not set(seen(ProjectState(Project.find(root)))) & set(before)


def test_a_file_that_cannot_be_read_is_none_and_is_closed(root: Path) -> None:
    """As where reading ends in an error of the machine."""
    (root / "unreadable").symlink_to("/proc/self/mem")  # a regular file, the first byte of which is nobody's
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
def test_a_file_of_nobody(root: Path, record: Record, name: str, code: Code) -> None:
    """One that Python could import is the falsifier's; any other describes somebody else's trainer."""
    (root / name).write_text("")
    one = fresh(root, record, name)
    (root / name).write_text("more")
    assert changed(root, one) == [(code, f"{name} differs from what was measured", "/sources")]


def test_a_record_that_lists_no_sources_is_told(root: Path, record: Record) -> None:
    """For falsifier and subject alike, but where nothing was measured."""
    one = replace(fresh(root, record), sources={})
    said = "the record lists none of the files that it uses"
    assert changed(root, one) == [(Code.STALE_FALSIFIER, said, "/sources"), (Code.STALE_SUBJECT, said, "/sources")]
    assert changed(root, replace(one, verdict=Verdict.NOT_MEASURED)) == []


def test_history_is_told_with_its_place(root: Path, record: Record) -> None:
    """Why there is no revision, where there is none; and that another harness measured it."""
    one = fresh(root, record)
    for commit, ending in (
        ({"revision": None, "dirty": None, "reason": "no git there"}, ": no git there"),
        ({"revision": "c" * 40, "dirty": None, "reason": "no git there"}, ""),
        ({"revision": None, "dirty": None, "reason": None}, ""),
    ):
        state = ProjectState(Project.find(root))
        lacks = state.ancestry.lacks(commit["revision"])
        harness = {"version": "9.9", "sha256": "b" * 64}
        assert told(staleness(replace(one, commit=commit, harness=harness), state)) == [
            (Code.COMMIT_NOT_IN_HISTORY, f"{lacks}{ending}", "/commit/revision"),
            (Code.OTHER_HARNESS, "another state of the harness measured it: version 9.9", "/harness"),
        ]


def test_of_a_record_its_origin_is_enough(root: Path, record: Record) -> None:
    """For all that staleness tells."""
    state = ProjectState(Project.find(root))
    for one in (record, fresh(root, record)):
        assert staleness(Origin.of(one), state) == staleness(one, state)


def test_a_file_too_large_for_a_source_is_none(root: Path) -> None:
    """Nor is a folder; one of just the largest size is read."""
    from harness.evidence.bundle_layout import LARGEST_DOCUMENT

    for name, size in (("largest", LARGEST_DOCUMENT), ("larger", LARGEST_DOCUMENT + 1)):
        with (root / name).open("wb") as file:
            file.truncate(size)
    state = ProjectState(Project.find(root))
    assert state.source_digest("largest") == digest(root / "largest")
    assert state.source_digest("larger") is None
    assert state.source_digest("falsifiers") is None
    assert state.source_digest("no-such") is None
