"""The findings of verification, and the result of verifying a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, Worded

__all__ = ["NOT_ACCEPTED", "STALE", "UNSOUND", "Code", "Detail", "Finding", "Severity", "Verification", "finding"]

UNSOUND, NOT_ACCEPTED = "UNSOUND", "NOT_ACCEPTED"
"""Shown in place of the verdict of a bundle that is unsound or not accepted."""


class Severity(StrEnum):
    """The effect of a finding on a bundle."""

    UNSOUND = "unsound"
    """The bundle is not evidence: its files changed after sealing, or its record contradicts its measurements."""
    REMARK = "remark"
    """The bundle is evidence, but for less, or for something else, than a reader may expect. The reader decides."""


class Code(StrEnum):
    """The kind of a finding. Of the remarks, the most important are first."""

    INCOMPLETE = "INCOMPLETE"
    """A required file is missing, or the bundle was never finished."""
    TAMPERED = "TAMPERED"
    """The files are not those that were sealed: one is missing, added or changed."""
    INVALID = "INVALID"
    """A file is not of its format, or exceeds a limit."""
    REJUDGED_DIFFERENTLY = "REJUDGED_DIFFERENTLY"
    """The record differs from what contract and observations give when judged again."""
    FORGED = "FORGED"
    """The attestation contradicts the bundle, or a signature names a trusted key that did not make it."""

    MUTANTS_SKIPPED = "MUTANTS_SKIPPED"
    """The user skipped the mutants: nothing shows that the falsifier can fail."""
    OVERRIDDEN = "OVERRIDDEN"
    """The command line changed parameters: the run is not about the contract's claim."""
    OTHER_SUBJECT = "OTHER_SUBJECT"
    """The measured subject is not the one that the contract names."""
    STALE_CONTRACT = "STALE_CONTRACT"
    """The project's contract of this claim has changed since, or is gone."""
    STALE_FALSIFIER = "STALE_FALSIFIER"
    """A source file that only the falsifier or a mutant uses has changed since, or is gone."""
    STALE_SUBJECT = "STALE_SUBJECT"
    """A source file that the subject uses has changed since, or is gone."""
    REDUCED_PROFILE = "REDUCED_PROFILE"
    """The run was not in the full profile, which is the size that the claim is about."""
    WRONG_TARGET = "WRONG_TARGET"
    """The run was not on the hardware that the claim names."""
    DIRTY_TREE = "DIRTY_TREE"
    """The checkout had changes, so the measured code is not exactly the commit in the record."""
    COMMIT_NOT_IN_HISTORY = "COMMIT_NOT_IN_HISTORY"
    """The measured commit is not in the history of the present checkout, or that is unknown."""
    CLOCK_AHEAD = "CLOCK_AHEAD"
    """The record states a start or an end later than now: its clock was ahead, or this machine's clock is behind."""
    OTHER_HARNESS = "OTHER_HARNESS"
    """The harness that measured it had other sources than the one that judges it now."""
    UNPLANTED = "UNPLANTED"
    """`harness plant` has no result for the subject that was measured: nothing shows which defects pass unseen."""
    UNKNOWN_KEY = "UNKNOWN_KEY"
    """There is an attestation, but no signature by a trusted key."""
    UNSIGNED = "UNSIGNED"
    """There is no attestation: no signer states that the machine measured this."""

    @property
    def severity(self) -> Severity:
        """The effect of a finding of this kind."""
        return Severity.UNSOUND if self in _UNSOUND else Severity.REMARK


STALE = frozenset({Code.STALE_CONTRACT, Code.STALE_FALSIFIER, Code.STALE_SUBJECT})
"""The codes that make evidence stale: contract, falsifier or subject have changed since."""
_UNSOUND = frozenset({Code.INCOMPLETE, Code.TAMPERED, Code.INVALID, Code.REJUDGED_DIFFERENTLY, Code.FORGED})


