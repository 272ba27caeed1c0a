"""The one reader of bundles. It parses each file once, on first use, within limits, and trusts none of them.

    bundle = Bundle(Path("evidence/PMAT-697/F-DISTILL-SMOKE-001/2026-11-20T201503Z-h200-3f2a9c"))
    print(bundle.record.verdict, len(bundle.mutants))

A bundle may come from an untrusted source. Links are not followed, pipes are not opened, and every read has a limit.
Reading does not verify the content; `harness.evidence.verification` does.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar, final

from harness.base import schemas, strictjson
from harness.base.schemas import MOST_PROBLEMS, DocumentError, Problem
from harness.base.strictjson import JsonObject
from harness.contract import ContractError, parse
from harness.evidence import bundle_layout as layout
from harness.evidence import manifest, untrusted
from harness.evidence.artifacts import Artifact
from harness.evidence.trial_files import MutantTrial, TrialLogError, parse_log
from harness.judging.counterexample import Counterexample
from harness.judging.judge import judge
from harness.judging.observation import Observation
from harness.judging.record import Record

__all__ = ["Bundle", "BundleError", "Series"]

T = TypeVar("T")
D = TypeVar("D")
Column = tuple[float | None, ...]
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class BundleError(ValueError):
    """A file of a bundle is missing, too large or of another format. The text names the file and the problem."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{file}: " + "; ".join(map(str, problems[:5]))[:600])
        self.file = file
        self.problems = tuple(problems)


@final
@dataclass(frozen=True)
class Series:
    """A CSV file as columns of numbers; None for a cell without a number."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))


class _Part(cached_property[T]):
    """A part of a bundle, read on first use. Problems of its file are raised as BundleError."""

    def __init__(self, file: str, read: Callable[[Bundle], T]) -> None:
        def part(bundle: Bundle) -> T:
            with _reading(file):
                return read(bundle)

        super().__init__(part)


@final
class Bundle:
    """A bundle's folder. Each property raises BundleError if its file is missing, too large or not of its format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._contents: dict[str, tuple[bytes, str]] = {}

    @cached_property
    def listing(self) -> untrusted.Listing:
        """Everything in the folder, including links and pipes.

        Raises:
            untrusted.TooLarge: more files, deeper folders or more bytes than any bundle has.
        """
        return untrusted.scan(self.path)

    def content(self, name: str) -> bytes:
        """Return the bytes of one of its documents."""
        return self._read(name)[0]

    def digest(self, name: str) -> str:
        """Return the sha256 of a file of any size. Only documents are kept in memory."""
        if name.startswith(f"{layout.ARTIFACTS}/") and name != layout.INDEX:
            with _reading(name):
                return untrusted.digest(self.path, name)
        return self._read(name)[1]

    def attempt(self, part: Callable[[Bundle], T], default: D) -> T | D:
        """Return a part of the bundle; the default if its file cannot be read."""
        try:
            return part(self)
        except BundleError:
            return default

    # Documents

    manifest = _Part(layout.MANIFEST, lambda self: manifest.parse(self.content(layout.MANIFEST)))
    """The sha256 of every file, by name."""

    @cached_property
    def attestation(self) -> bytes | None:
        """The signed envelope; None if the bundle is unsigned."""
        return self.content(layout.ATTESTATION) if self._has(layout.ATTESTATION) else None

    @cached_property
    def record(self) -> Record:
        """The claim, its verdict, and the outcomes that the verdict follows from."""
        document = self.document(layout.RECORD)
        current = Record.FORMAT
        stated = document.get("format") if isinstance(document, dict) else current
        if stated != current:
            newer = isinstance(stated, int) and stated > current
            remedy = "verify it with the later version of the harness that wrote it" if newer else "run the claim again"
            problem = Problem("/format", f"is of format {str(stated)[:40]}; this harness reads {current}", remedy)
            raise BundleError(layout.RECORD, [problem])
        with _reading(layout.RECORD):
            return Record.from_json(document)

    contract = _Part(
        layout.CONTRACT,
        lambda self: parse(self.document(layout.CONTRACT), self.path / layout.CONTRACT, self.content(layout.CONTRACT)),
    )
    """The contract as it was when the claim ran."""

    observation = _Part(layout.OBSERVATION, lambda self: Observation.from_json(self.document(layout.OBSERVATION)))
    """What the subject's trial measured."""

    environment: _Part[JsonObject] = _Part(
        layout.ENVIRONMENT, lambda self: schemas.loads("environment", self.content(layout.ENVIRONMENT))
    )
    """Host, software and variables, of the schema `environment`."""

    @cached_property
    def counterexample(self) -> Counterexample | None:
        """The case on which a search refuted the claim; None if there is none."""
        if not self._has(layout.COUNTEREXAMPLE):
            return None
        with _reading(layout.COUNTEREXAMPLE):
            return Counterexample.from_json(self.document(layout.COUNTEREXAMPLE))

    @cached_property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Everything that the falsifier left, copied or named by digest."""
        if not self._has(layout.INDEX):
            return ()
        with _reading(layout.INDEX):
            index = schemas.loads("artifacts", self.content(layout.INDEX))
            return tuple(map(Artifact.from_json, index["artifacts"]))

    # Trials

    metrics = _Part(layout.METRICS, lambda self: _columns(self.content(layout.METRICS), ("step", "seconds")))
    """The step series of the subject's trial."""

    telemetry = _Part(layout.TELEMETRY, lambda self: _columns(self.content(layout.TELEMETRY), ("seconds",)))
    """Samples of the machine's state during the subject's trial."""

    logs = _Part(layout.LOGS, lambda self: parse_log(self.content(layout.LOGS)))
    """The output of the trials, by trial (`subject` or `mutant <id>`) and stream. Empty streams are left out."""

    @cached_property
    def mutants(self) -> Mapping[str, MutantTrial]:
        """The trial of every mutant that ran, by id."""
        trials: dict[str, MutantTrial] = {}
        problems: list[Problem] = []
        lines = self.content(layout.MUTANTS).split(b"\n")
        if lines.pop():
            problems.append(Problem("", "does not end in a newline: it may have been cut short"))
        for number, line in enumerate(lines):
            if len(problems) >= MOST_PROBLEMS:
                break
            try:
                trial = _mutant(line, number)
            except DocumentError as error:
                problems += error.problems
                continue
            if trials.setdefault(trial.id, trial) is not trial:
                problems.append(Problem(f"/{number}", f"has the trial of {trial.id} a second time"))
        if problems:
            raise BundleError(layout.MUTANTS, problems)
        return trials

    mutant_judgments = _Part(
        layout.MUTANTS,
        lambda self: {name: judge(self.contract, trial.observation) for name, trial in self.mutants.items()},
    )
    """A new judgment of each mutant's observation by the bundle's contract, by id."""

    # Reading

    def document(self, name: str) -> Any:
        """Return a JSON file as it is, not checked against a schema."""
        with _reading(name):
            return strictjson.loads(self.content(name))

    def _has(self, name: str) -> bool:
        return (self.path / name).is_symlink() or (self.path / name).exists()

    def _read(self, name: str) -> tuple[bytes, str]:
        if name not in self._contents:
            with _reading(name):
                self._contents[name] = untrusted.read(self.path, name)
        return self._contents[name]


