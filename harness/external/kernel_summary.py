"""What a run's output says of its kernels: which were compiled and when, and what could not be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.external.output_events import Event, EventKind

__all__ = ["KernelTelling"]

_MOST = 10_000
"""Lines of a kind that are kept; more are only counted."""
_LONGEST_LINE = 500


@dataclass
class KernelTelling:
    """All that was told of kernels, in the order of the lines."""

    warmed: int | None = None
    """How many kernels were ready before the first step; None where no line said that any were."""
    before: list[str] = field(default_factory=list)
    """Kernels that were compiled until they were ready."""
    after: list[str] = field(default_factory=list)
    """Kernels that were compiled since."""
    counted: int | None = None
    """Compilations by the run's own counter, where it told one."""
    told: int = 0
    """Compilations that were told one by one."""
    refused: list[str] = field(default_factory=list)
    """Lines by which the driver refused to compile."""
    failed_uploads: list[str] = field(default_factory=list)
    """Lines by which weights could not be put on the device."""

    def hear(self, event: Event) -> None:
        """Take one event; those of other kinds are passed over."""
        if event.kind is EventKind.WARMED:
            # A warm-up may be told in several parts; what was compiled until the last of them belongs to it.
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
        """How often it says that it compiled: the larger of both counts; None where it says nothing of it."""
        counts = [count for count in (self.counted, self.told or None) if count is not None]
        return max(counts, default=None)

    def _compiled(self, event: Event) -> None:
        if (count := event.whole("count")) is not None:
            self.counted = max(self.counted or 0, count)
            return
        self.told += 1
        _keep(self.before if self.warmed is None else self.after, event.values.get("kernel", event.line))


def _keep(lines: list[str], line: str) -> None:
    if len(lines) < _MOST:
        lines.append(line[:_LONGEST_LINE])
