"""The one reader of bundles. It parses each file once, on first use, within limits, and trusts none of them.

    bundle = Bundle(Path("evidence/PMAT-697/F-DISTILL-SMOKE-001/2026-11-20T201503Z-h200-3f2a9c"))
    print(bundle.record.verdict, len(bundle.mutants))

A bundle may come from a stranger. Links are not followed, pipes are not opened, and every read has a limit.
Reading does not verify the content; `harness.evidence.verification` does.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar, final

from harness.base import schemas, strictjson
from harness.base.strictjson import JsonObject
from harness.contract import Contract, ContractError, parse
from harness.evidence import bundle_layout as layout
from harness.evidence import manifest, untrusted
from harness.evidence.artifacts import Artifact
from harness.evidence.endable import Unjudged, judged
from harness.evidence.trial_files import Stream, TrialLogError, parse_log
from harness.judging.judge import Judgment
from harness.judging.observation import Observation, ObservationError
from harness.judging.record import FORMAT, Record, RecordError
from harness.search.counterexample import Counterexample, CounterexampleError

__all__ = ["Bundle", "BundleError", "MutantTrial", "Series"]

T = TypeVar("T")
D = TypeVar("D")
Column = tuple[float | None, ...]
_LEADING: Final = {layout.METRICS: ("step", "seconds"), layout.TELEMETRY: ("seconds",)}
"""The first columns of each series, which hold numbers."""
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class BundleError(ValueError):
    """A file of a bundle is missing, too large or not of its format; the text names the file and what is wrong."""

    def __init__(self, file: str, problems: Sequence[schemas.Problem]) -> None:
        super().__init__(f"{file}: " + "; ".join(map(str, problems[:5]))[:600])
        self.file = file
        self.problems = tuple(problems)


@final
@dataclass(frozen=True)
class Series:
    """A CSV file as columns of numbers; None for a cell that holds none."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))


