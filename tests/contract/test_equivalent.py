"""Planted defects that an author marks as equivalent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.contract import ContractError
from harness.contract.equivalent import Equivalent, equivalents
from tests.contracts import put

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
