"""Everything that one run of one claim produced, before it is sealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contract import Contract
from harness.execution.executor import TrialResult
from harness.judging.record import Record

__all__ = ["ClaimResult", "Seal"]


@dataclass(frozen=True)
class ClaimResult:
    """A claim's record with what the record was made from."""

    record: Record
    contract: Contract
    subject: TrialResult
    mutants: Mapping[str, TrialResult]
    """The trials of the mutants that ran, by id."""
    environment: Mapping[str, Any]
    """Host, software, and the variables that decide how code runs."""


Seal = Callable[[ClaimResult], Path]
"""Writes a bundle and returns its folder; OSError where it cannot."""
