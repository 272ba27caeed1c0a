"""A run's output about its kernels: which were compiled and when, and what could not be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.tools.trainer.output_events import Event, EventKind

__all__ = ["KernelTelling"]

_MOST = 10_000
"""Maximum stored lines of a kind. Further lines are only counted."""
_LONGEST_LINE = 500


@dataclass
class KernelTelling:
    """All output about kernels, in the order of the lines."""

    warmed: int | None = None
    """How many kernels were ready before the first step; None if no line states it."""
    before: list[str] = field(default_factory=list)
    """Kernels that were compiled before that."""
    after: list[str] = field(default_factory=list)
    """Kernels that were compiled after that."""
    counted: int | None = None
    """Compilations by the run's own counter; None without one."""
    listed: int = 0
    """Compilations with a separate line."""
    refused: list[str] = field(default_factory=list)
    """Lines that say that the driver refused to compile."""
    failed_uploads: list[str] = field(default_factory=list)
    """Lines that say that weights could not be loaded onto the device."""

    def hear(self, event: Event) -> None:
        """Take one event. Events of other kinds are ignored."""
        if event.kind is EventKind.WARMED:
            # A warm-up can have several lines. All compilations up to the last of them belong to it.
            self.warmed = (self.warmed or 0) + (event.whole("kernels") or 0)
            self.before, self.after = self.before + self.after, []
        elif event.kind is EventKind.COMPILED:
            self._compiled(event)
        elif event.kind is EventKind.REFUSED_LOAD:
            _keep(self.refused, event.line)
        elif event.kind is EventKind.FAILED_UPLOAD:
            _keep(self.failed_uploads, event.line)

    @property
    def compilations(self) -> int | None:
        """The number of compilations: the larger of both counts; None if the output says nothing about them."""
        counts = [count for count in (self.counted, self.listed or None) if count is not None]
        return max(counts, default=None)

    def _compiled(self, event: Event) -> None:
        if (count := event.whole("count")) is not None:
            self.counted = max(self.counted or 0, count)
            return
        self.listed += 1
        _keep(self.before if self.warmed is None else self.after, event.values.get("kernel", event.line))


def _keep(lines: list[str], line: str) -> None:
    if len(lines) < _MOST:
        lines.append(line[:_LONGEST_LINE])
