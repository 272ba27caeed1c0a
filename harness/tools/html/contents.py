"""The parts of a bundle that a page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.evidence.artifacts import Artifact
from harness.evidence.bundle import Bundle, BundleError, Series
from harness.evidence.trial_files import MutantTrial, Stream
from harness.judging.counterexample import Counterexample
from harness.judging.judge import Judgment
from harness.judging.observation import Observation
from harness.judging.record import Record

__all__ = ["Contents"]


@dataclass(frozen=True)
class Contents:
    """The parts of a bundle that a page shows, by their names in `Bundle`. One that cannot be read has its default."""

    record: Record
    contract: Contract | None = None
    observation: Observation | None = None
    metrics: Series = field(default_factory=Series)
    telemetry: Series = field(default_factory=Series)
    logs: Mapping[tuple[str, str], Stream] = field(default_factory=dict)
    mutants: Mapping[str, MutantTrial] = field(default_factory=dict)
    mutant_judgments: Mapping[str, Judgment] = field(default_factory=dict)
    environment: JsonObject = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    counterexample: Counterexample | None = None

    @classmethod
    def read(cls, folder: Path) -> Contents:
        """Read a bundle's folder.

        Raises:
            BundleError: there is no record, or it cannot be read.
        """
        bundle = Bundle(folder)
        parts: dict[str, Any] = {}
        for part in fields(cls):
            try:
                parts[part.name] = getattr(bundle, part.name)
            except BundleError:
                if part.name == "record":
                    raise
        return cls(**parts)
