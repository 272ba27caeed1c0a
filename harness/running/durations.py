"""The seconds that trials took when they last ran, kept in the cache folder, so that long trials can begin first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

from harness.machine.file_memory import keep, recall
from harness.running.plan import Plan

__all__ = ["Durations"]

_MOST = 100_000
"""Entries that are kept. Beyond it, the file begins anew."""


@final
class Durations:
    """The seconds of earlier trials, by claim, profile, device and trial. Only the order of a run depends on them."""

    def __init__(self, root: Path | None) -> None:
        """Args:
        root: of the project; None to remember nothing.
        """
        self._root = root
        self._seconds = self._recalled()
        self._news: dict[str, float] = {}

    def expected(self, plan: Plan, trial: str) -> float:
        """The seconds that a trial probably takes. A trial that never ran counts with its time limit."""
        return self._seconds.get(_key(plan, trial), plan.seconds)

    def add(self, plan: Plan, seconds: Mapping[str, float]) -> None:
        """Remember how long the trials of a claim took, by name."""
        self._news |= {_key(plan, trial): round(duration, 3) for trial, duration in seconds.items()}

    def save(self) -> None:
        """Keep what is new. Another run may have kept more meanwhile; if nothing can be kept, nothing is lost."""
        if self._root is not None and self._news:
            before = self._recalled()
            keep("durations", self._root, "", (before if len(before) < _MOST else {}) | self._news)

    def _recalled(self) -> dict[str, float]:
        return (self._root is not None and recall("durations", self._root, "")) or {}


def _key(plan: Plan, trial: str) -> str:
    return f"{plan.contract.id} {plan.profile.name} {plan.device.name} {trial}"