class Detail(Worded):
    """What was found, and its sentence, which names the fields."""

    # the folder and its files
    BEING_UNPACKED = (
        "being unpacked",
        "is being merged, or that was interrupted; the next `harness merge` there removes what is left",
    )
    UNFINISHED = (
        "unfinished",
        "was never finished: it is being written, or its writer died; the claim's next run removes what is left",
    )
    NO_FOLDER = "no folder", "is no folder"
    IN_UNFINISHED = "in an unfinished folder", "lies in {folder}: it was never finished"
    TOO_LARGE = "too large", "{text}; it was not read"
    REFUSED_FILE = "refused file", "{text}"
    NO_MANIFEST = "no manifest", "is missing: the bundle was not sealed, or is not one"
    MISSING = "missing", "is missing: the manifest lists it"
    CHANGED = "changed", "was changed: its sha256 is not the manifest's"
    ADDED = "added", "was added: the manifest does not list it"
    EMPTY_FOLDER = "empty folder", "was added: an empty folder, and a bundle has none"
    NO_PART = "no part of a bundle", "is no file of a bundle"
    REQUIRED = "required", "is missing: every bundle has it"
    NO_INDEX = "no index", "is missing: it lists the artifacts"
    UNLISTED_ARTIFACT = "unlisted artifact", "does not list {artifact}"
    NO_COPY = "no copy", "is missing: the index lists it as copied"
    TOO_MANY_COPIES = "too many copies", "has {copies} copies; a bundle has at most {most}"
    PROBLEM = "problem", "{text}{remedy}"
    """The file is not of its format, as `text` says."""
    CHECK_FAILED = "check failed", "cannot be verified: {error}"
    CHECK_STOPPED = (
        "check stopped",
        "could not be verified: {text}; a bundle that the harness wrote does not cause this",
    )
    MORE = "more findings", "and {count} more findings"
    # the record, compared with the other files
    OTHERWISE_DERIVED = "otherwise derived", "the record has {then}; contract and observations give {now}"
    RAN_OTHERWISE = "ran otherwise", "{name} is {found}, not {expected}: the trial did not run as asked"
    NO_PROFILE = "no such profile", "the contract has no {profile} profile"
    MUTANT_UNLISTED = "mutant unlisted", "the record does not list this mutant"
    MUTANT_COULD_RUN = "mutant could run", "{mutant} was not run, but this device has all that it requires{reason}"
    MUTANT_FAILED_OTHERS = "mutant failed other clauses", "{mutant} failed other clauses than the record says"
    NO_TRIAL = "no trial", "has no trial of {mutant}, though the record says that it was {fate}"
    OTHER_ROWS = "other number of rows", "the record has {then} rows; {series} has {now}"
    NO_LOG = "no log", "has no log of what the {trial} did"
    OTHER_LOG = "other log", "the record has another size or sha256 than {log}"
    UNTRUE_LOG = "untrue log", "the {stream} of the {trial} is not the output that its heading names by size and sha256"
    LOG_OF_NO_TRIAL = "log of no trial", "has output of the {trial}, but the bundle has no such trial"
    CASE_SPARES = "case violates no such clause", "says that it violates {clause}; judged now, that is not so"
    CASE_VIOLATES = "case violates a clause", "says that it does not violate {clause}; judged now, that is not so"
    OTHER_FOLDER = "other folder", "is '{name}', but the bundle lies in the folder '{folder}'"
    NO_TIME = "no time", "is no point in time: {text}"
    NO_DEVICE = "no such device", "the record has {device}; {environment} lists no such device"
    # the attestation
    NOT_SIGNED = "not signed", "there is no {attestation}: the bundle is not signed"
    NOT_BY_KEY = "not by this key", "is not the trusted key's: {key} did not sign this"
    SIGNERS_NOT_TRUSTED = "signers not trusted", "signed in the name of {keys}; none of them was named as trusted"
    NO_KEY_TRUSTED = "no key trusted", "signed in the name of {keys}; --trusted-key says which key you trust"
    OTHER_STATEMENT = "other statement", "its statement: has {found}; the bundle makes {expected}"
    # what the record does not cover
    CHECKOUT_CHANGED = "checkout changed", "the checkout had changes that are in no commit"
    CHECKOUT_UNKNOWN = "checkout unknown", "it is not known whether the checkout had any: {text}"
    OTHER_HARDWARE = "other hardware", "the claim speaks of {target}; this is {device}"
    OTHER_PROFILE = "other profile", "the claim speaks of the full profile; this is the {profile} one ({why})"
    CLAUSES_NOT_JUDGED = (
        "clauses not judged",
        "the claim speaks of the full profile; this is the {profile} one ({why}); not judged: {clauses}",
    )
    SKIPPED = "skipped", "the mutants were skipped: nothing shows that this falsifier could have failed"
    OVERRIDDEN = "overridden", "this run has other parameters than the contract's: {names}{more}"
    OTHER_SUBJECT = "other subject", "measured was {measured}, not {declared}"
    CLOCK_AHEAD = (
        "clock ahead",
        "it says {started}, and by this machine's clock it is {now}: one of the two clocks is wrong; "
        "a PASS counts as the oldest of its claim's runs, a FAIL or VOID as the newest",
    )
    END_AHEAD = (
        "end ahead",
        "it says that it began at {started} and ran for {seconds} seconds, and by this machine's clock it is {now}: "
        "one of the clocks is wrong",
    )
    # what changed since
    NO_CONTRACT = "no contract", "this project has no contract of this claim"
    CONTRACT_CHANGED = "contract changed", "the claim's contract was changed since"
    FILES_GONE = "files gone", "not there any more: {names}{more}"
    FILES_CHANGED = "files changed", "changed since it was measured: {names}{more}"
    NO_FILES = "no files", "the record lists none of the files that it uses"
    NEVER_PLANTED = "never planted", "the claim has no planting score: nothing shows which defects its falsifier misses"
    NOT_PLANTED = "not planted", "no defects were planted in the measured {names}{more}"
    NOT_IN_HISTORY = "not in the history", "{text}"
    OTHER_VERSION = "other version", "another state of the harness measured it: version {version}"
    OTHER_CHECKOUT = "other checkout", "another state of the harness measured it: a checkout that was not installed"


