"""The document of a tool as a page: sections of sentences, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.html.plot import Drawing
from harness.report.html.templating import page
from harness.report.terminal.printing import Table

__all__ = ["Section", "document_page"]

Section = tuple[str, Sequence[str | Table | list[Drawing]]]
"""A title, and what stands below it. A text is a sentence without the full stop."""


def document_page(name: str, kind: str, statement: str, sections: Sequence[Section]) -> str:
    """Return the page. The statement is a sentence without the full stop, too."""
    return page("document.html.j2", name=name, kind=kind, statement=statement, sections=sections)
