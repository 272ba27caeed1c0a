"""The parts of a bundle that a page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.evidence.artifacts import Artifact
from harness.evidence.bundle import Bundle, BundleError, MutantTrial, Series
from harness.evidence.trial_files import SUBJECT, Stream
from harness.judging.judge import Judgment
from harness.judging.observation import Observation
from harness.judging.record import Record
from harness.search.counterexample import Counterexample

__all__ = ["Contents", "ContentsError"]


class ContentsError(ValueError):
    """A folder has no readable record. The text has the reason."""


@dataclass(frozen=True)
class Contents:
    """The parts of a bundle that a page shows."""

    record: Record
    contract: Contract | None
    observation: Observation | None
    metrics: Series
    telemetry: Series
    stdout: str
    stderr: str
    mutants: Mapping[str, MutantTrial]
    """The trials of the mutants that ran, by mutant id."""
    mutant_judgments: Mapping[str, Judgment]
    """The judgments of these trials."""
    environment: JsonObject
    artifacts: tuple[Artifact, ...]
    counterexample: Counterexample | None
    """The case on which a falsifier that searches refuted the claim."""

    @classmethod
    def read(cls, folder: Path) -> Contents:
        """Read a bundle's folder.

        Raises:
            ContentsError: there is no record, or it cannot be read.
        """
        bundle = Bundle(folder)
        try:
            record = bundle.record
        except BundleError as error:
            raise ContentsError(str(error)) from error
        logs = bundle.attempt(lambda one: one.logs, dict[tuple[str, str], Stream]())
        return cls(
            record=record,
            contract=bundle.attempt(lambda one: one.contract, None),
            observation=bundle.attempt(lambda one: one.observation, None),
            metrics=bundle.attempt(lambda one: one.metrics, Series()),
            telemetry=bundle.attempt(lambda one: one.telemetry, Series()),
            stdout=_text(logs, "stdout"),
            stderr=_text(logs, "stderr"),
            mutants=bundle.attempt(lambda one: one.mutants, {}),
            mutant_judgments=bundle.attempt(lambda one: one.mutant_judgments, {}),
            environment=bundle.attempt(lambda one: one.environment, {}),
            artifacts=bundle.attempt(lambda one: one.artifacts, ()),
            counterexample=bundle.attempt(lambda one: one.counterexample, None),
        )


def _text(logs: Mapping[tuple[str, str], Stream], name: str) -> str:
    stream = logs.get((SUBJECT, name))
    return "" if stream is None else stream.text
