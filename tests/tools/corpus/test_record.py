"""The records of the corpus, and the form that they must have."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.contract import Contract
from harness.contract.entry_point import locate, resolve
from harness.contract.project import Project
from harness.tools.corpus.record import CASES, KINDS, Case, RecordError, cases_of, read_case, sample

ROOT = Path(__file__).parents[3]
PROJECT = Project.find(ROOT)
KNOWN = cases_of(ROOT)


@cache
def claims() -> dict[str, Contract]:
    """Those of this repository, by id."""
    return {one.id: one for one in PROJECT.load_all()[0]}


def test_there_are_ten_of_each_kind() -> None:
    """At least, and eighty in all."""
    counts = Counter(one.kind for one in KNOWN)
    assert counts.keys() == KINDS.keys()
    assert min(counts.values()) >= 10
    assert counts.total() >= 80


def test_the_sample_has_every_kind_and_every_claim() -> None:
    """It is a fifth of the cases at most, and expects no miss."""
    chosen = sample(KNOWN)
    assert {one.kind for one in chosen} == KINDS.keys()
    assert {claim for one in chosen for claim in one.claims} == {claim for one in KNOWN for claim in one.claims}
    assert len(chosen) <= len(KNOWN) / 5
    assert not any(one.missed for one in chosen)


@pytest.mark.parametrize("case", KNOWN, ids=lambda one: one.id)
def test_a_case_names_what_there_is(case: Case) -> None:
    """Its subject is defined, and its claims are claims of this project; a function has a reference and an example."""
    named = [one for one in (case.subject, case.mended) if one]
    for claim, values in case.claims.items():
        assert claim in claims()
        named += [values[name] for name in ("against", "example") if name in values]
        assert case.surface != "function" or {"against", "example"} <= values.keys()
    for entry_point in named:
        locate(entry_point, PROJECT.search)


def test_no_subject_is_a_mutant() -> None:
    """Nothing is trained on the corpus: its subjects are no mutants, and no two cases share one."""
    mutants = [mutant.subject for one in claims().values() for mutant in one.mutants]
    subjects = [one.subject for one in KNOWN if one.subject]
    assert not {*subjects} & {*mutants}
    assert not [one for one, count in Counter(subjects).items() if count > 1]


WHOLE = {
    "id": "one-case", "kind": "data", "title": "A title", "source": "https://example.org/issues/1", "year": 2020,
    "believed": "this", "truth": "that", "noticed": "a user", "late": "unknown", "cost": "wasted time",
    "surface": "trainer", "subject": "falsifiers.corpus.data:OneCase", "claims": {"F-MINE-FIRST-001": {}},
}  # fmt: skip


def written(root: Path, place: str = "data/one-case.json", **changed: Any) -> Path:
    """A record with some values changed; None leaves one out."""
    file = root / CASES / place
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {name: value for name, value in {**WHOLE, **changed}.items() if value is not None}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_a_whole_record(tmp_path: Path) -> None:
    """Every value is kept."""
    assert read_case(written(tmp_path)) == Case(**WHOLE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"source": "http://example.org/1"}, "source is no https address"),
        ({"source": "https://localhost/1"}, "source is no https address"),
        ({"source": None}, "it lacks source"),
        ({"colour": "red"}, "unknown: colour"),
        ({"kind": "weather"}, "kind is none of"),
        ({"cost": "a lot"}, "cost is none of"),
        ({"surface": "file"}, "surface is none of"),
        ({"year": 1970}, "year is no year since 1990"),
        ({"year": "2020"}, "year is no year since 1990"),
        ({"title": ""}, "title is empty"),
        ({"truth": "two\nlines"}, "truth is empty or not one line"),
        ({"id": "One_Case"}, "the id has other characters"),
        ({"id": "another"}, "the file belongs at data/another.json"),
        ({"claims": {}}, "name the subject, and the claims"),
        ({"subject": ""}, "name the subject, and the claims"),
        ({"mended": "no entry point"}, "mended is no entry point"),
        ({"mended": "m:n", "surface": "function"}, "mended is no entry point"),
        ({"out_of_scope": "no GPU"}, "a case out of scope has no claims"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    """Each with the file and what is wrong."""
    file = written(tmp_path, **changed)
    with pytest.raises(RecordError, match=problem) as caught:
        read_case(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"year": NaN}'])
def test_what_is_no_record(tmp_path: Path, text: str) -> None:
    """No JSON, or no object."""
    file = written(tmp_path)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError):
        read_case(file)


def test_two_records_of_one_id(tmp_path: Path) -> None:
    """An id names one case, whatever its kind."""
    written(tmp_path)
    written(tmp_path, "losses/one-case.json", kind="losses")
    with pytest.raises(RecordError, match="one-case is the id of two records"):
        cases_of(tmp_path)


@pytest.mark.parametrize("case", [one for one in KNOWN if one.mended], ids=lambda one: one.id)
def test_a_subject_changes_what_its_mended_form_does(case: Case) -> None:
    """A method or an attribute that the mended form does not have, and that the subject does not use, does nothing."""
    subject, mended = resolve(case.subject), resolve(case.mended)
    assert issubclass(subject, mended)
    own = subject.__mro__[: subject.__mro__.index(mended)]
    source = inspect.getsource(inspect.getmodule(subject))
    names = [name for one in own for name in vars(one) if not name.startswith("__")]
    names += re.findall(r"self\.(\w+) = ", "".join(map(inspect.getsource, own)))
    assert names
    for name in names:
        is_used = re.search(rf"self\.{name}\b(?! = )", source)
        assert hasattr(mended, name) or is_used, f"{subject.__name__}.{name}"
