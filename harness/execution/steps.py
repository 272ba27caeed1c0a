"""The step series of a trial, limited in size for any number of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from harness.base.strictjson import JsonObject

__all__ = ["MOST", "StepSeries", "Steps"]

MOST: Final = 8192
"""Most rows in memory, so that an endless trial does not exhaust it. A bundle keeps fewer."""

Row = JsonObject


@dataclass(frozen=True)
class Steps:
    """The first row, then every `stride`-th row, and the last."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    """How many rows were recorded."""
    stride: int = 1


@dataclass
class StepSeries:
    """Collects rows. If there are too many, it drops every second row and doubles the stride."""

    most: int = MOST
    _rows: list[Row] = field(default_factory=list)
    _last: Row | None = None
    _count: int = 0
    _stride: int = 1

    def add(self, row: Row) -> None:
        """Take the next row."""
        if self._count % self._stride == 0:
            if len(self._rows) >= self.most:
                del self._rows[1::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self._rows.append(row)
        self._last = row
        self._count += 1

    def close(self) -> Steps:
        """The series so far."""
        rows = tuple(self._rows)
        if self._last is not None and self._last is not rows[-1]:
            rows = (*rows, self._last)
        return Steps(rows, self._count, self._stride)
