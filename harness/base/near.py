"""The nearest known name to one that is unknown, for a message."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["hint"]

_LONGEST = 100
"""A name from a file can be of any length, and comparing takes time that grows with its square."""


def hint(name: str, known: Iterable[str], otherwise: str, form: str = "{}", cutoff: float = 0.6) -> str:
    """Return "did you mean …?" with the nearest of the known names, in a form; without a near one, another remedy."""
    import difflib  # slow to import

    names = {known_name.lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name[:_LONGEST].lower(), names, n=1, cutoff=cutoff)
    return f"did you mean {form.format(names[near[0]])}?" if near else otherwise
