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
from harness.contract.reasons import Reason

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
    """The kind of a finding."""

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

    UNSIGNED = "UNSIGNED"
    """There is no attestation: no signer states that the machine measured this."""
    UNKNOWN_KEY = "UNKNOWN_KEY"
    """There is an attestation, but no signature by a trusted key."""
    STALE_CONTRACT = "STALE_CONTRACT"
    """The project's contract of this claim has changed since, or is gone."""
    STALE_FALSIFIER = "STALE_FALSIFIER"
    """A source file that only the falsifier or a mutant uses has changed since, or is gone."""
    STALE_SUBJECT = "STALE_SUBJECT"
    """A source file that the subject uses has changed since, or is gone."""
    COMMIT_NOT_IN_HISTORY = "COMMIT_NOT_IN_HISTORY"
    """The measured commit is not in the history of the present checkout, or that is unknown."""
    DIRTY_TREE = "DIRTY_TREE"
    """The checkout had changes, so the measured code is not exactly the commit in the record."""
    WRONG_TARGET = "WRONG_TARGET"
    """The run was not on the hardware that the claim names."""
    REDUCED_PROFILE = "REDUCED_PROFILE"
    """The run was not in the full profile, which is the size that the claim is about."""
    MUTANTS_SKIPPED = "MUTANTS_SKIPPED"
    """The user skipped the mutants: nothing shows that the falsifier can fail."""
    OVERRIDDEN = "OVERRIDDEN"
    """The command line changed parameters: the run is not about the contract's claim."""
    OTHER_SUBJECT = "OTHER_SUBJECT"
    """The measured subject is not the one that the contract names."""
    CLOCK_AHEAD = "CLOCK_AHEAD"
    """The record states a start or an end later than now: its clock was ahead, or this machine's clock is behind."""
    OTHER_HARNESS = "OTHER_HARNESS"
    """The harness that measured it had other sources than the one that judges it now."""
    UNPLANTED = "UNPLANTED"
    """`harness plant` has no result for the subject that was measured: nothing shows which defects pass unseen."""

    @property
    def severity(self) -> Severity:
        """The effect of a finding of this kind."""
        return Severity.UNSOUND if self in _UNSOUND else Severity.REMARK


STALE = frozenset({Code.STALE_CONTRACT, Code.STALE_FALSIFIER, Code.STALE_SUBJECT})
"""The codes that make evidence stale: contract, falsifier or subject have changed since."""
_UNSOUND = frozenset({Code.INCOMPLETE, Code.TAMPERED, Code.INVALID, Code.REJUDGED_DIFFERENTLY, Code.FORGED})


class Detail(StrEnum):
    """What was found. `harness.report.messages.finding_text` has the sentence for each, and the names of its fields."""

    # the folder and its files
    BEING_UNPACKED = "being unpacked"
    UNFINISHED = "unfinished"
    NO_FOLDER = "no folder"
    IN_UNFINISHED = "in an unfinished folder"
    TOO_LARGE = "too large"
    REFUSED_FILE = "refused file"
    NO_MANIFEST = "no manifest"
    MISSING = "missing"
    CHANGED = "changed"
    ADDED = "added"
    EMPTY_FOLDER = "empty folder"
    NO_PART = "no part of a bundle"
    REQUIRED = "required"
    NO_INDEX = "no index"
    UNLISTED_ARTIFACT = "unlisted artifact"
    NO_COPY = "no copy"
    TOO_MANY_COPIES = "too many copies"
    PROBLEM = "problem"
    """The file is not of its format, as `text` says."""
    CHECK_FAILED = "check failed"
    CHECK_STOPPED = "check stopped"
    MORE = "more findings"
    # the record, compared with the other files
    OTHERWISE_DERIVED = "otherwise derived"
    RAN_OTHERWISE = "ran otherwise"
    NO_PROFILE = "no such profile"
    MUTANT_UNLISTED = "mutant unlisted"
    MUTANT_COULD_RUN = "mutant could run"
    MUTANT_FAILED_OTHERS = "mutant failed other clauses"
    NO_TRIAL = "no trial"
    OTHER_ROWS = "other number of rows"
    NO_LOG = "no log"
    OTHER_LOG = "other log"
    UNTRUE_LOG = "untrue log"
    LOG_OF_NO_TRIAL = "log of no trial"
    CASE_SPARES = "case violates no such clause"
    CASE_VIOLATES = "case violates a clause"
    OTHER_FOLDER = "other folder"
    NO_TIME = "no time"
    NO_DEVICE = "no such device"
    # the attestation
    NOT_SIGNED = "not signed"
    NOT_BY_KEY = "not by this key"
    SIGNERS_NOT_TRUSTED = "signers not trusted"
    NO_KEY_TRUSTED = "no key trusted"
    STATES_TOO_MUCH = "states too much"
    STATES_TOO_LITTLE = "states too little"
    OTHER_LENGTH = "other length"
    OTHER_STATEMENT = "other statement"
    MORE_STATED = "more stated"
    # what the record does not cover
    CHECKOUT_CHANGED = "checkout changed"
    CHECKOUT_UNKNOWN = "checkout unknown"
    OTHER_HARDWARE = "other hardware"
    OTHER_PROFILE = "other profile"
    CLAUSES_NOT_JUDGED = "clauses not judged"
    SKIPPED = "skipped"
    OVERRIDDEN = "overridden"
    OTHER_SUBJECT = "other subject"
    CLOCK_AHEAD = "clock ahead"
    END_AHEAD = "end ahead"
    # what changed since
    NO_CONTRACT = "no contract"
    CONTRACT_CHANGED = "contract changed"
    FILES_GONE = "files gone"
    FILES_CHANGED = "files changed"
    NO_FILES = "no files"
    NEVER_PLANTED = "never planted"
    NOT_PLANTED = "not planted"
    NOT_IN_HISTORY = "not in the history"
    OTHER_VERSION = "other version"
    OTHER_CHECKOUT = "other checkout"


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
        return self.findings or tuple(one for one in self.remarks if one.code in self.refused)

    def to_json(self) -> dict[str, Any]:
        """The document, with `sound` and `accepted`."""
        return {**super().to_json(), "sound": self.sound, "accepted": self.accepted}

    @classmethod
    def from_json(cls, document: JsonObject) -> Verification:
        """The inverse of `to_json`."""
        return super().from_json({name: one for name, one in document.items() if name not in ("sound", "accepted")})
