"""The line at which a contract's file states a clause or a mutant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contract.project import Project
from harness.report.contract_file import ContractFile
from harness.tools.laid_out import laid_out

ROOT = Path(__file__).parents[2]
TEXT = """{
  "id": "F-X-001",
  "subject": "a:B",
  "observation": {"properties": {
    "loss": {"type": "number",
      "maximum": 2},
    "rows": {"type": "array", "items": {
      "type": "object", "properties": {"b": {
        "minimum": 1}}}},
    "again": {"$ref": "#/$defs/x"}}},
  "rules": [
    {"id": "falls", "rule": "true"}],
  "mutants": [{"id": "one"},
    {"id": "two"}]
}
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("loss.type", 5),
        ("loss.maximum", 6),
        ("loss.minimum", 5),  # the contract has changed since then
        ("rows[].type", 8),
        ("rows[].b.minimum", 9),
        ("again.maximum", 10),
        ("falls", 12),
        ("resolved.device", 3),
        ("gone", 3),
        ("", 3),
    ],
)
def test_a_clause(name: str, line: int) -> None:
    """A keyword has its own line.

    A keyword in a definition has the line of its measurement, and a built-in clause that of the subject.
    """
    assert ContractFile("", TEXT).clause(name) == line


def test_the_claim_and_its_mutants() -> None:
    lines = ContractFile("", TEXT)
    assert (lines.claim(), lines.mutant("one"), lines.mutant("two"), lines.mutant("three")) == (2, 13, 14, 13)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rules": 3, "mutants": [1]}', "no JSON"])
def test_what_is_no_contract_has_one_line(text: str) -> None:
    lines = ContractFile("", text)
    assert {lines.claim(), lines.clause("a.b"), lines.clause("c")} == {1}


_KEYS = st.sampled_from(["id", "rules", "a", "b,", 'c"\\', "properties"])
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["", ",", "[{", 'x"\\', "]\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4))
def test_each_member_is_on_the_line_that_begins_with_it(document: dict[str, Any]) -> None:
    """Indented JSON has one member or item on each line, in the order of the document."""
    lines = ContractFile("", json.dumps(document, indent=1))
    expected = [line.strip() for line in json.dumps(document, indent=1).splitlines()]
    for place, line in lines._places.items():
        if isinstance(place[-1], str):
            assert expected[line - 1].startswith(json.dumps(place[-1]))
    assert sorted(lines._places.values()) == list(lines._places.values())
    assert ContractFile("", laid_out(document))._places.keys() == lines._places.keys()


def test_every_clause_of_our_contracts_has_a_line_that_names_it() -> None:
    """The line has the keyword, or the measurement if its schema is a reference."""
    contracts, _ = Project.find(ROOT).load_all()
    for contract in contracts[::4]:
        text = contract.content.decode()
        lines, rows = ContractFile("", text), text.splitlines()
        for clause in contract.clauses:
            row = rows[lines.clause(clause.id) - 1]
            assert any(f'"{word}"' in row for word in (clause.keyword, *clause.path)), clause.id
        for rule in contract.rules:
            assert f'"{rule.id}"' in rows[lines.clause(rule.id) - 1]


def test_the_line_of_each_member_and_item() -> None:
    """Each member and item has its line, also in lists of lists and beside empty lists."""
    text = '{"a": [1,\n {"b": []},\n [2,\n 3]],\n "c": {}, "d": "[,"\n}'
    assert ContractFile("", text)._places == {
        ("a",): 1, ("a", 0): 1, ("a", 1): 2, ("a", 1, "b"): 2, ("a", 2): 3, ("a", 2, 0): 3, ("a", 2, 1): 4,
        ("c",): 5, ("d",): 5,
    }  # fmt: skip
    assert ContractFile("", "[1,\n[2]]")._places == {(0,): 1, (1,): 2, (1, 0): 2}
