"""What can be found in a bundle, and what is known of one after it was verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason

__all__ = ["NOT_ACCEPTED", "UNSOUND", "Code", "Finding", "Severity", "Verification"]

UNSOUND, NOT_ACCEPTED = "UNSOUND", "NOT_ACCEPTED"
"""What stands where a bundle's verdict would, of which nobody may take the verdict."""


class Severity(StrEnum):
    """What a finding does to a bundle."""

    UNSOUND = "unsound"
    """It is no evidence: not as it was sealed, or not saying what its own measurements say."""
    REMARK = "remark"
    """It is evidence, for less or for other than a reader might take it for. Whether that will do is the reader's."""


class Code(StrEnum):
    """What can be found."""

    INCOMPLETE = "INCOMPLETE"
    """Something that every bundle has is not there, or the bundle was never finished."""
    TAMPERED = "TAMPERED"
    """The files are not those that were sealed: one is missing, added or changed."""
    INVALID = "INVALID"
    """A file is not of its format, or beyond the limits of one."""
    REJUDGED_DIFFERENTLY = "REJUDGED_DIFFERENTLY"
    """The record says what contract and observations do not bear out."""
    FORGED = "FORGED"
    """The attestation says what the bundle does not, or a signature in a trusted key's name is not that key's."""

    UNSIGNED = "UNSIGNED"
    """There is no attestation: nobody vouches that this is what the machine measured."""
    UNKNOWN_KEY = "UNKNOWN_KEY"
    """There is an attestation, and no signature of a key that was named as trusted."""
    STALE_CONTRACT = "STALE_CONTRACT"
    """The project's contract of this claim is another one now, or gone."""
    STALE_FALSIFIER = "STALE_FALSIFIER"
    """A source file that only the falsifier or a mutant uses was changed since, or is gone."""
    STALE_SUBJECT = "STALE_SUBJECT"
    """A source file that the subject uses was changed since, or is gone."""
    COMMIT_NOT_IN_HISTORY = "COMMIT_NOT_IN_HISTORY"
    """The commit that was measured did not lead to the one that is checked out, or nobody can tell."""
    DIRTY_TREE = "DIRTY_TREE"
    """What was measured is not just the commit that the record names."""
    WRONG_TARGET = "WRONG_TARGET"
    """It was not measured on the hardware that the claim names."""
    REDUCED_PROFILE = "REDUCED_PROFILE"
    """It was not measured in the size that the claim speaks of."""
    MUTANTS_SKIPPED = "MUTANTS_SKIPPED"
    """The user asked for no mutants: nothing shows that the falsifier could have failed."""
    OVERRIDDEN = "OVERRIDDEN"
    """Parameters were changed on the command line: it speaks of another claim than the contract's."""
    OTHER_SUBJECT = "OTHER_SUBJECT"
    """Another subject was measured than the contract names."""
    CLOCK_AHEAD = "CLOCK_AHEAD"
    """It says that it started later than now: the clock that it was measured by was ahead, or this one is behind."""
    OTHER_HARNESS = "OTHER_HARNESS"
    """Another state of the harness's own sources measured it than the one that judges it now."""

    @property
    def severity(self) -> Severity:
        """What a finding of this kind does to a bundle."""
        return Severity.UNSOUND if self in _UNSOUND else Severity.REMARK


_UNSOUND = frozenset({Code.INCOMPLETE, Code.TAMPERED, Code.INVALID, Code.REJUDGED_DIFFERENTLY, Code.FORGED})


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a bundle, or that its readers should know."""

    code: Code
    file: str
    """Relative to the bundle; empty where it is the bundle as a whole."""
    message: str
    pointer: str = ""
    """Where in a JSON file."""

    def __str__(self) -> str:
        where = f"{self.file}{self.pointer}"
        return f"{self.code} {where}: {self.message}" if where else f"{self.code} {self.message}"


@dataclass(frozen=True)
class Verification:
    """What is known of one bundle. What stands here was judged again, not read from the record's own verdict."""

    path: Path
    findings: tuple[Finding, ...]
    """What makes it unsound."""
    remarks: tuple[Finding, ...] = ()
    """What its readers should know."""
    manifest: str | None = None
    """The sha256 of the manifest that was verified: it stands for every file."""
    signed_by: tuple[str, ...] = ()
    """The trusted keys that signed it, by id; none where it is unsound, for nobody signed it as it is."""
    verdict: Verdict | None = None
    """As judged again; None where that was impossible."""
    reason: Reason | None = None
    proven: bool = False
    id: str | None = None
    issue: str | None = None
    run: str | None = None
    profile: str | None = None
    device: str | None = None
    """Type and name of the device."""
    overrides: JsonObject | None = None
    """Parameters that differ from the profile's."""
    subject: str | None = None
    """The subject's entry point, where it is not the contract's."""
    mutants: Mapping[str, str] | None = None
    """What became of each mutant, as judged again."""
    refused: tuple[Code, ...] = ()
    """The remarks among these that whoever asked does not accept."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the bundle; the verdict in it may be any."""
        return not self.findings

    @property
    def accepted(self) -> bool:
        """Whether it is sound, and no remark on it is refused."""
        return self.sound and not self.refused

    @property
    def standing(self) -> str:
        """The verdict, where it may be taken; else UNSOUND or NOT_ACCEPTED."""
        if not self.sound:
            return UNSOUND
        return NOT_ACCEPTED if self.refused else str(self.verdict)

    @property
    def objections(self) -> tuple[Finding, ...]:
        """Why its verdict may not be taken: what makes it unsound, else the remarks that are refused."""
        return self.findings or tuple(one for one in self.remarks if one.code in self.refused)

    @property
    def problem(self) -> str:
        """The first objection, and how many more there are; empty where there is none."""
        more = f", and {len(self.objections) - 1} more" if len(self.objections) > 1 else ""
        return f"{self.objections[0]}{more}" if self.objections else ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        plain = {**asdict(self), "path": str(self.path), "reason": self.reason and self.reason.to_json()}
        return {**plain, "sound": self.sound, "accepted": self.accepted}

    @classmethod
    def from_json(cls, document: JsonObject) -> Verification:
        """The inverse of `to_json`."""
        plain = {key: value for key, value in document.items() if key not in ("sound", "accepted")}
        for name in ("findings", "remarks"):
            plain[name] = tuple(Finding(**{**one, "code": Code(one["code"])}) for one in plain[name])
        verdict = None if plain["verdict"] is None else Verdict(plain["verdict"])
        plain["refused"] = tuple(map(Code, plain["refused"]))
        signed_by = tuple(plain["signed_by"])
        plain["reason"] = Reason.from_json(plain["reason"])
        return cls(**{**plain, "path": Path(plain["path"]), "signed_by": signed_by, "verdict": verdict})
