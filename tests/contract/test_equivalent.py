"""Planted defects that an author marks as equivalent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.contract import ContractError
from harness.contract.consistency import unwritten_code, unwritten_texts
from harness.contract.project import Project
from harness.tools.planting.equivalent import Equivalent, equivalents
from harness.tools.planting.scores import planted_sources, results_of
from tests.contracts import contract_of, document, put

ONE = {"file": "a.py", "before": "x = 1", "after": "x = 2", "reason": "It is never read."}


def read(folder: Path, document: Any) -> tuple[Equivalent, ...]:
    """The entries next to a contract."""
    text = document if isinstance(document, str) else json.dumps(document)
    put(folder / "F-A-001" / "equivalent.json", text)
    return equivalents(folder / "F-A-001" / "contract.json")


def test_entries_in_the_order_of_the_file(tmp_path: Path) -> None:
    """The equivalent entries come first, then the missed ones, each in the order of the file."""
    assert equivalents(tmp_path / "F-A-001" / "contract.json") == ()
    document = {"id": "F-A-001", "equivalent": [ONE, {**ONE, "within": "f"}], "missed": [{**ONE, "after": "x = 3"}]}
    assert read(tmp_path, document) == (
        Equivalent("a.py", None, "x = 1", "x = 2", "It is never read.", True),
        Equivalent("a.py", "f", "x = 1", "x = 2", "It is never read.", True),
        Equivalent("a.py", None, "x = 1", "x = 3", "It is never read.", False),
    )


def test_an_entry_names_a_defect() -> None:
    """An entry names a defect only if all of its fields agree."""
    anywhere, inside = (Equivalent("a.py", within, "x", "y", "") for within in (None, "f"))
    assert (anywhere.names("a.py", "f", "x", "y"), anywhere.names("a.py", "g", "x", "y")) == (True, True)
    assert (inside.names("a.py", "f", "x", "y"), inside.names("a.py", "g", "x", "y")) == (True, False)
    for other in (("b.py", "f", "x", "y"), ("a.py", "f", "z", "y"), ("a.py", "f", "x", "z")):
        assert not anywhere.names(*other)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ("{", ""),
        ('{"id": "a", "id": "b"}', "/id"),
        ({"id": "F-B-001", "equivalent": [ONE]}, "/id"),
        ({"id": "F-A-001", "equivalent": [{**ONE, "line": 1}]}, "/equivalent/0"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, document: Any, pointer: str) -> None:
    with pytest.raises(ContractError) as refused:
        read(tmp_path, document)
    (problem,) = refused.value.problems
    assert problem.pointer.startswith(pointer)
    assert refused.value.path == tmp_path / "F-A-001" / "equivalent.json"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "F-A-001" / "equivalent.json").mkdir(parents=True)
    with pytest.raises(ContractError) as refused:
        equivalents(tmp_path / "F-A-001" / "contract.json")
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.remedy) == ("", "make it readable")


ROOT = Path(__file__).parents[2]


def scores() -> Any:
    """One of this project's own files of scores, as data."""
    path = next(results_of(Project.find(ROOT).evidence, "apr"))
    return json.loads(path.read_text())


def test_the_digests_of_every_campaign(tmp_path: Path) -> None:
    """Each campaign of this claim has its digests. A broken file, and a claim with an obstacle, count as none."""
    document = scores()
    (undisturbed, *_) = (claim for claim in document["claims"] if claim["obstacle"] is None)
    claim = undisturbed["id"]
    assert planted_sources(tmp_path, "demo", claim) == {}
    first = {**document, "claims": [undisturbed], "sources": {"a.py": "a" * 64, "b.py": "b" * 64}}
    files = {
        "demo-1.json": first,
        "demo-more-1.json": {**first, "sources": {"a.py": "c" * 64, "d.py": "d" * 64}},
        "demo-obstacle-1.json": {**first, "claims": [{**undisturbed, "obstacle": "x"}], "sources": {"e.py": "e" * 64}},
        "demo-other-1.json": {
            **first,
            "claims": [{**undisturbed, "id": "F-OTHER-ONE-001"}],
            "sources": {"f.py": "f" * 64},
        },
        "demo-wrong-1.json": {**first, "sources": {"g.py": 1}},
        "demo-1.txt": {**first, "sources": {"h.py": "0" * 64}},
        "family-1.json": {**first, "sources": {"i.py": "0" * 64}},
    }
    for name, content in files.items():
        put(tmp_path / "planting" / name, json.dumps(content))
    put(tmp_path / "planting" / "demo-a-1.json", "{")
    (tmp_path / "planting" / "demo-b-1.json").mkdir()
    assert planted_sources(tmp_path, "demo", claim) == {
        "a.py": frozenset({"a" * 64, "c" * 64}),
        "b.py": frozenset({"b" * 64}),
        "d.py": frozenset({"d" * 64}),
    }
    assert planted_sources(tmp_path, "demo", "F-OTHER-ONE-001") == {"f.py": frozenset({"f" * 64})}


def test_texts_that_begin_with_todo_have_their_place() -> None:
    """Texts at any depth that begin with TODO after spaces are found. TODO within a text or in a key is not."""
    value = {"a": "TODO: say", "b": [1, " \nTODO", {"TODO": "a TODO", "c/d": "TODO"}], "e": None}
    assert list(unwritten_texts(value)) == [("/a", "TODO: say"), ("/b/1", " \nTODO"), ("/b/2/c~1d", "TODO")]
    assert list(unwritten_texts("TODO", "x", 1)) == [("/x/1", "TODO")]


def test_the_first_docstring_of_each_module_has_its_line(tmp_path: Path) -> None:
    """A module that several entry points name is listed once. A module that cannot be found is left out."""
    modules = {
        "one": '"""Done."""\n\n\ndef falsify():\n    """TODO."""\n    """TODO"""\nMutant = 1\n',
        "two": '"""TODO\n"""\nSubject = Mutant = 1\n',
        "three": "Mutant = 1",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    changed = document(falsifier="one:falsify", subject="two:Subject")
    mutant = changed["mutants"][0]
    changed["mutants"] = [
        {**mutant, "id": f"m-{number}", "subject": subject}
        for number, subject in enumerate(("gone:Mutant", "one:Mutant", "three:Mutant", "two:Mutant"))
    ]
    found = list(unwritten_code(contract_of(changed), [tmp_path]))
    assert found == [("one:falsify", tmp_path / "one.py", 5), ("two:Subject", tmp_path / "two.py", 1)]
