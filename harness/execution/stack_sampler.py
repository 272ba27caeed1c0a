"""Reports the present work of a trial: once a second, the functions of the project that its main thread runs.

A trial that compiles for minutes makes no step and measures nothing. The functions show what it does, and where it
hangs. The falsifier need not report anything.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

__all__ = ["doing", "watch_doing"]

_SECONDS = 1.0
_HARNESS = f"{Path(__file__).parents[1]}{os.sep}"
_LONGEST = 200
"""Characters of a text."""


def watch_doing(folders: Sequence[str], tell: Callable[[str], None]) -> None:
    """Report the work of the calling thread, whenever it changes, until the process ends.

    Args:
        folders: where the project's code is.
        tell: reports it. What it raises ends the reports.
    """
    ident, process = threading.get_ident(), os.getpid()
    roots = tuple(f"{folder}{os.sep}" for folder in folders)

    def sample() -> None:
        last = ""
        with suppress(OSError, ValueError):
            while os.getpid() == process:
                frame = sys._current_frames().get(ident)
                now = doing(frame, roots)
                del frame  # it keeps everything alive that the function has
                if now and now != last:
                    tell(now)
                    last = now
                _wait(_SECONDS)

    threading.Thread(target=sample, name="stack-sampler", daemon=True).start()


_wait = threading.Event().wait


def doing(frame: FrameType | None, roots: tuple[str, ...]) -> str:
    """Return the outermost and the innermost function of the project below the falsifier's, such as "train > step"."""
    names = list(reversed(list(_names(frame, roots))))
    below = names[1:] or names
    if not below:
        return ""
    shown = below if len(below) == 1 or below[0] == below[-1] else [below[0], below[-1]]
    return " > ".join(dict.fromkeys(shown))[:_LONGEST]


def _names(frame: FrameType | None, roots: tuple[str, ...]) -> Iterator[str]:
    """Yield the project's functions, the innermost first."""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(roots) and not file.startswith(_HARNESS) and "site-packages" not in file:
            name = code.co_qualname.rpartition("<locals>.")[2]
            yield f"importing {Path(file).stem}" if name == "<module>" else name
        frame = frame.f_back
