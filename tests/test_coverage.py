"""docs/statements/ agrees with the contracts and, where these are at hand, with the documents."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import write_coverage

from harness.contract import Contract, load

ROOT = Path(__file__).parents[1]
SOURCES = Path(os.environ.get("HARNESS_SOURCES") or ROOT.parent / "shared" / "sources")
LONGEST = 8
"""Words of an anchor. As many words in a row of a statement that a document has, too, are copied."""

Contracts = Mapping[str, Contract]
Check = Callable[[Sequence[Any], Contracts], set[Any]]
"""From documents and contracts to what is wrong."""


DOCUMENTS = write_coverage.documents()


@pytest.fixture(scope="module")
def contracts() -> Contracts:
    """All contracts of the repository, by id."""
    paths = [*(ROOT / "contracts").glob("*/*/contract.json")]
    return {path.parent.name: load(path, (ROOT,)) for path in paths}


def statements(documents: Sequence[Any]) -> list[Any]:
    return [row for document in documents for row in document.statements]


def incomplete(documents: Sequence[Any], contracts: Contracts) -> set[Any]:
    """Statements with a key too few or too many, or with an id that another one has."""
    ids = [row.id for row in statements(documents)]
    return {row.id for row in statements(documents) if not row.is_whole or ids.count(row.id) > 1}


def unknown(documents: Sequence[Any], contracts: Contracts) -> set[Any]:
    """Claims and clauses that there are not."""
    clauses = {
        name: {"subject.completes", "resolved.device", "resolved.backend", "resolved.dtype", "resolved.steps"}
        | {clause.id for clause in contract.clauses}
        | {rule.id for rule in contract.rules}
        for name, contract in contracts.items()
    }
    tests = [(row.id, name, clause) for row in statements(documents) for name, of in row.tests.items() for clause in of]
    return {test for test in tests if test[2] not in clauses.get(test[1], ())}


def unaccounted(documents: Sequence[Any], contracts: Contracts) -> set[Any]:
    """Claims that no statement names and no document has beyond itself, and those that are both.

    The corpus's claims come from no document: each of its cases has a source of its own.
    """
    named = {name for row in statements(documents) for name in row.tests}
    beyond = {name for document in documents for name in document.beyond}
    claims = {name for name in contracts if not name.startswith("F-CORPUS-")}
    return (claims ^ (named | beyond)) | (named & beyond)


def overrated(documents: Sequence[Any], contracts: Contracts) -> set[Any]:
    """Statements that only stand-ins test and that are not called so, and claims the other way round."""
    marked = {name for name, contract in contracts.items() if contract.stands_in_for}
    tested = [row for row in statements(documents) if row.tests]
    by_marked = {row.id for row in tested if row.tests.keys() <= marked and row.work != "stand-in"}
    otherwise = {name for row in tested if row.work != "stand-in" for name in row.tests}
    return by_marked | {name for row in tested for name in row.tests} - otherwise - marked


def missized(documents: Sequence[Any], contracts: Contracts) -> set[Any]:
    """Statements with a size that no claim has, that no claim of real work reaches, or that a smaller one does."""
    found = set()
    for row in statements(documents):
        full = [contracts[name].profiles["full"].parameters for name in row.tests if not contracts[name].stands_in_for]
        known = {parameter for name in row.tests for parameter in contracts[name].profiles["full"].parameters}
        reached = any(all(_reaches(given.get(name), least) for name, least in row.size.items()) for given in full)
        if not row.size.keys() <= known or (row.size and row.work == ("smaller" if reached else "real")):
            found.add(row.id)
    return found


def _reaches(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(given, list) and set(wanted) <= set(given)
    if isinstance(wanted, int | float):
        largest = max(given) if isinstance(given, list) else given
        return isinstance(largest, int | float) and largest >= wanted
    return bool(given == wanted)


CHECKS: Mapping[str, Check] = {
    check.__name__: check for check in (incomplete, unknown, unaccounted, overrated, missized)
}


@pytest.mark.parametrize("check", CHECKS)
def test_statements_agree_with_the_contracts(contracts: Contracts, check: str) -> None:
    assert CHECKS[check](DOCUMENTS, contracts) == set()


def changed(where: str, **to: Any) -> list[Any]:
    """The documents with another value in the statement of an id."""
    return [
        replace(document, statements=[replace(row, **to) if row.id == where else row for row in document.statements])
        for document in DOCUMENTS
    ]


@pytest.mark.parametrize(
    ("check", "documents", "found"),
    [
        ("incomplete", changed("BLACKWELL-01", note=""), "BLACKWELL-01"),
        ("incomplete", changed("BLACKWELL-09", untested="too hard"), "BLACKWELL-09"),
        ("incomplete", changed("BLACKWELL-09", tests={"F-BLACKWELL-ARCHIVE-001": ["cells.minimum"]}), "BLACKWELL-09"),
        ("incomplete", changed("BLACKWELL-02", id="BLACKWELL-01"), "BLACKWELL-01"),
        (
            "unknown",
            changed("BLACKWELL-05", tests={"F-BLACKWELL-ARCHIVE-001": ["cells.maximum"]}),
            ("BLACKWELL-05", "F-BLACKWELL-ARCHIVE-001", "cells.maximum"),
        ),
        (
            "unknown",
            changed("BLACKWELL-05", tests={"F-BLACKWELL-PTX-002": ["cells.minimum"]}),
            ("BLACKWELL-05", "F-BLACKWELL-PTX-002", "cells.minimum"),
        ),
        ("unaccounted", [replace(document, beyond={}) for document in DOCUMENTS], "F-ALLOC-UNIFIED-001"),
        ("unaccounted", changed("BLACKWELL-18", tests={}), "F-BLACKWELL-PREWARM-KEYS-001"),
        ("unaccounted", changed("BLACKWELL-18", tests={"F-ALLOC-UNIFIED-001": ["rows.const"]}), "F-ALLOC-UNIFIED-001"),
        ("overrated", changed("BLACKWELL-01", work="real"), "BLACKWELL-01"),
        ("overrated", changed("BLACKWELL-01", work="smaller"), "BLACKWELL-01"),
        ("overrated", changed("BLACKWELL-18", work="stand-in"), "F-BLACKWELL-PREWARM-KEYS-001"),
        ("missized", changed("BLACKWELL-22", size={"steps": 51}), "BLACKWELL-22"),
        ("missized", changed("BLACKWELL-22", size={"model": "qwen2-7b"}), "BLACKWELL-22"),
        ("missized", changed("BLACKWELL-05", size={"targets": [121, 130]}), "BLACKWELL-05"),
        ("missized", changed("BLACKWELL-22", size={"stepps": 50}), "BLACKWELL-22"),
        ("missized", changed("DISTILL-08", size={"steps": 11}), "DISTILL-08"),
    ],
)
def test_what_is_wrong_is_found(contracts: Contracts, check: str, documents: Sequence[Any], found: Any) -> None:
    assert found in CHECKS[check](documents, contracts)


def test_the_page_is_that_of_the_statements() -> None:
    """After a change, `python docs/write_coverage.py` writes it."""
    assert write_coverage.page(DOCUMENTS) == write_coverage.PAGE.read_text(encoding="utf-8")


def test_totals_count_every_statement_once() -> None:
    rows = re.findall(r"^\| (.+?) \|((?: \d+ \|){5})$", write_coverage.page(DOCUMENTS), re.MULTILINE)
    counts = {name: [int(number) for number in re.findall(r"\d+", numbers)] for name, numbers in rows}
    assert counts.keys() == {"all", *(document.title for document in DOCUMENTS)}
    assert all(sum(kinds) == whole for *kinds, whole in counts.values())
    assert counts["all"][-1] == len(statements(DOCUMENTS))


def test_anchors_are_short() -> None:
    assert [row.id for row in statements(DOCUMENTS) if len(row.anchor.split()) > LONGEST] == []


@pytest.fixture(scope="module")
def texts() -> Mapping[str, str]:
    """The documents by their digest, with one space for each run of spaces."""
    if not SOURCES.is_dir():
        pytest.skip(f"{SOURCES} is not there; set HARNESS_SOURCES to the folder of the documents")
    contents = [path.read_bytes() for path in SOURCES.iterdir() if path.is_file()]
    return {hashlib.sha256(content).hexdigest(): " ".join(content.decode().split()) for content in contents}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.title)
def test_anchors_are_in_their_document(texts: Mapping[str, str], document: Any) -> None:
    text = texts[document.sha256]
    assert [row.id for row in document.statements if row.anchor not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.title)
def test_no_statement_is_copied(texts: Mapping[str, str], document: Any) -> None:
    text = f" {' '.join(_words(texts[document.sha256]))} "
    assert [row.id for row in document.statements if any(f" {run} " in text for run in _runs(row.statement))] == []


def _runs(statement: str) -> list[str]:
    words = _words(statement)
    return [" ".join(words[start : start + LONGEST]) for start in range(len(words) - LONGEST + 1)]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
