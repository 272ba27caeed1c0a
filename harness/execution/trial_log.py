"""The log of a trial, with seconds since its start.

    log = TrialLog(started=time.monotonic(), mask=Redactor().mask)
    log.write("the trial of toy.sorting:Sorter")        #      0.000  the trial of toy.sorting:Sorter
    log.hear(Stepped(3, {"loss": 2.5}))                 #      1.204  step 3: loss 2.5
    log.close(Redactor())                               # the Log for the bundle

The harness writes the log from the messages of the trial, so output of the subject cannot forge a line. No verdict
depends on the log.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from harness.authoring.reports import Entered, Logged, Measured, Resolved, Stepped, Unseen
from harness.authoring.toolkit_log import HYPOTHESIS
from harness.base import regular_file
from harness.base.redaction import Redactor
from harness.base.shortening import cut, printable
from harness.base.vocabulary import Phase
from harness.execution.logs import BoundedLog, Log
from harness.execution.messages import Lost, Read, Received, Started
from harness.judging.observation import Ending, EndingKind

__all__ = ["TrialLog", "WorkspaceFiles", "short"]

_LONGEST: Final = 600
"""Maximum characters of a line."""
_MASKED: Final = 16 << 10
"""Characters of a text that are masked before the text is cut."""
_MOST_TOPICS: Final = 1_000
_MOST_NAMES: Final = 24
"""Maximum names of one message that are written."""
_MOST_FILES: Final = 1_000
_MOST_LEFT: Final = 60
_DEEPEST: Final = 8
_MOST_DIGESTED: Final = 4 << 30
"""Maximum bytes of a workspace to digest, so that large checkpoints do not delay the end of a trial."""


@final
class TrialLog:
    """Writes the log of one trial."""

    def __init__(self, started: float, mask: Callable[[str], str]) -> None:
        """Args:
        started: the start of the trial, as a monotonic time.
        mask: masks secrets in a text.
        """
        self._started, self._mask = started, mask
        self._log = BoundedLog()
        self._counts: Counter[str] = Counter()
        self._entered: float | None = None
        """When the subject's code started to run; None while the falsifier's code runs."""
        self._in_subject, self._calls = 0.0, 0
        self._last_step = ""

    def write(self, text: str, topic: str = "") -> None:
        """Write a line. Of the lines with one topic, only the 1st, 2nd, 5th, 10th, 20th, 50th and so on are kept."""
        if topic:
            if topic not in self._counts and len(self._counts) >= _MOST_TOPICS:
                topic = "other"
            self._counts[topic] += 1
            count = self._counts[topic]
            if not _is_round(count):
                return
            text = f"{text}  ({count} so far)" if count > 2 else text
        seconds = time.monotonic() - self._started
        line = printable(cut(self._mask(text[:_MASKED]), _LONGEST))
        self._log.feed(f"{seconds:10.3f}  {line}\n".encode(errors="backslashreplace"))

    def hear(self, message: Received) -> None:
        """Write a message of the trial."""
        match message:
            case Started(pid):
                self.write(f"process {pid} runs the trial")
            case Entered(phase):
                self._enter(phase)
            case Measured(values):
                self._name("measured", values)
            case Resolved(values):
                self._name("read back from the process:", values)
            case Unseen(values):
                self._name("not shown by the subject:", values)
            case Stepped(step, values):
                pairs = ", ".join(f"{name} {short(value, self._mask)}" for name, value in _first(values.items()))
                self._last_step = f"step {step}: {pairs or 'no values'}"
                self.write(self._last_step, "step")
            case Read(sources):
                self._sources(sources)
            case Logged(text, topic):
                self.write(text, f"logged {topic}" if topic else "")
            case Lost(reason):
                self.write(f"no process: {reason}")
            case _:
                pass

    def compare(self, requested: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        """Write the requested values beside the values read back."""
        for name, expected in requested.items():
            actual = short(resolved[name], self._mask) if name in resolved else "nothing"
            self.write(f"requested {name} {short(expected, self._mask)}, read back from the process: {actual}")

    def end(self, ending: Ending) -> None:
        """Write how the trial ended, and its totals."""
        self._leave_subject(" and did not return")
        if steps := self._counts["step"]:
            self.write(f"{steps} steps in all; the last: {self._last_step}")
        if self._in_subject:
            self.write(f"the subject's code ran for {self._in_subject:.3f} s in all, in {self._calls} calls")
        why = f": {ending.reason}" if ending.reason else ""
        whose = "" if ending.kind is EndingKind.COMPLETED else f" in the phase {ending.phase!s}"
        self.write(f"ended: {ending.kind}{whose}{why}")
        for line in (ending.traceback or "").rstrip().splitlines()[-30:]:
            self.write(f"  {line}")

    def close(self, redactor: Redactor) -> Log:
        """Return the log. It is not empty."""
        return self._log.close(redactor)

    def _name(self, what: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.write(f"{what} {name} = {short(value, self._mask)}", f"{what} {name}")

    def _sources(self, sources: Mapping[str, str]) -> None:
        self.write(f"read {len(sources)} source files of the project; the record has their digests")
        for name, digest in _first(sources.items()):
            self.write(f"  {name} sha256 {digest}")

    def _enter(self, phase: Phase) -> None:
        if phase is not Phase.SUBJECT:
            self._leave_subject("")
        elif self._entered is None:
            self._entered = time.monotonic()

    def _leave_subject(self, how: str) -> None:
        if self._entered is not None:
            seconds, self._entered = time.monotonic() - self._entered, None
            self._in_subject, self._calls = self._in_subject + seconds, self._calls + 1
            self.write(f"the subject's code ran for {seconds:.3f} s{how}", "" if how else "subject")


@final
class WorkspaceFiles:
    """Reports files that a trial saves in its workspace, by scanning the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, int]] = {}

    def saved(self) -> Iterator[str]:
        """Yield a line for each file that is new or changed since the last call."""
        present = dict(_files(str(self._folder), "", 0))
        for name, (size, changed) in present.items():
            if self._known.get(name) != (size, changed):
                self._known[name] = (size, changed)
                yield f"saved workspace/{name}, {size} bytes"

    def kept(self) -> Iterator[str]:
        """Yield a line with the digest for each file at the end of the trial."""
        left = _MOST_DIGESTED
        files = sorted(_files(str(self._folder), "", 0))
        for name, (size, _) in files[:_MOST_LEFT]:
            left -= size
            digest = "not read: the workspace is large"
            if left >= 0:
                try:
                    digest = regular_file.sha256(self._folder / name)
                except OSError as error:
                    digest = f"cannot be read: {error.strerror}"
            yield f"left workspace/{name}, {size} bytes, sha256 {digest}"
        if len(files) > _MOST_LEFT:
            yield f"left {len(files) - _MOST_LEFT} more files in the workspace"


