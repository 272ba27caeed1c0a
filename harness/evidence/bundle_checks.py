"""All checks of one bundle: its files, their formats, and a second judgment.

The checks run in a separate process (see `harness.evidence.verification`). Reading does not block and does not follow
links, but a hostile bundle can still need more memory or time than the machine has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from harness.base import schemas
from harness.base.device import Device
from harness.base.shortening import described
from harness.base.strictjson import JsonObject, pointer
from harness.base.vocabulary import Outcome
from harness.contract import Contract
from harness.contract.expression import engine
from harness.contract.model import COMPLETES
from harness.evidence import bundle_layout as layout
from harness.evidence import untrusted
from harness.evidence.artifacts import Artifact
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.findings import Code, Detail, Finding, Severity, Verification, finding
from harness.evidence.rejudge import rejudge
from harness.evidence.signing import Key, signing
from harness.evidence.staleness import clock_ahead, coverage
from harness.evidence.trial_files import SUBJECT, MutantTrial, trial_of
from harness.judging.counterexample import Counterexample, judge_case
from harness.judging.observation import Observation
from harness.judging.record import Record

__all__ = ["MOST_FINDINGS", "check", "prepare"]

MOST_FINDINGS = 200
_PER_FILE = 20

T = TypeVar("T")


def prepare(bundles: Iterable[Path] = ()) -> None:
    """Load the modules and contracts for the checks of these bundles before processes are forked."""
    engine().compile("true")
    for name in schemas.NAMES:
        schemas.problems(name, {})
    if any(os.path.lexists(bundle / layout.ATTESTATION) for bundle in bundles):
        signing()


def check(path: Path, trusted: Mapping[str, Key]) -> tuple[Verification, Record | None]:
    """Check a bundle without its project. Returns the findings, and the record if it can be read.

    Args:
        path: the bundle's folder, resolved: no part of it is a link.
        trusted: public keys by id.
    """
    checks = _Checks(path, trusted)
    try:
        checks.run()
    except Exception as error:  # a bundle that breaks the checks is unsound; earlier findings stay
        checks.note(Code.INVALID, Detail.CHECK_FAILED, error=described(error)[:300])
    return checks.result(), checks.record


class _Checks:
    def __init__(self, path: Path, trusted: Mapping[str, Key]) -> None:
        self.record: Record | None = None
        self._path = path
        self._bundle = Bundle(path)
        self._trusted = trusted
        self._found: list[Finding] = []
        self._known = Verification(path, ())
        self._files: Mapping[str, int] = {}
        self._noted: set[str] = set()
        """Files that are missing or unreadable. Their content gets no findings."""

    def note(self, code: Code, detail: Detail, file: str = "", where: str = "", **fields: Any) -> None:
        self._found.append(finding(code, detail, file, where, **fields))

    def result(self) -> Verification:
        listed, omitted = self._found[:MOST_FINDINGS], self._found[MOST_FINDINGS:]
        if omitted:
            listed.append(finding(omitted[0].code, Detail.MORE, count=len(omitted)))
        remarks = tuple(item for item in listed if item.code.severity is Severity.REMARK)
        findings = tuple(item for item in listed if item.code.severity is Severity.UNSOUND)
        # A signature covers the manifest. If the files differ from the manifest or contradict each other, the signer
        # vouched for another bundle.
        signed_by = () if findings else self._known.signed_by
        return replace(self._known, findings=findings, remarks=remarks, signed_by=signed_by)

    def run(self) -> None:
        for prefix, obstacle in ((layout.UNPACKING, Detail.BEING_UNPACKED), (layout.UNFINISHED, Detail.UNFINISHED)):
            if self._path.name.startswith(prefix):
                self.note(Code.INCOMPLETE, obstacle)
                return
        if not self._path.is_dir():
            self.note(Code.INCOMPLETE, Detail.NO_FOLDER)
            return
        for part in self._path.parent.parts:
            if part.startswith(layout.UNFINISHED):
                self.note(Code.INCOMPLETE, Detail.IN_UNFINISHED, folder=part)
        try:
            listing = self._bundle.listing
        except untrusted.TooLarge as error:
            self.note(Code.INVALID, Detail.TOO_LARGE, text=str(error))
            return
        self._files = listing.files
        for name, reason in listing.refused.items():
            self.note(Code.TAMPERED, Detail.REFUSED_FILE, name, text=reason)
        self._check_manifest(self._digests(), listing.empty)
        self._check_places()
        self._check_artifacts()
        self._judge()

    # Files

    def _digests(self) -> dict[str, str]:
        """Return the sha256 of every file that can be read."""
        digests: dict[str, str] = {}
        for name in sorted(self._files):
            try:
                digests[name] = self._bundle.digest(name)
            except BundleError as error:
                self._note_problems(error)
                self._noted.add(name)
        return digests

    def _check_manifest(self, digests: Mapping[str, str], empty: Sequence[str]) -> None:
        if layout.MANIFEST not in self._files:
            self.note(Code.INCOMPLETE, Detail.NO_MANIFEST, layout.MANIFEST)
            return
        sealed = self._part(layout.MANIFEST, lambda bundle: bundle.manifest)
        if sealed is None:
            return
        self._known = replace(self._known, manifest=digests.get(layout.MANIFEST))
        for name in sealed:
            if name not in self._files:
                self.note(Code.TAMPERED, Detail.MISSING, name)
            elif name in digests and digests[name] != sealed[name]:
                self.note(Code.TAMPERED, Detail.CHANGED, name)
        for name in self._files:
            if name not in sealed and name not in (layout.MANIFEST, layout.ATTESTATION):
                self.note(Code.TAMPERED, Detail.ADDED, name)
        for name in empty:
            self.note(Code.TAMPERED, Detail.EMPTY_FOLDER, name)

    def _check_places(self) -> None:
        """Check that every file belongs to a bundle, and that no required file is missing."""
        known = {*layout.REQUIRED, *layout.OPTIONAL, layout.MANIFEST, layout.ATTESTATION}
        for name in sorted(self._files):
            if name not in known and not name.startswith(f"{layout.ARTIFACTS}/"):
                self.note(Code.INVALID, Detail.NO_PART, name)
        for name in layout.REQUIRED:
            if name not in self._files:
                self._noted.add(name)
                self.note(Code.INCOMPLETE, Detail.REQUIRED, name)

    def _check_artifacts(self) -> None:
        there = {name for name in self._files if name.startswith(f"{layout.ARTIFACTS}/")} - {layout.INDEX}
        if layout.INDEX not in self._files:
            if there:
                self.note(Code.INCOMPLETE, Detail.NO_INDEX, layout.INDEX)
            return
        listed: tuple[Artifact, ...] | None = self._part(layout.INDEX, lambda bundle: bundle.artifacts)
        if listed is None:
            return
        copied = {f"{layout.ARTIFACTS}/{entry.name}" for entry in listed if entry.copied}
        for name in sorted(there - copied):
            self.note(Code.INVALID, Detail.UNLISTED_ARTIFACT, layout.INDEX, artifact=name)
        for name in sorted(copied - there):
            self.note(Code.INCOMPLETE, Detail.NO_COPY, name)
        if len(copied) > layout.MOST_ARTIFACTS:
            counts: dict[str, Any] = {"copies": len(copied), "most": layout.MOST_ARTIFACTS}
            self.note(Code.INVALID, Detail.TOO_MANY_COPIES, layout.INDEX, **counts)

    # Documents

    def _part(self, file: str, read: Callable[[Bundle], T]) -> T | None:
        """Read a part of the bundle. If its file is invalid, add a finding and return None."""
        if file in self._noted:
            return None
        try:
            return read(self._bundle)
        except BundleError as error:
            self._note_problems(error)
            return None

    def _note_problems(self, error: BundleError) -> None:
        for problem in error.problems[:_PER_FILE]:
            text, remedy = problem.message[:600], problem.remedy[:600]
            self.note(Code.INVALID, Detail.PROBLEM, error.file, problem.pointer, text=text, remedy=remedy)

    def _judge(self) -> None:
        environment = self._part(layout.ENVIRONMENT, lambda bundle: bundle.environment)
        self.record = record = self._part(layout.RECORD, lambda bundle: bundle.record)
        contract = self._part(layout.CONTRACT, lambda bundle: bundle.contract)
        observation = self._part(layout.OBSERVATION, lambda bundle: bundle.observation)
        mutants = self._part(layout.MUTANTS, lambda bundle: bundle.mutants)
        case = self._part(layout.COUNTEREXAMPLE, lambda bundle: bundle.counterexample)
        if record is not None:
            self._check_folder(record)
            self._check_trials(record, mutants)
            if environment is not None:
                self._found += _machine(record, environment)
            names = {name: getattr(record, name) for name in ("id", "issue", "run", "profile")}
            self._known = replace(self._known, **names, device=f"{record.device.type} {record.device.name}")
        if record is not None and contract is not None:
            self._found += (*coverage(record, contract.subject), *clock_ahead(record, datetime.now(UTC)))
            self._check_attestation(record, contract)
        if record is None or contract is None or observation is None or mutants is None:
            return
        again = rejudge(record, contract, observation, {name: mutant.observation for name, mutant in mutants.items()})
        if case is not None:
            self._check_counterexample(layout.COUNTEREXAMPLE, "", case, contract, observation)
        for name, mutant in mutants.items():
            if mutant.counterexample is not None:
                where = pointer(name, "counterexample")
                self._check_counterexample(layout.MUTANTS, where, mutant.counterexample, contract, mutant.observation)
        # A missing or invalid file already has a finding.
        reported = {item.file for item in self._found}
        self._found += [
            item for item in again.findings if item.code is not Code.INCOMPLETE or item.file not in reported
        ]
        self._known = replace(
            self._known,
            verdict=again.claim.verdict,
            reason=again.claim.reason,
            proven=again.claim.proven,
            overrides=record.overrides or None,
            subject=record.judged if record.subject != contract.subject else None,
            mutants={mutant: str(fate) for mutant, fate in again.mutants.items()},
        )

    def _check_trials(self, record: Record, mutants: Mapping[str, MutantTrial] | None) -> None:
        """Check the record's counts of rows, its list of mutants, and its digests of the logs."""
        for name, file in (("metrics", layout.METRICS), ("telemetry", layout.TELEMETRY)):
            series, recorded_rows = self._part(file, attrgetter(name)), record.series[name]["kept"]
            if series is not None and len(series) != recorded_rows:
                where = pointer("series", name, "kept")
                self._differs(where, Detail.OTHER_ROWS, then=recorded_rows, series=file, now=len(series))
        listed = {mutant.id: mutant.failed for mutant in record.mutants}
        for name, mutant in (mutants or {}).items():
            if name not in listed:
                self.note(Code.REJUDGED_DIFFERENTLY, Detail.MUTANT_UNLISTED, layout.MUTANTS, pointer(name))
            elif mutant.failed != listed[name]:
                where = pointer(name, "failed")
                self.note(Code.REJUDGED_DIFFERENTLY, Detail.MUTANT_FAILED_OTHERS, layout.MUTANTS, where, mutant=name)
        logs = self._part(layout.LOGS, lambda bundle: bundle.logs)
        if logs is None:
            return
        identities = {"log": record.logs.get("log"), "stdout": record.logs["stdout"], "stderr": record.logs["stderr"]}
        for stream, identity in identities.items():
            if identity is None:
                continue
            stated = logs.get((SUBJECT, stream))
            size, digest = identity["size"], identity["sha256"]
            if (size and stated is None) or (stated is not None and (stated.size, stated.sha256) != (size, digest)):
                self._differs(pointer("logs", stream), Detail.OTHER_LOG, log=layout.LOGS)
        for (trial, stream), stated in logs.items():
            content = stated.text.encode("utf-8", errors="surrogatepass")
            if stated.is_whole and (len(content), hashlib.sha256(content).hexdigest()) != (stated.size, stated.sha256):
                self.note(Code.REJUDGED_DIFFERENTLY, Detail.UNTRUE_LOG, layout.LOGS, stream=stream, trial=trial)
        known = {SUBJECT, *map(trial_of, mutants or ())}
        if "log" in record.logs:
            for trial in sorted(known):
                if (trial, "log") not in logs:
                    self.note(Code.REJUDGED_DIFFERENTLY, Detail.NO_LOG, layout.LOGS, trial=trial)
        for trial in sorted({trial for trial, _ in logs} - known if mutants is not None else ()):
            self.note(Code.REJUDGED_DIFFERENTLY, Detail.LOG_OF_NO_TRIAL, layout.LOGS, trial=trial)

    def _check_counterexample(
        self, file: str, where: str, case: Counterexample, contract: Contract, trial: Observation
    ) -> None:
        """Check that the counterexample's measurements violate exactly the clauses that it names."""
        judged = judge_case(contract, case.measurements, trial.parameters, trial.device)
        failed = {clause.id for clause in judged if clause.outcome is Outcome.FAIL}
        for clause in sorted(set(case.clauses) ^ failed):
            if clause != COMPLETES:
                detail = Detail.CASE_SPARES if clause in case.clauses else Detail.CASE_VIOLATES
                self.note(Code.REJUDGED_DIFFERENTLY, detail, file, f"{where}/clauses", clause=clause)

    def _check_attestation(self, record: Record, contract: Contract) -> None:
        if layout.ATTESTATION not in self._files:
            self.note(Code.UNSIGNED, Detail.NOT_SIGNED, attestation=layout.ATTESTATION)
            return
        if {layout.ATTESTATION, layout.MANIFEST} & self._noted or layout.MANIFEST not in self._files:
            return
        content, sealed = self._bundle.content(layout.ATTESTATION), self._bundle.content(layout.MANIFEST)
        checked = signing().check(content, record, contract.subject, sealed, self._trusted)
        self._found += checked.findings
        self._known = replace(self._known, signed_by=checked.signed_by)

    def _check_folder(self, record: Record) -> None:
        """Check the names of the folders: a bundle in another claim's folder would count as evidence of that claim.

        A bundle elsewhere, outside a folder F-…, is read by its record alone.
        """
        if not self._path.parent.name.startswith("F-"):
            return
        names = dict(zip(("run", "id", "issue"), reversed(self._path.parts), strict=False))
        for field, name in names.items():
            if getattr(record, field) != name:
                self._differs(pointer(field), Detail.OTHER_FOLDER, name=getattr(record, field), folder=name)

    def _differs(self, where: str, detail: Detail, **fields: Any) -> None:
        self.note(Code.REJUDGED_DIFFERENTLY, detail, layout.RECORD, where, **fields)


def _machine(record: Record, environment: JsonObject) -> Iterator[Finding]:
    """Check that the machine has the record's device and that `started` is a time: a claim's status uses both."""
    try:
        datetime.fromisoformat(record.started)
    except ValueError as error:
        yield finding(Code.INVALID, Detail.NO_TIME, layout.RECORD, "/started", text=str(error))
    if not _has(environment["host"], record.device):
        fields = {"device": record.device.name[:80], "environment": layout.ENVIRONMENT}
        yield finding(Code.REJUDGED_DIFFERENTLY, Detail.NO_DEVICE, layout.RECORD, "/device", **fields)


def _has(host: JsonObject, device: Device) -> bool:
    """Whether a machine has a GPU or CPU that equals the device in every recorded field."""
    known = {field: value for field, value in device.to_json().items() if field != "type"}
    there = host.get("gpus", []) if device.is_cuda else [{**host, "name": host["machine"]}]
    return any(known.items() <= candidate.items() for candidate in there)
