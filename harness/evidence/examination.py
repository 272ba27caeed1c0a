"""One bundle looked at from all sides: its files, its formats, and its judgment made again.

This runs inside a process of its own (see `harness.evidence.verify`): nothing here waits or follows, but a bundle that
somebody made for the purpose can still ask for more memory or time than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.base import schemas, strictjson
from harness.base.vocabulary import Outcome
from harness.contract import Contract, ContractError, parse
from harness.contract.builtin import COMPLETES
from harness.contract.cel_engine import engine
from harness.evidence import attestation, manifest, reader
from harness.evidence.agreement import agreement
from harness.evidence.archive import UNPACKING
from harness.evidence.clock import clock_ahead
from harness.evidence.findings import Code, Finding, Severity, Verification
from harness.evidence.layout import (
    ARTIFACTS,
    ATTESTATION,
    CLAIM_FILES,
    CONTRACT,
    COUNTEREXAMPLE,
    ENVIRONMENT,
    INDEX,
    MANIFEST,
    METRICS,
    MUTANTS,
    OBSERVATION,
    RECORD,
    TELEMETRY,
    TRIAL,
    TRIAL_FILES,
    UNFINISHED,
    VIEWS,
    mutant_file,
)
from harness.evidence.rejudge import rejudge
from harness.evidence.series import csv_problem
from harness.evidence.staleness import Origin, coverage
from harness.judging.observation import Observation, ObservationError
from harness.judging.record import FORMAT, Record, RecordError
from harness.search.counterexample import COUNTEREXAMPLE as KILLER
from harness.search.counterexample import Counterexample, CounterexampleError, judge_case

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

__all__ = ["MOST_FINDINGS", "examine", "prepare"]

MOST_FINDINGS = 200
_PER_FILE = 20

T = TypeVar("T")


def prepare() -> None:
    """Load what examining needs, so that processes forked from this one find it loaded."""

    engine().compile("true")
    for name in schemas.NAMES:
        schemas.problems(name, {})


def examine(path: Path, trusted: Mapping[str, SSlibKey]) -> tuple[Verification, Origin | None]:
    """Everything that can be said of a bundle by itself, and where it says that it comes from.

    Args:
        path: resolved: no link on the way.
        trusted: public keys by id.
    """
    examination = _Examination(path, trusted)
    try:
        examination.run()
    except Exception as error:  # a bundle made to break us is unsound; what was found until then stays
        examination.note(Code.INVALID, "", f"cannot be verified: {type(error).__name__}: {str(error)[:300]}")
    return examination.result(), examination.origin


def _obstacle(path: Path) -> str:
    """Why there is no bundle to look at here, by the folder's name and kind; empty where there may be one."""
    if path.name.startswith(UNPACKING):
        return "is being unpacked, or was when that was interrupted; the next `harness unpack` there removes it then"
    if path.name.startswith(UNFINISHED):
        return "was never finished: it is being written, or its writer died; the claim's next run removes it then"
    return "" if path.is_dir() else "is no folder"


