"""Follows the logs of a job, and turns their new lines into facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final
from zlib import crc32

from harness.base import regular_file
from harness.tools.trainer import tracked_runs
from harness.tools.trainer.output_events import LONGEST_LINE, Event, EventKind, LogReader
from harness.tools.trainer.trainer_file import Trainer
from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import JobState

__all__ = ["LogFollower"]

_CHUNK: Final = 2 * LONGEST_LINE
_SHARE: Final = 0.01
_TAIL: Final = 64
"""Number of bytes before the read position that are checked. If they differ, the file was replaced."""
_LINE_KINDS: Final = (EventKind.OUT_OF_MEMORY,)
"""Events whose line contains more than their values."""
_LONGEST: Final = 500


@final
class LogFollower:
    """Follows the files of a trainer's output.

    The first file with a step is the output. The others repeat it, or belong to other ranks.
    """

    def __init__(self, trainer: Trainer, paths: Callable[[], list[Path]], show: Callable[[bytes], None]) -> None:
        """Args:
        paths: returns the existing files. show: called with the new bytes.
        """
        self._trainer, self._paths, self._show = trainer, paths, show
        self._rest_until: dict[str, float] = {}

    def read(self, job: JobState, at: float, *, is_over: bool) -> Iterator[Fact]:
        """Yield facts of new lines. An unfinished line counts only at the end of the output."""
        for path in self._paths():
            if job.step_file in ("", str(path)):
                read = self._read_tracked if tracked_runs.is_tracked(path) else self._read
                yield from read(path, job, at, is_over)

    def _read_tracked(self, path: Path, job: JobState, at: float, is_over: bool) -> Iterator[Fact]:
        """Read a tracker's whole file, rarely enough to use only a hundredth of a processor.

        The newest step may get more values later. A database cannot be read during a write.
        """
        name = str(path)
        count, size = job.places.get(name, (0, 0))
        now = sum(part.stat().st_size for part in tracked_runs.parts(path))
        if not is_over and (now == size or at < self._rest_until.get(name, 0.0) or path.suffix == ".db"):
            return
        before, reader = time.thread_time(), LogReader(self._trainer.lines)
        rows = list(tracked_runs.lines(path))[: None if is_over else -1]
        events = [event for row in rows[count:] for event in reader.feed(row)]
        self._rest_until[name] = at + (time.thread_time() - before) / _SHARE
        yield {"fact": "output", "at": at, "file": name, "offset": len(rows), "tail": now,
               "events": [_plain(event) for event in events]}  # fmt: skip

    def _read(self, path: Path, job: JobState, at: float, is_over: bool) -> Iterator[Fact]:
        name = str(path)
        reader = LogReader(self._trainer.lines)
        while True:
            offset, tail = job.places.get(name, (0, 0))
            start = max(offset - _TAIL, 0)
            try:
                with regular_file.opened(path) as file:
                    file.seek(start)
                    before = file.read(offset - start)
                    if crc32(before) != tail:
                        offset, before = file.seek(0), b""  # the file was started again
                    chunk = file.read(_CHUNK)
            except FileNotFoundError:
                return
            whole = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if not whole and (is_over or len(chunk) > LONGEST_LINE):
                whole = len(chunk)
            if not whole:
                return
            events = list(reader.feed(chunk[:whole]))
            if is_over or chunk[whole - 1 : whole] not in (b"\n", b"\r"):
                events += list(reader.end())
            yield {"fact": "output", "at": at, "file": name, "offset": offset + whole,
                   "tail": crc32((before + chunk[:whole])[-_TAIL:]),
                   "events": [_plain(event) for event in events]}  # fmt: skip
            self._show(chunk[:whole])  # after the fact is written; otherwise the file is read again


def _plain(event: Event) -> list[object]:
    return [str(event.kind), dict(event.values), event.line[:_LONGEST] if event.kind in _LINE_KINDS else ""]
