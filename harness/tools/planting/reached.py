"""Records which lines of a project's modules a trial executes, by sys.monitoring (by sys.settrace before Python 3.12).

    with Reached(root, search, path):
        …
    lines, modules = read_reached(path)

A forked child sends each line through a pipe when it first executes the line, so the lines of a killed child count too.
The pipe holds about ten thousand lines; further lines are lost. Programs that a trial starts by exec are not traced.
With sys.settrace, threads that Python did not start are not traced either.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, final

from harness.base import strictjson
from harness.execution.messages import Start

__all__ = ["AROUND", "Reached", "around_trial", "read_reached"]

AROUND: Final = f"{__name__}:around_trial"
"""The entry point with which a trial records its lines, into the file that is its argument."""

_PIPE_BYTES: Final = 1 << 20
_HARNESS: Final = f"{Path(__file__).parents[1]}{os.sep}"


@final
class Reached:
    """Records the lines that this process and its forks run."""

    def __init__(self, root: Path, search: Collection[str], path: Path) -> None:
        """Args:
        root: of the project; lines of other files are not recorded.
        search: the folders from which the project's code is imported. Below other folders of `sys.path` are libraries,
            also if they lie in the project.
        path: the file to write.
        """
        self._root = f"{root}{os.sep}"
        others = [entry for entry in sys.path if entry.startswith(self._root) and entry not in search]
        self._libraries = (_HARNESS, *(f"{entry}{os.sep}" for entry in others))
        self._path, self._owner = path, os.getpid()
        # Not a file, because a subject may limit the size of its files.
        self._receiving, self._sending = os.pipe()
        for descriptor in (self._receiving, self._sending):
            os.set_blocking(descriptor, False)
        with suppress(OSError):  # above the user's pipe quota, the default size is enough
            fcntl.fcntl(self._sending, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._ours: dict[str, bool] = {}

    def __enter__(self) -> None:
        """Start recording in every thread."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "harness")

            def line(code: CodeType, number: int) -> Any:
                if self._is_ours(code.co_filename):
                    self._reach(code.co_filename, number)
                return monitoring.DISABLE

            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        else:
            threading.settrace(self._call)
            sys.settrace(self._call)

    def __exit__(self, *exception: object) -> None:
        """Write the lines, and the modules that were imported from elsewhere, in order. The trial continues
        untraced."""
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        else:
            sys.settrace(None)
        sent = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self._receiving, _PIPE_BYTES):
                sent += chunk
        for text in sent.decode().splitlines():
            number, _, name = text.partition(" ")
            self._lines[name].add(int(number))
        lines = {name.removeprefix(self._root): sorted(numbers) for name, numbers in self._lines.items() if numbers}
        modules = [name for name, module in list(sys.modules.items()) if self._is_library(module)]
        self._path.write_text(json.dumps({"lines": lines, "modules": modules}), encoding="utf-8")

    def _reach(self, name: str, number: int) -> None:
        lines = self._lines[name]
        if number not in lines:
            lines.add(number)
            if os.getpid() != self._owner:
                with suppress(OSError):  # the pipe is full, or the child has closed it
                    os.write(self._sending, f"{number} {name}\n".encode())

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the lines of a function of the project. A function of a library runs untraced."""
        name = frame.f_code.co_filename
        if not self._is_ours(name):
            return None

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self._reach(name, frame.f_lineno)
            return line

        return line

    def _is_ours(self, name: str) -> bool:
        known = self._ours.get(name)
        if known is None:
            library = "site-packages" in name or name.startswith(self._libraries)
            known = self._ours[name] = name.startswith(self._root) and not library
        return known

    def _is_library(self, module: Any) -> bool:
        """Whether a module's file is not the project's."""
        name = getattr(module, "__file__", None)
        return isinstance(name, str) and not self._is_ours(name)


def around_trial(start: Start, path: str) -> Reached:
    """Return the context manager that records the lines of a trial (see `TrialRequest.around`)."""
    return Reached(start.root, start.search, Path(path))


def read_reached(path: Path) -> tuple[dict[str, frozenset[int]], tuple[str, ...]]:
    """Read the lines, by path from the root, and the modules from the file of a finished `Reached`.

    Raises:
        OSError, ValueError: the file cannot be read, or is malformed, because a subject may have written it.
    """
    document = strictjson.load(path)
    try:
        return {name: frozenset(numbers) for name, numbers in document["lines"].items()}, tuple(document["modules"])
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has another form than a `Reached` writes: {error!r}") from error
