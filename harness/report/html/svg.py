"""SVG as text: elements with escaped attributes and texts. The page's style sheet colours them."""

from __future__ import annotations

from markupsafe import Markup, escape

from harness.report.escaping import printable

__all__ = ["element", "number", "text"]


def element(name: str, *children: Markup, **attributes: object) -> Markup:
    """Return an element. `class_` is class, other underscores are hyphens, and None omits an attribute."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(children)
    tag = escape(name)
    return Markup("<{}{}>{}</{}>").format(tag, written, inner, tag) if inner else Markup("<{}{}/>").format(tag, written)


def text(content: str, x: float, y: float, **attributes: object) -> Markup:
    """Return a text element."""
    return element("text", escape(printable(content)), x=x, y=y, **attributes)


def number(value: float) -> str:
    """Return a coordinate with at most one decimal. Smaller differences are invisible."""
    written = f"{value:.1f}"
    return written.removesuffix(".0") if written != "-0.0" else "0"


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else printable(str(value))