@contextmanager
def _reading(file: str) -> Iterator[None]:
    """Raise problems of a file as BundleError."""
    try:
        yield
    except (ContractError, DocumentError, strictjson.JsonError) as error:
        raise BundleError(file, error.problems) from error
    except untrusted.TooLarge as error:
        raise BundleError(file, [Problem("", f"{error}; it was not read")]) from error
    except OSError as error:
        raise BundleError(file, [Problem("", f"cannot be read: {error.strerror or error}")]) from error
    except (manifest.ManifestError, TrialLogError, _CsvError, csv.Error, UnicodeDecodeError) as error:
        raise BundleError(file, [Problem("", str(error))]) from error


def _mutant(line: bytes, number: int) -> MutantTrial:
    """Return the trial on a line of mutants.jsonl. Raises DocumentError; the pointers begin with the mutant's id."""
    try:
        document = strictjson.loads(line)
    except strictjson.JsonError as error:
        raise DocumentError(error.problems).within(number) from error
    named = document.get("id") if isinstance(document, dict) else None
    try:
        return MutantTrial.from_json(document)
    except DocumentError as error:
        raise error.within(named if isinstance(named, str) and _ID.fullmatch(named) else number) from error


class _CsvError(ValueError):
    """A file is not a series."""


def _columns(content: bytes, leading: Sequence[str]) -> Series:
    """Parse a series. The first columns must be `leading` and hold numbers; a falsifier names the others freely."""
    lines = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    header = next(lines, [])
    if header[: len(leading)] != list(leading):
        raise _CsvError(f"the first columns are {', '.join(header[: len(leading)])[:200]}, not {', '.join(leading)}")
    if len(set(header)) != len(header):
        raise _CsvError("a column occurs twice")
    columns: list[list[float | None]] = [[] for _ in header]
    for row in lines:
        if len(row) != len(header):
            raise _CsvError(f"line {lines.line_num} has {len(row)} cells, the header {len(header)}")
        for column, name, cell in zip(columns, header, row, strict=True):
            number = _number(cell)
            if number is None and cell and name in leading:
                raise _CsvError(f"line {lines.line_num}: {name} is {cell[:40]!r}, not a number")
            column.append(number)
    return Series({name: tuple(column) for name, column in zip(header, columns, strict=True)})


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None
