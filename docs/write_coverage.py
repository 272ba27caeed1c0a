"""The statements of the documents that the claims come from, and docs/coverage.md, which lists them.

    python docs/write_coverage.py

writes the page from docs/statements/, which has a file for each document. tests/test_coverage.py compares statements
with the contracts, and the page with the statements.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["PAGE", "REASONS", "WORK", "Document", "Statement", "documents", "page"]

_DOCS: Final = Path(__file__).parent
_STATEMENTS: Final = _DOCS / "statements"
PAGE: Final = _DOCS / "coverage.md"

WORK: Final = {
    "real": "the full profile does the work that the statement speaks of, at its size",
    "smaller": "the work is of that kind, but smaller or narrower",
    "stand-in": "something else is done: another class of device, a simulation, arithmetic, or other tools",
}
"""How real a test is, and what that means."""
REASONS: Final = {
    "out of reach": "it takes hardware, data or code that is not to be had here",
    "open": "it could be tested here, and no claim does yet",
    "not falsifiable": "no measurement could refute it",
    "out of scope": "it is not about training, kernels or their tools",
}
"""Why nothing tests a statement, and what that means."""

_HEAD: Final = """\
# Coverage of the sources

<!-- `python docs/write_coverage.py` writes this page from docs/statements/. -->

Most claims come from five documents. This page has a row for each of their statements, in our words, with a few words
by which to find it there. The test is a claim with the clauses that can refute the statement. A claim may say the
contrary of a statement; its clauses then refute the one or the other.

How real a test is:

{work}

A statement without a test has a reason:

{reasons}

The code under test is this project's own, unless you run a claim on another subject. A statement is not true because a
claim tests it: `harness status` says where claims ran, and with which result.
"""


@dataclass(frozen=True)
class Statement:
    """What a document says, and what tests it.

    Attributes:
        where: the part of the document.
        anchor: a few words that are there.
        statement: in our own words.
        work: how real the test is; empty if there is none.
        tests: by claim, the clauses that can refute it.
        note: what the test lacks. Only real work needs none.
        size: the size that the statement names, by parameter of the claim's full profile: a number is a least one, a
            list has values that must be among the parameter's.
        untested: why there is no test; empty if there is one.
        reason: the same in a sentence.
    """

    id: str
    where: str
    anchor: str
    statement: str
    work: str = ""
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    note: str = ""
    size: Mapping[str, Any] = field(default_factory=dict)
    untested: str = ""
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it has a test with what belongs to it, or a reason, and not both."""
        if self.untested:
            return self.untested in REASONS and bool(self.reason) and not (self.work or self.tests or self.note)
        complete = bool(self.tests) and all(self.tests.values()) and not self.reason
        return complete and self.work in WORK and (self.work == "real" or bool(self.note))


@dataclass(frozen=True)
class Document:
    """A document with its statements.

    Attributes:
        sha256: of the file's bytes.
        beyond: by claim of the same part of the project, why no statement here names it.
    """

    title: str
    uri: str
    sha256: str
    statements: Sequence[Statement]
    beyond: Mapping[str, str]


def documents() -> list[Document]:
    """Read docs/statements/. Raises TypeError if a key is missing or unknown."""
    found = []
    for path in sorted(_STATEMENTS.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found.append(Document(**{**content, "statements": [Statement(**one) for one in content["statements"]]}))
    return found


def page(found: Sequence[Document]) -> str:
    """The text of docs/coverage.md."""
    parts = [_HEAD.format(work=_explained(WORK), reasons=_explained(REASONS)), _totals(found)]
    for document in found:
        parts.append(f"## {document.title}\n\n{_place(document.uri)}\n")
        parts.append(_table(("statement", "test"), map(_row, document.statements)))
        if document.beyond:
            parts.append("Claims of this part that no statement here names:\n")
            rows = [(f"`{name}`", _plain(why)) for name, why in document.beyond.items()]
            parts.append(_table(("claim", "why"), rows))
    return "\n".join(parts)


def _explained(words: Mapping[str, str]) -> str:
    return "\n".join(f"- *{word}*: {meaning}" for word, meaning in words.items())


def _totals(found: Sequence[Document]) -> str:
    """By document and in all, how many statements have which kind of test; then the reasons for none."""
    counts = [(document.title, Counter(one.work for one in document.statements)) for document in found]
    counts.append(("all", sum((count for _, count in counts), Counter[str]())))
    rows = [(name, *(count[kind] for kind in (*WORK, "")), count.total()) for name, count in counts]
    reasons = Counter(one.untested for document in found for one in document.statements if one.untested)
    told = ", ".join(f"{reasons[reason]} {reason}" for reason in REASONS)
    return f"{_table(('document', *WORK, 'none', 'all'), rows)}\nOf the {reasons.total()} without a test: {told}.\n"


def _place(uri: str) -> str:
    return f"<{uri}>" if uri.startswith("https:") else f"{_plain(uri)}."


def _row(one: Statement) -> tuple[str, str]:
    told = f"{one.id}. {_plain(one.statement)} *{_plain(one.where)}: “{_plain(one.anchor)}”*"
    if one.untested:
        return told, f"none, *{one.untested}*: {_plain(one.reason)}"
    tests = "; ".join(f"`{name}` by {', '.join(f'`{clause}`' for clause in of)}" for name, of in one.tests.items())
    return told, f"*{one.work}*: {tests}. {_plain(one.note)}".rstrip()


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in _lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[Sequence[object]]:
    yield head
    yield ("---",) * len(head)
    yield from rows


def _plain(text: str) -> str:
    """Text as Markdown that shows it as it stands."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


if __name__ == "__main__":
    PAGE.write_text(page(documents()), encoding="utf-8")
