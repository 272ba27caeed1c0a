"""The templates with everything that pages share: escaping, the style, and a policy that forbids outside content."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from harness.base.version import VERSION
from harness.report.escaping import printable
from harness.report.messages import finding_text, number_text, reason_text
from harness.report.terminal.printing import Table
from harness.tools.html.plot import Drawing

__all__ = ["GENERATOR", "Section", "compiled", "document_page", "page"]

GENERATOR = "falsifier-harness"
"""The name by which the harness recognizes its own pages."""


def page(template: str, **values: Any) -> str:
    """Return a whole page from a template."""
    return compiled(template).render(**values)


def compiled(template: str) -> Template:
    """Return a template, compiled once."""
    return _environment().get_template(template)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("harness.tools.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    style, script = _asset("style.css"), _asset("enhance.js")
    environment.globals.update(
        generator=f"{GENERATOR} {VERSION}",
        style=Markup(style),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        # Hashes, because a page from the file system has no origin, so 'self' matches nothing.
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'",
    )
    environment.filters.update(
        reason_text=reason_text.marked,
        finding_text=finding_text.message,
        duration=number_text.duration,
        shown=number_text.value,
        binary=number_text.binary,
        ratio="{:.3g}".format,
    )
    return environment


def _shown(value: Any) -> Any:
    """Escape control characters in the value of every template expression."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _asset(name: str) -> str:
    return (resources.files("harness.tools.html") / "templates" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


Section = tuple[str, Sequence[str | Table | list[Drawing]]]
"""A title, and what stands below it. A text is a sentence without the full stop."""


def document_page(name: str, kind: str, statement: str, sections: Sequence[Section]) -> str:
    """Return the page. The statement is a sentence without the full stop, too."""
    return page("document.html.j2", name=name, kind=kind, statement=statement, sections=sections)
