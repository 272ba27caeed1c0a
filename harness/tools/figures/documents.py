"""Whether figures and quotes are in the documents that they name.

    texts = Texts.in_folder(Path("sources"))
    for finding in misplaced_figures(figures, texts): ...

A document is compared as text. Spaces and line ends do not count in quotes. A table is one of Markdown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from harness.base import regular_file
from harness.base.strictjson import pointer
from harness.contract import Contract
from harness.lint.linter import Finding, Severity
from harness.tools.figures.figures import Document, Figure, Figures, is_printed_in
from harness.tools.figures.places import uses_of

__all__ = ["Texts", "TextsError", "misplaced_figures", "misquotes"]

_MOST_FILES: Final = 1_000
_MOST_BYTES: Final = 64 << 20
"""Of all files together."""

_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')


class TextsError(ValueError):
    """A folder of documents cannot be read, or has too many files or bytes."""


@final
@dataclass(frozen=True)
class Texts:
    """The texts of a folder, by digest and by name."""

    by_digest: Mapping[str, str]
    by_name: Mapping[str, str]
    """By the file's name, with and without its suffix."""

    @classmethod
    def in_folder(cls, folder: Path) -> Texts:
        """Read the regular files of a folder, not those of folders in it.

        Raises:
            TextsError: it cannot be read, or has too many files or bytes.
        """
        by_digest: dict[str, str] = {}
        by_name: dict[str, str] = {}
        left = _MOST_BYTES
        try:
            files = sorted(path for path in folder.iterdir() if path.is_file())
            if len(files) > _MOST_FILES:
                raise TextsError(f"{folder} has more than {_MOST_FILES} files")
            for path in files:
                content = regular_file.read(path, left)
                left -= len(content)
                text = content.decode("utf-8", "replace")
                by_digest[hashlib.sha256(content).hexdigest()] = text
                by_name |= {path.name: text, path.stem: text}
        except OSError as error:
            raise TextsError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
        return cls(by_digest, by_name)

    def of(self, document: Document) -> str | None:
        """Return the text of a document: the file with its digest, else one of its name; None if absent."""
        return self.by_digest.get(document.sha256, self.by_name.get(document.name))


def misplaced_figures(figures: Figures, texts: Texts) -> Iterator[Finding]:
    """Yield the documents that are not there, and the figures that are not at their locators."""
    read: dict[str, str] = {}
    for document in figures.documents.values():
        if document.unchecked:
            continue
        text = texts.of(document)
        if text is None:
            message = "the folder of sources has no file with this name or digest; folders below it are not searched"
            remedy = "add the document; if no copy is kept, say so in 'unchecked'"
            yield _error("document-absent", pointer("documents", document.name), message, remedy)
            continue
        read[document.name] = text
        if document.sha256 not in texts.by_digest:
            message = "the document has changed: its digest is not the one of figures.json"
            remedy = "read the figures again, and state the new 'sha256'"
            yield Finding("document-changed", Severity.WARNING, pointer("documents", document.name), message, remedy)
    for figure in figures.named.values():
        if figure.document.name in read:
            fault = _fault(figure, read[figure.document.name])
            if fault:
                where = pointer("figures", figure.name)
                yield _error("figure-not-there", where, f"{figure.document.name}: {fault}", "correct the figure")


def misquotes(contract: Contract, figures: Figures, texts: Texts) -> Iterator[Finding]:
    """Yield the quotes of a contract that are not verbatim in their documents: of its sources, and beside bounds."""
    for index, source in enumerate(contract.document["sources"]):
        documents = [document for document in figures.documents.values() if document.uri == source["uri"]]
        # A pull request has its text and the files that it changes. The locator can name one of them.
        named = [document for document in documents if document.is_named_in(source.get("locator", ""))]
        if "quote" in source:
            documents = named or [document for document in documents if not document.unchecked]
            yield from _unquoted(source["quote"], pointer("sources", index, "quote"), documents, texts)
    sources = {clause.id: clause.source for clause in contract.clauses}
    sources |= {rule.id: rule.source for rule in contract.rules}
    for key, uses in uses_of(contract.document).items():
        names = [name for use in uses for name in use.names if name in figures.named]
        documents = [figures.named[name].document for name in names]
        for quote in _QUOTED.finditer(sources.get(key, "")):
            yield from _unquoted(quote[1] or quote[2], pointer("figures", key), documents, texts)


def _unquoted(quote: str, where: str, documents: list[Document], texts: Texts) -> Iterator[Finding]:
    if not documents or any(document.unchecked for document in documents):
        return
    known_texts = [text for text in map(texts.of, documents) if text is not None]
    if known_texts and not any(_flat(quote) in _flat(text) for text in known_texts):
        message = f"{quote!r} is not in {documents[0].name}"
        yield _error(
            "quote-not-verbatim", where, message, "quote the words of the document, or write no quotation marks"
        )


def _fault(figure: Figure, text: str) -> str:
    """Why a figure is not at its locator; empty if it is there."""
    region = _under(text, figure.section)
    if region is None:
        return f"there is no heading {figure.section!r}"
    if figure.anchor:
        is_printed = is_printed_in(" ".join(region.split()), " ".join(figure.anchor.split()))
        return "" if is_printed else f"there is no {figure.anchor!r}"
    cells = [cell for table in _tables(region) for cell in _cells(table, figure.row, figure.column)]
    if len(cells) != 1:
        return f"there are {len(cells)} cells in row {figure.row!r}, column {figure.column!r}"
    return "" if is_printed_in(cells[0], figure.printed) else f"the cell is {cells[0]!r}, not {figure.printed!r}"


def _under(text: str, heading: str) -> str | None:
    """The lines under a Markdown heading, up to the next one of its level; the whole text without a heading."""
    if not heading:
        return text
    wanted, lines, fenced = 0, [], False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        level, title = (0, "") if fenced else _titled(line)
        if level and wanted and level <= wanted:
            break
        if level and not wanted and title == heading:
            wanted = level
        elif wanted:
            lines.append(line)
    return "\n".join(lines) if wanted else None


def _titled(line: str) -> tuple[int, str]:
    """The level and the text of a Markdown heading; level 0 for any other line."""
    text = line.lstrip("#")
    level = len(line) - len(text)
    return (level, text.strip().rstrip("#").rstrip()) if 1 <= level <= 6 and text[:1].isspace() else (0, "")


def _tables(text: str) -> Iterator[list[list[str]]]:
    """Yield the rows of each Markdown table, without the line below its head. Emphasis is left out."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            rows.append([re.sub(r"[*`]", "", cell).strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield rows[:1] + rows[2:]
            rows = []


def _cells(table: list[list[str]], row: str, column: str) -> Iterator[str]:
    head, *body = table
    for cells in body:
        if cells[0] == row and len(cells) == len(head):
            yield from (cell for name, cell in zip(head, cells, strict=True) if name == column)


def _flat(text: str) -> str:
    return "".join(text.split())


def _error(rule: str, where: str, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.ERROR, where, message, remedy)
