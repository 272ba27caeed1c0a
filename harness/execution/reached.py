"""Which lines of a project's modules a trial runs: sys.monitoring from Python 3.12 on, sys.settrace before.

    reached = Reached(root)
    reached.watch()
    …
    reached.write(path)

With sys.settrace, lines that run in threads which Python did not start are not seen. Child processes are never seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, final

__all__ = ["Reached"]

_HARNESS: Final = f"{Path(__file__).parents[1]}{os.sep}"


@final
class Reached:
    """The lines that ran, by file."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: of the project; lines of other files are not recorded.
        """
        self._root = f"{root}{os.sep}"
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._ours: dict[str, bool] = {}

    def watch(self) -> None:
        """Record from now on, in every thread."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "harness")

            def line(code: CodeType, number: int) -> Any:
                if self._is_ours(code.co_filename):
                    self._lines[code.co_filename].add(number)
                return monitoring.DISABLE

            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        else:
            threading.settrace(self._call)
            sys.settrace(self._call)

    def write(self, path: Path) -> None:
        """Write as JSON: `lines` by path from the root, and the `modules` that were imported from elsewhere, in order.

        The trial goes on unwatched.
        """
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        else:
            sys.settrace(None)
        lines = {name.removeprefix(self._root): sorted(found) for name, found in self._lines.items() if found}
        modules = [name for name, module in list(sys.modules.items()) if self._is_library(module)]
        path.write_text(json.dumps({"lines": lines, "modules": modules}), encoding="utf-8")

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace the lines of a function that is ours; a function of others runs untraced."""
        name = frame.f_code.co_filename
        if not self._is_ours(name):
            return None
        lines = self._lines[name]

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return line

        return line

    def _is_ours(self, name: str) -> bool:
        known = self._ours.get(name)
        if known is None:
            library = "site-packages" in name or name.startswith(_HARNESS)
            known = self._ours[name] = name.startswith(self._root) and not library
        return known

    def _is_library(self, module: Any) -> bool:
        """Whether a module stands in a file that is not the project's."""
        name = getattr(module, "__file__", None)
        return isinstance(name, str) and not self._is_ours(name)