@final
@dataclass(frozen=True)
class MutantTrial:
    """One line of mutants.jsonl: what the trial of one mutant measured, and how it was watched."""

    id: str
    observation: Observation
    failed: tuple[str, ...]
    """The clauses that it failed. Those that the contract names come first."""
    left_out: tuple[str, ...]
    """Measurements that are not in the observation, because no clause that killed the mutant reads them."""
    series: JsonObject
    """The number of rows recorded, the peaks of the telemetry, and why readings are missing."""
    counterexample: Counterexample | None
    """The case that killed it, from a search."""


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
            return self._opened(name, lambda: untrusted.digest(self.path, name))
        return self._read(name)[1]

    def attempt(self, part: Callable[[Bundle], T], default: D) -> T | D:
        """Return a part of the bundle; the default if its file cannot be read."""
        try:
            return part(self)
        except BundleError:
            return default

    # Documents

    @cached_property
    def manifest(self) -> Mapping[str, str]:
        """The sha256 of every file, by name."""
        try:
            return manifest.parse(self.content(layout.MANIFEST))
        except manifest.ManifestError as error:
            raise BundleError(layout.MANIFEST, [schemas.Problem("", str(error))]) from error

    @cached_property
    def attestation(self) -> bytes | None:
        """The signed envelope; None if the bundle is unsigned."""
        return self.content(layout.ATTESTATION) if self._has(layout.ATTESTATION) else None

    @cached_property
    def record(self) -> Record:
        """The claim, its verdict, and the outcomes that the verdict follows from."""
        document = self.document(layout.RECORD)
        found = document.get("format") if isinstance(document, dict) else FORMAT
        if found != FORMAT:
            newer = isinstance(found, int) and found > FORMAT
            remedy = "verify it with the later version of the harness that wrote it" if newer else "run the claim again"
            problem = schemas.Problem("/format", f"is of format {str(found)[:40]}; this harness reads {FORMAT}", remedy)
            raise BundleError(layout.RECORD, [problem])
        return self._built(layout.RECORD, "record", Record.from_json)

    @cached_property
    def contract(self) -> Contract:
        """The contract as it was when the claim ran."""

        def build(document: Any) -> Contract:
            return parse(document, self.path / layout.CONTRACT, self.content(layout.CONTRACT))

        return self._built(layout.CONTRACT, "contract", build)

    @cached_property
    def observation(self) -> Observation:
        """What the subject's trial measured."""
        return self._built(layout.OBSERVATION, "observation", Observation.from_json)

    @cached_property
    def environment(self) -> JsonObject:
        """Host, software and variables, of the schema `environment`."""
        environment: JsonObject = self._plain(layout.ENVIRONMENT, "environment")
        return environment

    @cached_property
    def counterexample(self) -> Counterexample | None:
        """The case on which a search refuted the claim; None if there is none."""
        if not self._has(layout.COUNTEREXAMPLE):
            return None
        return self._built(layout.COUNTEREXAMPLE, "counterexample", Counterexample.from_json)

    @cached_property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Everything that the falsifier left, copied or named by digest."""
        if not self._has(layout.INDEX):
            return ()
        return tuple(Artifact(**entry) for entry in self._plain(layout.INDEX, "artifacts")["artifacts"])

    # Trials

    @cached_property
    def metrics(self) -> Series:
        """The step series of the subject's trial."""
        return self._series(layout.METRICS)

    @cached_property
    def telemetry(self) -> Series:
        """How the machine behaved during the subject's trial."""
        return self._series(layout.TELEMETRY)

    @cached_property
    def logs(self) -> Mapping[tuple[str, str], Stream]:
        """The output of the trials, by trial (`subject` or `mutant <id>`) and stream. Empty streams are left out."""
        try:
            return parse_log(self.content(layout.LOGS))
        except TrialLogError as error:
            raise BundleError(layout.LOGS, [schemas.Problem("", str(error))]) from error

    @cached_property
    def mutants(self) -> Mapping[str, MutantTrial]:
        """The trial of every mutant that ran, by id."""
        trials: dict[str, MutantTrial] = {}
        found: list[schemas.Problem] = []
        lines = self.content(layout.MUTANTS).split(b"\n")
        if lines.pop():
            found.append(schemas.Problem("", "does not end in a newline: it may have been cut short"))
        for number, line in enumerate(lines):
            trial, problems = _mutant(line, number)
            found += problems
            if trial is not None and trial.id in trials:
                found.append(schemas.Problem(f"/{number}", f"has the trial of {trial.id} a second time"))
            elif trial is not None:
                trials[trial.id] = trial
        if found:
            raise BundleError(layout.MUTANTS, found)
        return trials

    @cached_property
    def mutant_judgments(self) -> Mapping[str, Judgment]:
        """Each mutant's observation, judged now by the bundle's contract, by id."""
        try:
            return {name: judged(self.contract, trial.observation) for name, trial in self.mutants.items()}
        except Unjudged as error:
            raise BundleError(layout.MUTANTS, [schemas.Problem("", f"is not judged: this {error}")]) from error

    # Reading

    def document(self, name: str) -> Any:
        """Return a JSON file as it is, not checked against a schema."""
        try:
            return strictjson.loads(self.content(name))
        except strictjson.JsonError as error:
            raise BundleError(name, [schemas.Problem(error.pointer, error.message, error.remedy)]) from error

    def _has(self, name: str) -> bool:
        return (self.path / name).is_symlink() or (self.path / name).exists()

    def _read(self, name: str) -> tuple[bytes, str]:
        if name not in self._contents:
            self._contents[name] = self._opened(name, lambda: untrusted.read(self.path, name))
        return self._contents[name]

    def _opened(self, name: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except untrusted.TooLarge as error:
            raise BundleError(name, [schemas.Problem("", f"{error}; it was not read")]) from error
        except OSError as error:
            raise BundleError(name, [schemas.Problem("", f"cannot be read: {error.strerror or error}")]) from error

    def _built(self, name: str, kind: str, build: Callable[[Any], T]) -> T:
        document = self.document(name)
        try:
            return build(document)
        except ContractError as error:
            raise BundleError(name, error.problems) from error
        except (RecordError, ObservationError, CounterexampleError) as error:
            # These errors have no pointers. The schema's problems have.
            found = schemas.problems(kind, document) or [schemas.Problem("", str(error))]
            raise BundleError(name, found) from error

    def _plain(self, name: str, kind: str) -> Any:
        document = self.document(name)
        if found := schemas.problems(kind, document):
            raise BundleError(name, found)
        return document

    def _series(self, name: str) -> Series:
        try:
            return _columns(self.content(name), _LEADING[name])
        except (UnicodeDecodeError, csv.Error, _CsvError) as error:
            raise BundleError(name, [schemas.Problem("", str(error))]) from error


def _mutant(line: bytes, number: int) -> tuple[MutantTrial | None, list[schemas.Problem]]:
    """Return the trial on a line of mutants.jsonl, or its problems. Their pointers begin with the mutant's id."""
    try:
        document = strictjson.loads(line)
    except strictjson.JsonError as error:
        return None, [schemas.Problem(f"/{number}{error.pointer}", error.message, error.remedy)]
    named = document.get("id") if isinstance(document, dict) else None
    where = f"/{named}" if isinstance(named, str) and _ID.fullmatch(named) else f"/{number}"
    found = _within(where, schemas.problems("mutant", document))
    if found:
        return None, found
    observation, case = document["observation"], document["counterexample"]
    found = _within(f"{where}/observation", schemas.problems("observation", observation))
    if case is not None:
        found += _within(f"{where}/counterexample", schemas.problems("counterexample", case))
    if found:
        return None, found
    return MutantTrial(
        id=document["id"],
        observation=Observation.from_json(observation),
        failed=tuple(document["failed"]),
        left_out=tuple(document["left_out"]),
        series=document["series"],
        counterexample=None if case is None else Counterexample.from_json(case),
    ), []


def _within(where: str, found: Sequence[schemas.Problem]) -> list[schemas.Problem]:
    return [schemas.Problem(where + one.pointer, one.message, one.remedy) for one in found]


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
