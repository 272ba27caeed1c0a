"""The step series of a trial, kept within bounds however many steps the trial makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from harness.base.strictjson import JsonObject

__all__ = ["MOST", "StepSeries", "Steps"]

MOST: Final = 8192
"""Rows in memory. A bundle keeps fewer; a falsifier that never ends a step must not take the harness's memory."""

Row = JsonObject


@dataclass(frozen=True)
class Steps:
    """The first row, every `stride`-th after it, and the last."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    """How many rows were recorded."""
    stride: int = 1


@dataclass
class StepSeries:
    """Takes rows one by one; where they become too many, every second goes, and from then on every second comes."""

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
