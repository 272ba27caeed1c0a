"""The seconds that trials took when they last ran, kept in the cache folder, so that long trials can begin first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

from harness.base import strictjson
from harness.running.plan import Plan

__all__ = ["Durations"]

_MOST = 100_000
"""Entries that are kept. Beyond it, the file begins anew."""


@final
class Durations:
    """The seconds of earlier trials, by claim, profile, device and trial. Only the order of a run depends on them."""

    def __init__(self, cache: Path | None) -> None:
        """Args:
        cache: the folder of the file; None for no file. A file that cannot be read is empty.
        """
        self._file = None if cache is None else cache / "durations.json"
        self._seconds = self._read()
        self._news: dict[str, float] = {}

    def expected(self, plan: Plan, trial: str) -> float:
        """The seconds that a trial probably takes. A trial that never ran counts with its time limit."""
        seconds = self._seconds.get(_key(plan, trial))
        return plan.seconds if seconds is None else seconds

    def add(self, plan: Plan, seconds: Mapping[str, float]) -> None:
        """Remember how long the trials of a claim took, by name."""
        self._news |= {_key(plan, trial): round(one, 3) for trial, one in seconds.items()}

    def save(self) -> None:
        """Write the file. Another run may have written it meanwhile; if it cannot be written, nothing is lost."""
        if self._file is None or not self._news:
            return
        before = self._read()
        kept = before if len(before) < _MOST else {}
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with suppress(OSError):
            strictjson.dump(kept | self._news, temporary)
            os.replace(temporary, self._file)

    def _read(self) -> dict[str, float]:
        if self._file is None:
            return {}
        try:
            found = strictjson.load(self._file)
        except (OSError, ValueError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {name: float(one) for name, one in entries if type(one) in (int, float) and one >= 0}


def _key(plan: Plan, trial: str) -> str:
    return f"{plan.contract.id} {plan.profile.name} {plan.device.name} {trial}"
