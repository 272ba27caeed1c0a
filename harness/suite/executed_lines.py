"""The lines of some files that run while a block runs: sys.monitoring from Python 3.12 on, sys.settrace before."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, Self, final

__all__ = ["Lines"]


@final
class Lines:
    """Records lines of files. Without files it does nothing, and lets a debugger or a coverage tool work."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)
        self._found: dict[str, set[int]] = defaultdict(set)

    def __enter__(self) -> Self:
        """Record from now on."""
        if not self._files:
            return self
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "harness")
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        else:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        """Record no more."""
        if not self._files:
            return
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        else:
            threading.settrace(None)
            sys.settrace(None)

    def taken(self) -> dict[str, list[int]]:
        """Return the lines by file since the last call."""
        found, self._found = self._found, defaultdict(set)
        return {file: sorted(lines) for file, lines in found.items()}

    def _line(self, code: CodeType, number: int) -> None:
        if code.co_filename in self._files:
            self._found[code.co_filename].add(number)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self._found[frame.f_code.co_filename].add(frame.f_lineno)
        return self._trace
