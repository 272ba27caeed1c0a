"""A bundle's files, read once, for whoever shows them: what is missing or broken is said, and the rest is shown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.contract import Contract, ContractError, parse
from harness.evidence import reader
from harness.evidence.layout import (
    CONTRACT,
    COUNTEREXAMPLE,
    ENVIRONMENT,
    INDEX,
    METRICS,
    OBSERVATION,
    RECORD,
    STDERR,
    STDOUT,
    TELEMETRY,
    TRIAL,
    mutant_file,
)
from harness.judging.observation import Observation, ObservationError
from harness.judging.record import Record, RecordError
from harness.search.counterexample import COUNTEREXAMPLE as KILLER
from harness.search.counterexample import Counterexample, CounterexampleError

__all__ = ["Contents", "ContentsError", "Series"]


class ContentsError(ValueError):
    """A folder has no record that can be read, so there is nothing to show; the text says why."""


Column = tuple[float | None, ...]


@dataclass(frozen=True)
class Series:
    """A CSV file as columns of numbers; None where a cell holds none."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Contents:
    """What a page can show of a bundle."""

    record: Record
    contract: Contract | None
    observation: Observation | None
    trial: Mapping[str, Any]
    """How the subject's trial was watched (trial.json)."""
    metrics: Series
    telemetry: Series
    stdout: str
    stderr: str
    mutants: Mapping[str, Observation]
    """The observations of the mutants that ran, by id."""
    environment: Mapping[str, Any]
    artifacts: tuple[Mapping[str, Any], ...]
    counterexample: Counterexample | None
    """The case on which a falsifier that searches refuted the claim."""
    killers: Mapping[str, Counterexample]
    """The case that killed a mutant, by its id."""
    problems: tuple[str, ...]
    """Which files could not be read, and why."""

    @classmethod
    def read(cls, folder: Path) -> Contents:
        """Read a bundle's folder, or one that is being written and lacks only its views and manifest.

        Raises:
            ContentsError: there is no record, or it cannot be read.
        """
        try:
            files = _Files(folder)
            document = files.json(RECORD)
        except (OSError, ValueError) as error:
            raise ContentsError(f"{RECORD}: {error}") from error
        try:
            record = Record.from_json(document)
        except RecordError as error:
            raise ContentsError(f"{RECORD}: {error}") from error
        observations = {
            mutant.id: files.observation(mutant_file(mutant.id, OBSERVATION))
            for mutant in record.mutants
            if mutant_file(mutant.id, OBSERVATION) in files
        }
        killers = {mutant.id: files.counterexample(mutant_file(mutant.id, KILLER)) for mutant in record.mutants}
        index = files.optional(INDEX, {})
        entries = index.get("artifacts", ()) if isinstance(index, Mapping) else ()
        return cls(
            record=record,
            contract=files.contract(CONTRACT),
            observation=files.observation(OBSERVATION),
            trial=_mapping(files.optional(TRIAL, {})),
            metrics=files.series(METRICS),
            telemetry=files.series(TELEMETRY),
            stdout=files.text(STDOUT),
            stderr=files.text(STDERR),
            mutants={name: one for name, one in observations.items() if one is not None},
            environment=_mapping(files.optional(ENVIRONMENT, {})),
            artifacts=tuple(entry for entry in entries if isinstance(entry, Mapping)),
            counterexample=files.counterexample(COUNTEREXAMPLE),
            killers={name: case for name, case in killers.items() if case is not None},
            problems=tuple(files.problems),
        )


class _Files:
    """The regular files of a folder; no link on the way to one is followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = reader.scan(folder).files
        self.problems: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def bytes(self, name: str) -> bytes:
        if name not in self._names:
            raise FileNotFoundError("is not there")
        return reader.read(self._folder, name)[0]

    def json(self, name: str) -> Any:
        return strictjson.loads(self.bytes(name))

    def optional(self, name: str, default: Any) -> Any:
        try:
            return self.json(name) if name in self else default
        except (OSError, ValueError) as error:
            self._note(name, error)
            return default

    def contract(self, name: str) -> Contract | None:
        try:
            content = self.bytes(name)
            return parse(strictjson.loads(content), self._folder / name, content)
        except (OSError, ContractError, ValueError) as error:
            self._note(name, error)
            return None

    def observation(self, name: str) -> Observation | None:
        try:
            return Observation.from_json(self.json(name))
        except (OSError, ObservationError, ValueError) as error:
            self._note(name, error)
            return None

    def counterexample(self, name: str) -> Counterexample | None:
        try:
            return Counterexample.from_json(self.json(name)) if name in self else None
        except (OSError, CounterexampleError, ValueError) as error:
            self._note(name, error)
            return None

    def series(self, name: str) -> Series:
        try:
            return _series(self.bytes(name))
        except (OSError, ValueError, csv.Error) as error:
            self._note(name, error)
            return Series()

    def text(self, name: str) -> str:
        try:
            return self.bytes(name).decode("utf-8", errors="backslashreplace")
        except (OSError, ValueError) as error:
            self._note(name, error)
            return ""

    def _note(self, name: str, error: Exception) -> None:
        self.problems.append(f"{name}: {str(error)[:500]}")


def _series(content: bytes) -> Series:
    rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
    header = rows[0] if rows else []
    columns = zip(*(row for row in rows[1:] if len(row) == len(header)), strict=True)
    cells = dict(zip(header, columns, strict=False))
    return Series({name: tuple(map(_number, cells.get(name, ()))) for name in header})


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
