"""Durations of earlier trials, stored in the cache folder, so that long trials can start first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

from harness.machine.file_memory import keep, recall
from harness.running.plan import Plan

__all__ = ["Durations"]

_MOST = 100_000
"""Maximum entries. Beyond it, the file is emptied."""


@final
class Durations:
    """Durations in seconds by claim, profile, device and trial. They affect only the order of a run."""

    def __init__(self, root: Path) -> None:
        """Args:
        root: the root of the project.
        """
        self._root = root
        self._seconds = self._recalled()
        self._news: dict[str, float] = {}

    def expected(self, plan: Plan, trial: str) -> float:
        """Return the expected seconds of a trial; its time limit if it never ran."""
        return self._seconds.get(_key(plan, trial), plan.seconds)

    def add(self, plan: Plan, seconds: Mapping[str, float]) -> None:
        """Store the durations of a claim's trials, by name."""
        self._news |= {_key(plan, trial): round(duration, 3) for trial, duration in seconds.items()}

    def save(self) -> None:
        """Write new durations, merged with those that other runs have written meanwhile. Failures are ignored."""
        if self._news:
            before = self._recalled()
            keep("durations", self._root, "", (before if len(before) < _MOST else {}) | self._news)

    def _recalled(self) -> dict[str, float]:
        return recall("durations", self._root, "") or {}


def _key(plan: Plan, trial: str) -> str:
    return f"{plan.contract.id} {plan.profile.name} {plan.device.name} {trial}"