@dataclass(frozen=True)
class Finding(JsonDataclass):
    """One thing that is wrong with a bundle, or that its readers should know; as data."""

    code: Code
    detail: Detail
    file: str = ""
    """The file's name relative to the bundle; empty for the bundle as a whole."""
    pointer: str = ""
    """JSON pointer into the file; empty for the whole file."""
    fields: JsonObject = field(default_factory=dict)
    """Names, numbers and short texts that the detail's sentence names."""

    @property
    def place(self) -> str:
        """The file with the pointer."""
        return f"{self.file}{self.pointer}"

    def __str__(self) -> str:
        """Code and place, for messages that contain a finding."""
        return f"{self.code} {self.place}".rstrip()


def finding(code: Code, detail: Detail, file: str = "", pointer: str = "", **fields: Any) -> Finding:
    """Return a finding with these fields, which are JSON values."""
    return Finding(code, detail, file, pointer, fields)


@dataclass(frozen=True)
class Verification(JsonDataclass):
    """The result of verifying one bundle. Verdict, reason and fates are judged again, not read from the record."""

    path: Path
    findings: tuple[Finding, ...]
    """The findings that make it unsound."""
    remarks: tuple[Finding, ...] = ()
    """The findings that leave it sound."""
    manifest: str | None = None
    """The sha256 of the verified manifest, which covers every file."""
    signed_by: tuple[str, ...] = ()
    """Ids of the trusted keys that signed it. Empty if it is unsound: the signatures are then for other content."""
    verdict: Verdict | None = None
    """The verdict, judged again; None if that was impossible."""
    reason: Reason | None = None
    proven: bool = False
    id: str | None = None
    issue: str | None = None
    run: str | None = None
    profile: str | None = None
    device: str | None = None
    """Type and name of the device."""
    overrides: JsonObject | None = None
    """Parameters that differ from those of the profile."""
    subject: str | None = None
    """The subject's entry point, if it is not the contract's."""
    mutants: Mapping[str, str] | None = None
    """The fate of each mutant, judged again."""
    refused: tuple[Code, ...] = ()
    """The codes of its remarks that the caller does not accept."""

    @property
    def sound(self) -> bool:
        """Whether the bundle has no findings that make it unsound. Its verdict may be any."""
        return not self.findings

    @property
    def accepted(self) -> bool:
        """Whether it is sound and none of its remarks is refused."""
        return self.sound and not self.refused

    @property
    def standing(self) -> str:
        """The verdict if the bundle is accepted; else UNSOUND or NOT_ACCEPTED."""
        if not self.sound:
            return UNSOUND
        return NOT_ACCEPTED if self.refused else str(self.verdict)

    @property
    def objections(self) -> tuple[Finding, ...]:
        """Why the bundle is not accepted: the findings that make it unsound, else the refused remarks."""
        return self.findings or tuple(remark for remark in self.remarks if remark.code in self.refused)

    def to_json(self) -> dict[str, Any]:
        """The document, with `sound` and `accepted`."""
        return {**super().to_json(), "sound": self.sound, "accepted": self.accepted}

    @classmethod
    def from_json(cls, document: JsonObject) -> Verification:
        """The inverse of `to_json`."""
        return super().from_json({name: value for name, value in document.items() if name not in ("sound", "accepted")})
