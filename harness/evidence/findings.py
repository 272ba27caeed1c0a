"""What can be wrong with a bundle, and what is known of one after it was verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.verdict import Verdict

__all__ = ["Code", "Finding", "Verification"]


class Code(StrEnum):
    """The kinds of what can be wrong."""

    INCOMPLETE = "INCOMPLETE"
    """Something that every bundle has is not there, or the bundle was never finished."""
    TAMPERED = "TAMPERED"
    """The files are not those that were sealed: one is missing, added or changed."""
    INVALID = "INVALID"
    """A file is not of its format, or beyond the limits of one."""
    REJUDGED_DIFFERENTLY = "REJUDGED_DIFFERENTLY"
    """The record says what contract and observations do not bear out."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a bundle."""

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
    verdict: Verdict | None = None
    """As judged again; None where that was impossible."""
    reason: str = ""
    proven: bool = False
    id: str | None = None
    issue: str | None = None
    run: str | None = None
    profile: str | None = None
    device: str | None = None
    """Type and name of the device."""
    overrides: Mapping[str, Any] | None = None
    """Parameters that differ from the profile's."""
    subject: str | None = None
    """The subject's entry point, where it is not the contract's."""
    mutants: Mapping[str, str] | None = None
    """What became of each mutant, as judged again."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the bundle; the verdict in it may be any."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "path": str(self.path), "sound": self.sound}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Verification:
        """The inverse of `to_json`."""
        plain = {key: value for key, value in document.items() if key != "sound"}
        findings = tuple(Finding(**{**one, "code": Code(one["code"])}) for one in plain["findings"])
        verdict = None if plain["verdict"] is None else Verdict(plain["verdict"])
        return cls(**{**plain, "path": Path(plain["path"]), "findings": findings, "verdict": verdict})
