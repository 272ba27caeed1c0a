"""What a process of a trial has built and read since it was last asked, as lines for the trial's log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from harness.authoring.toolkit_log import HYPOTHESIS
from harness.base import regular_file
from harness.execution.messages import Start
from harness.execution.models_built import ModelsBuilt
from harness.execution.sources import Sources

__all__ = ["News"]

_LARGEST_DIGESTED: Final = 16 << 20
"""Bytes of a data file whose digest the trial's log has."""


@final
class News:
    """The models that this process builds, and the data files that it opens."""

    def __init__(self, start: Start, sources: Sources) -> None:
        self._start, self._sources, self._models = start, sources, ModelsBuilt()

    def listen(self) -> None:
        """Record every model that is built from now on, and files that libraries open in Rust."""
        self._models.listen()
        self._sources.hear_libraries()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each new line with its topic (see `TrialLog.write`)."""
        self.listen()  # to libraries that were imported meanwhile
        for text, kind in self._models.news():
            yield f"built {text}", f"model {kind}"
        for name in self._sources.data():
            if name != str(self._start.claim) and HYPOTHESIS not in Path(name).parts:
                yield self._file(name), ""

    def _file(self, name: str) -> str:
        """A line on a file that the process has opened."""
        start, shown = self._start, name
        for folder in (start.workspace, start.artifacts, start.cache):
            shown = shown.replace(f"{folder}{os.sep}", f"{folder.name}{os.sep}")
        try:
            size = os.stat(name).st_size
            told = "" if start.is_timed or size > _LARGEST_DIGESTED else f", sha256 {regular_file.sha256(Path(name))}"
            return f"read {shown}, {size} bytes{told}"
        except OSError as error:
            return f"opened {shown}: {error.strerror}"