class _RefusedError(Exception):
    """A document is not of its schema."""

    def __init__(self, problems: list[schemas.Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


class _Examination:
    def __init__(self, path: Path, trusted: Mapping[str, SSlibKey]) -> None:
        self.origin: Origin | None = None
        self._path = path
        self._trusted = trusted
        self._found: list[Finding] = []
        self._known = Verification(path, ())
        self._listing = reader.Listing()
        self._contents: dict[str, bytes] = {}
        self._plain: dict[str, Any] = {}

    def note(self, code: Code, file: str, message: str, pointer: str = "") -> None:
        self._found.append(Finding(code, file, message, pointer))

    def result(self) -> Verification:
        found = self._found
        if len(found) > MOST_FINDINGS:
            rest = len(found) - MOST_FINDINGS
            found = [*found[:MOST_FINDINGS], Finding(found[MOST_FINDINGS].code, "", f"and {rest} more findings")]
        remarks = tuple(one for one in found if one.code.severity is Severity.REMARK)
        findings = tuple(one for one in found if one.code.severity is Severity.UNSOUND)
        # A signature is over the manifest: where the files are not those that it lists, or do not bear out what they
        # say, whoever signed vouches for another bundle than this.
        signed_by = () if findings else self._known.signed_by
        return replace(self._known, findings=findings, remarks=remarks, signed_by=signed_by)

    def run(self) -> None:
        obstacle = _obstacle(self._path)
        if obstacle:
            self.note(Code.INCOMPLETE, "", obstacle)
            return
        for part in self._path.parent.parts:
            if part.startswith(UNFINISHED):
                self.note(Code.INCOMPLETE, "", f"lies in {part}: it was never finished")
        try:
            self._listing = reader.scan(self._path)
        except reader.TooLarge as error:
            self.note(Code.INVALID, "", f"{error}; it was not read")
            return
        for name, reason in self._listing.refused.items():
            self.note(Code.TAMPERED, name, reason)
        self._check_manifest(self._digests())
        mutants = self._check_places()
        self._judge(mutants)

    # Files

    def _digests(self) -> dict[str, str]:
        """The sha256 of every file; the content of those that will be parsed is kept."""
        digests: dict[str, str] = {}
        for name in sorted(self._listing.files):
            try:
                if name.endswith((".json", ".csv")) or name in (MANIFEST, ATTESTATION):
                    self._contents[name], digests[name] = reader.read(self._path, name)
                else:
                    digests[name] = reader.digest(self._path, name)
            except reader.TooLarge as error:
                self.note(Code.INVALID, name, f"{error}; it was not read")
            except OSError as error:
                self.note(Code.INVALID, name, f"cannot be read: {error.strerror or error}")
        return digests

    def _check_manifest(self, digests: dict[str, str]) -> None:
        if MANIFEST not in self._listing.files:
            self.note(Code.INCOMPLETE, MANIFEST, "is missing: the bundle was not sealed, or is not one")
            return
        try:
            sealed = manifest.parse(self._contents.get(MANIFEST, b""))
        except manifest.ManifestError as error:
            self.note(Code.INVALID, MANIFEST, str(error))
            return
        self._known = replace(self._known, manifest=digests.get(MANIFEST))
        for name in sealed:
            if name not in self._listing.files:
                self.note(Code.TAMPERED, name, "is missing: the manifest lists it")
            elif name in digests and digests[name] != sealed[name]:
                self.note(Code.TAMPERED, name, "was changed: its sha256 is not the manifest's")
        for name in self._listing.files:
            if name not in sealed and name not in (MANIFEST, ATTESTATION):
                self.note(Code.TAMPERED, name, "was added: the manifest does not list it")
        for name in self._listing.empty:
            self.note(Code.TAMPERED, name, "was added: an empty folder, and a bundle has none")

    def _check_places(self) -> list[str]:
        """Every file is one that a bundle has, and every bundle has them all; returns the mutants with a folder."""
        mutants: dict[str, None] = {}
        for name in sorted(self._listing.files):
            parts = name.split("/")
            if parts[0] == MUTANTS and len(parts) == 3 and parts[2] in (*TRIAL_FILES, KILLER):
                mutants[parts[1]] = None
            elif parts[0] != ARTIFACTS and name not in (*CLAIM_FILES, *TRIAL_FILES, *VIEWS, MANIFEST, ATTESTATION):
                self.note(Code.INVALID, name, "is no file of a bundle")
        wanted = [*CLAIM_FILES, *TRIAL_FILES]
        wanted += [mutant_file(mutant, name) for mutant in mutants for name in TRIAL_FILES]
        for name in wanted:
            if name not in self._listing.files:
                self.note(Code.INCOMPLETE, name, "is missing: every bundle has it")
        self._check_artifacts()
        for mutant in ("", *mutants):
            self._check_series(f"{MUTANTS}/{mutant}/" if mutant else "")
        self._plain_document(ENVIRONMENT, "environment")
        return list(mutants)

    def _check_series(self, prefix: str) -> None:
        self._plain_document(prefix + TRIAL, "trial")
        for name, columns in ((METRICS, ("step", "seconds")), (TELEMETRY, ("seconds",))):
            content = self._contents.get(prefix + name)
            problem = None if content is None else csv_problem(content, columns)
            if problem is not None:
                self.note(Code.INVALID, prefix + name, problem)

    def _check_artifacts(self) -> None:
        there = {name for name in self._listing.files if name.startswith(f"{ARTIFACTS}/")} - {INDEX}
        index = self._plain_document(INDEX, "artifacts")
        copied = {
            f"{ARTIFACTS}/{entry['name']}" for entry in (index or {}).get("artifacts", []) if entry["copied"] is True
        }
        if INDEX not in self._listing.files and there:
            self.note(Code.INCOMPLETE, INDEX, "is missing: it lists the artifacts")
            return
        if index is None:
            return
        for name in sorted(there - copied):
            self.note(Code.INVALID, INDEX, f"does not list {name}")
        for name in sorted(copied - there):
            self.note(Code.INCOMPLETE, name, "is missing: the index lists it as copied")

    # Documents

    def _document(self, name: str, kind: str, build: Callable[[Any], T]) -> T | None:
        """What `build` makes of a JSON file of this kind; None, noted, where the file is not of its format.

        `build` validates: it raises ContractError, RecordError, ObservationError, CounterexampleError or _RefusedError.
        """
        content = self._contents.get(name)
        if content is None:
            return None  # noted as missing or unreadable already
        try:
            document = strictjson.loads(content)
        except strictjson.JsonError as error:
            self.note(Code.INVALID, name, str(error))
            return None
        if kind == "record" and isinstance(document, dict) and document.get("format") != FORMAT:
            found = document.get("format")
            newer = isinstance(found, int) and found > FORMAT
            remedy = "a later version of the harness wrote it; verify it with that" if newer else "there is none such"
            self.note(Code.INVALID, name, f"is of format {str(found)[:40]}: {remedy}", "/format")
            return None
        problems: list[schemas.Problem]
        try:
            return build(document)
        except (ContractError, _RefusedError) as error:
            problems = error.problems
        except (RecordError, ObservationError, CounterexampleError):
            problems = schemas.problems(kind, document)  # again, for the pointers, which their texts lack
        for problem in problems[:_PER_FILE]:
            remedy = f" ({problem.remedy})" if problem.remedy else ""
            self.note(Code.INVALID, name, f"{problem.message}{remedy}"[:600], problem.pointer)
        return None

    def _plain_document(self, name: str, kind: str) -> Any:
        def build(document: Any) -> Any:
            problems = schemas.problems(kind, document)
            if problems:
                raise _RefusedError(problems)
            return document

        self._plain[name] = self._document(name, kind, build)
        return self._plain[name]

    def _judge(self, folders: list[str]) -> None:
        record = self._document(RECORD, "record", Record.from_json)
        if record is not None:
            self.origin = Origin.of(record)
            self._check_folder(record)
            self._found += agreement(record, self._plain.get(ENVIRONMENT), self._plain.get(TRIAL))
            device = f"{record.device.type} {record.device.name}"
            self._known = replace(
                self._known, id=record.id, issue=record.issue, run=record.run, profile=record.profile, device=device
            )
            listed = {mutant.id for mutant in record.mutants}
            for mutant in folders:
                if mutant not in listed:
                    self.note(Code.REJUDGED_DIFFERENTLY, f"{MUTANTS}/{mutant}", "the record does not list this mutant")
        contract = self._document(CONTRACT, "contract", self._contract)
        observation = self._document(OBSERVATION, "observation", Observation.from_json)
        found = {"": self._document(COUNTEREXAMPLE, "counterexample", Counterexample.from_json)}
        for mutant in folders:
            found[mutant] = self._document(mutant_file(mutant, KILLER), "counterexample", Counterexample.from_json)
        mutants = {
            mutant: self._document(mutant_file(mutant, OBSERVATION), "observation", Observation.from_json)
            for mutant in folders
        }
        if record is not None and contract is not None:
            self._found += (*coverage(record, contract.subject), *clock_ahead(record, datetime.now(UTC)))
            self._check_attestation(record, contract)
        if record is None or contract is None or observation is None:
            return
        seen = {mutant: one for mutant, one in mutants.items() if one is not None}
        again = rejudge(record, contract, observation, seen)
        for mutant, counterexample in found.items():
            trial = seen.get(mutant) if mutant else observation
            if counterexample is not None and trial is not None:
                self._check_counterexample(mutant, counterexample, contract, trial)
        # A file of which it was told that it is missing, or no observation, is not told of again.
        told = {finding.file for finding in self._found}
        self._found += [one for one in again.findings if one.code is not Code.INCOMPLETE or one.file not in told]
        self._known = replace(
            self._known,
            verdict=again.claim.verdict,
            reason=again.claim.reason,
            proven=again.claim.proven,
            overrides=record.overrides or None,
            subject=record.judged if record.subject != contract.subject else None,
            mutants={mutant: str(fate) for mutant, fate in again.mutants.items()},
        )

    def _check_counterexample(
        self, mutant: str, counterexample: Counterexample, contract: Contract, trial: Observation
    ) -> None:
        """It violates the clauses that it says it does, by what was measured on it."""
        judged = judge_case(contract, counterexample.measurements, trial.parameters, trial.device)
        failed = {one.id for one in judged if one.outcome is Outcome.FAIL}
        for clause in sorted(set(counterexample.clauses) ^ failed):
            if clause != COMPLETES:
                says = "violates" if clause in counterexample.clauses else "does not violate"
                message = f"says that it {says} {clause}; judged now, that is not so"
                file = mutant_file(mutant, KILLER) if mutant else COUNTEREXAMPLE
                self.note(Code.REJUDGED_DIFFERENTLY, file, message, "/clauses")

    def _check_attestation(self, record: Record, contract: Contract) -> None:
        if ATTESTATION not in self._listing.files:
            self.note(Code.UNSIGNED, "", f"there is no {ATTESTATION}: nobody vouches for what it says")
        elif ATTESTATION in self._contents and MANIFEST in self._contents:  # else that was noted already
            content, sealed = self._contents[ATTESTATION], self._contents[MANIFEST]
            checked = attestation.check(content, record, contract.subject, sealed, self._trusted)
            self._found += checked.findings
            self._known = replace(self._known, signed_by=checked.signed_by)

    def _contract(self, document: Any) -> Contract:
        return parse(document, self._path / CONTRACT, self._contents[CONTRACT])

    def _check_folder(self, record: Record) -> None:
        """A bundle filed under another claim's name would speak for it; one moved elsewhere speaks for itself."""
        if not self._path.parent.name.startswith("F-"):
            return
        names = dict(zip(("run", "id", "issue"), reversed(self._path.parts), strict=False))
        for field, name in names.items():
            if getattr(record, field) != name:
                message = f"is {getattr(record, field)!r}, but the bundle lies in the folder {name!r}"
                self.note(Code.REJUDGED_DIFFERENTLY, RECORD, message, f"/{field}")
