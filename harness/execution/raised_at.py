"""Where an exception was raised: the innermost line of the project's code in its traceback."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb

from harness.base.exceptions import described
from harness.execution.sources import Sources

__all__ = ["placed", "raised_at", "set_place"]

_PLACE = "raised_at_in_the_subjects_process"


def placed(error: BaseException, sources: Sources) -> str:
    """Return an exception in words, after its place: "falsifiers/softmax.py:12: ValueError: no row"."""
    return ": ".join(filter(None, (raised_at(error, sources), described(error))))


def raised_at(error: BaseException, sources: Sources) -> str:
    """Return the file, from the project's root, and the line. Empty if no code of the project is in the traceback."""
    place = getattr(error, _PLACE, "")
    for frame, line in walk_tb(None if place else error.__traceback__):
        if file := sources.path_of(Path(frame.f_code.co_filename)):
            place = f"{file}:{line}"
    return str(place)


def set_place(error: BaseException, place: str) -> None:
    """Record where an exception was raised in the process of an isolated subject."""
    setattr(error, _PLACE, place)