def _files(folder: str, prefix: str, depth: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield path, size and modification time of each regular file. Links are not followed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_FILES), entries, strict=False):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield f"{prefix}{entry.name}", (status.st_size, status.st_mtime_ns)
                elif stat.S_ISDIR(status.st_mode) and depth < _DEEPEST and entry.name != HYPOTHESIS:
                    yield from _files(entry.path, f"{prefix}{entry.name}/", depth + 1)


def short(value: Any, mask: Callable[[str], str] = str) -> str:
    """Summarize a JSON value. A long list of numbers is shown by its length, first and last items, and range."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)) and len(value) > 6 and all(type(item) in (int, float) for item in value):
        finite = [number for number in value if math.isfinite(number)]
        spread = f"from {min(finite):.6g} to {max(finite):.6g}" if finite else "none finite"
        return f"{len(value)} numbers {spread}: {value[0]:.6g}, {value[1]:.6g}, …, {value[-1]:.6g}"
    return cut(mask(json.dumps(value, ensure_ascii=False)[:_MASKED]), _LONGEST - 100)


def _first(items: Any) -> list[Any]:
    return [item for _, item in zip(range(_MOST_NAMES), items, strict=False)]


def _is_round(count: int) -> bool:
    """Whether a number is 1, 2 or 5 times a power of ten."""
    return str(count).rstrip("0") in ("1", "2", "5")
