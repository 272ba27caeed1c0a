"""Annotations say how a claim stands. They change no digest, so no evidence becomes stale by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.vocabulary import Verdict
from harness.contract import ContractError
from harness.contract.contract_annotations import (
    Refutation,
    Result,
    counted,
    judging_part,
    refutation_of,
)
from harness.contract.project import Project
from harness.evidence.staleness import ProjectState
from harness.tools.figures.places import FigureUse, uses_of
from harness.tools.laid_out import laid_out
from tests.contracts import document, write_project

KNOWN = {
    "since": "2026-11-23",
    "device": "CPU",
    "profile": "full",
    "clauses": ["nothing-lost"],
    "explanation": "The source is wrong.",
}
ANNOTATED = {
    "stands_in_for": 'a GB10, "quoted" {and [nested], x}',
    "refuted": [KNOWN],
    "figures": {"given.const": ["items", {"figure": "more-items", "unit": "items"}]},
}
ONE = Refutation("2026-11-23", "CPU", "full", ("a", "b"), "why")


@pytest.mark.parametrize("content", [document(), {"id": 1}, {"z": [1, {"refuted": 2}], "a": "refuted"}])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_judging_part_is_the_file_without_its_annotations(content: dict[str, Any], indent: int | None) -> None:
    """It is the same bytes, wherever the annotations stand, with the path to the schemas of the old layout."""
    plain = json.dumps(content, indent=indent).encode().replace(b"../../", b"../")
    assert judging_part(json.dumps(content, indent=indent).encode()) == judging_part(plain) == plain
    assert judging_part(json.dumps({**content, **ANNOTATED}, indent=indent).encode()) == plain
    before = json.dumps({"refuted": [KNOWN], **content, "stands_in_for": "x"}, indent=indent).encode()
    assert judging_part(before) == plain


def test_the_layout_keeps_the_judging_part() -> None:
    """`harness fmt` gives an annotated contract the bytes of the plain one, and the annotations."""
    plain = laid_out(document()).encode()
    assert judging_part(laid_out({**document(), **ANNOTATED}).encode()) == plain.replace(b"../../", b"../")


@given(st.binary() | st.text().map(str.encode))
def test_other_bytes_stay_as_they_are_or_shrink(content: bytes) -> None:
    assert len(judging_part(content)) <= len(content)


def test_only_annotations_leave_the_digest_as_it_is(tmp_path: Path) -> None:
    def digest_of(content: dict[str, Any]) -> str:
        write_project(tmp_path, content)
        project = Project.find(tmp_path)
        (loaded,), digest = project.load_all()[0], ProjectState(project).contract_digest(content["id"])
        assert loaded.digest == digest
        return loaded.digest

    plain = digest_of(document())
    assert digest_of({**document(), **ANNOTATED}) == plain
    assert digest_of({**document(), "title": "Another"}) != plain


@pytest.mark.parametrize(("key", "value"), [("clauses", ["no-such-clause"]), ("profile", "reduced")])
def test_a_refutation_of_what_the_contract_lacks_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    profiles = {"full": document()["profiles"]["full"]}
    write_project(tmp_path, document(profiles=profiles, refuted=[{**KNOWN, key: value}]))
    project = Project.find(tmp_path)
    with pytest.raises(ContractError) as refused:
        project.load(project.files()[0])
    assert refused.value.problems[0].pointer.startswith(f"/refuted/0/{key}")


def test_figures_are_named_by_a_text_or_an_object() -> None:
    """One figure, several, or the sum of some; a contract need not name any."""
    named = {"a": "one", "b": ["one", {"figure": "two", "as": "side", "unit": "s"}], "c": {"sum": ["one", "two"]}}
    assert uses_of({"figures": named}) == {
        "a": (FigureUse(("one",)),),
        "b": (FigureUse(("one",)), FigureUse(("two",), "side", "s")),
        "c": (FigureUse(("one", "two")),),
    }
    assert uses_of({}) == {}


@pytest.mark.parametrize("value", [{}, {"a": []}, {"a": 1}, {"a": ""}, {"a": {"as": "half"}}, {"a": [["x"]]}])
def test_other_forms_of_figures_are_refused(value: Any, tmp_path: Path) -> None:
    write_project(tmp_path, document(figures=value))
    project = Project.find(tmp_path)
    with pytest.raises(ContractError):
        project.load(project.files()[0])


@pytest.mark.parametrize(
    ("verdict", "failed", "lived", "counts"),
    [
        (Verdict.FAIL, ("b", "a"), False, Verdict.PASS),
        (Verdict.FAIL, ("a",), False, Verdict.FAIL),
        (Verdict.FAIL, ("a", "b", "c"), False, Verdict.FAIL),
        (Verdict.FAIL, ("a", "b"), True, Verdict.FAIL),
        (Verdict.PASS, (), False, Verdict.FAIL),
        (Verdict.VOID, (), True, Verdict.VOID),
        (Verdict.NOT_MEASURED, (), False, Verdict.NOT_MEASURED),
    ],
)
def test_only_the_stated_refutation_counts_as_expected(
    verdict: Verdict, failed: tuple[str, ...], lived: bool, counts: Verdict
) -> None:
    result = Result(verdict, failed, lived)
    assert counted(ONE, result) is counts
    assert counted(None, result) is verdict


def test_it_is_about_one_profile_on_one_class_of_device() -> None:
    assert refutation_of([ONE], "CPU x86_64", "full") is ONE
    assert refutation_of([ONE], "CPU x86_64", "reduced") is None
    assert refutation_of([ONE], "NVIDIA H200 (9.0)", "full") is None
