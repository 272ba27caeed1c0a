"""harness/report/messages/finding_text.py: every finding has a sentence, which uses the fields that the finding has."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import harness.evidence
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.evidence.staleness import name_fields
from harness.report.messages import finding_text

EVIDENCE = Path(harness.evidence.__file__).parent
SOURCES = sorted(
    path for folder in ("evidence", "tools/sign", "tools/planting") for path in EVIDENCE.parent.glob(f"{folder}/*.py")
)
GIVEN_BY = {
    "_compare": {"then", "now"},
    "_fields": {"then", "now"},
    "_which": {"name", "found", "expected"},
    "name_fields": {"names", "more"},
}
"""The fields of findings that these functions make, or that they return for a call with `**`."""


def fields_of(sentence: str) -> set[str]:
    """The fields that a sentence uses."""
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def given() -> Iterator[tuple[str, set[str]]]:
    """Every detail that a call names, with its fields. Calls that spread a variable are left out."""
    for path in SOURCES:
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            names = [arg.attr for arg in call.args if isinstance(arg, ast.Attribute) and _name(arg.value) == "Detail"]
            spread = [_name(getattr(keyword.value, "func", None)) for keyword in call.keywords if keyword.arg is None]
            if names and all(name in GIVEN_BY for name in spread):
                own = {keyword.arg for keyword in call.keywords if keyword.arg}
                fields = own.union(*(GIVEN_BY.get(name, set()) for name in (*spread, _name(call.func))))
                yield from ((name, fields) for name in names)


def _name(node: object) -> str:
    return getattr(node, "id", "")


def test_a_sentence_uses_the_fields_of_its_finding() -> None:
    """A sentence uses exactly the fields of the calls that make its finding."""
    calls = list(given())
    assert len({name for name, _ in calls}) >= 44
    for name, fields in calls:
        assert fields == fields_of(Detail[name].template), name


def test_a_finding_in_a_line() -> None:
    """The line has code and place, then the sentence. A message with a finding in it has code and place."""
    objection = finding(Code.INVALID, Detail.TOO_MANY_COPIES, "artifacts/index.json", "/3", copies=300, most=200)
    assert finding_text.line(objection) == f"INVALID artifacts/index.json/3: {finding_text.message(objection)}"
    assert str(objection) == "INVALID artifacts/index.json/3"
    whole = Finding(Code.INCOMPLETE, Detail.NO_FOLDER)
    assert (finding_text.line(whole), str(whole)) == ("INCOMPLETE is no folder", "INCOMPLETE")


def test_fields_in_words() -> None:
    """Lists have commas, further items are a number, and a missing value is the word for it."""
    names = finding(Code.STALE_SUBJECT, Detail.FILES_GONE, **name_fields([f"{number}.py" for number in range(5)]))
    assert finding_text.message(names).endswith(": 0.py, 1.py, 2.py and 2 more")
    fields = {"name": "steps", "found": None, "expected": "3"}
    assert "steps is missing, not 3" in finding_text.message(
        finding(Code.REJUDGED_DIFFERENTLY, Detail.RAN_OTHERWISE, **fields)
    )
