"""Formats verified bundles and their findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.findings import NOT_ACCEPTED, Finding, Verification
from harness.report.messages import qualifiers, reason_text

__all__ = ["KEY_LETTERS", "bundle_line", "bundle_totals", "document", "line", "message"]

_LONGEST = 600
KEY_LETTERS = 12
"""Number of characters of a shortened key id or commit."""


def message(finding: Finding) -> str:
    """Return the sentence of a finding, without the full stop."""
    fields = {name: _text(name, value) for name, value in finding.fields.items()}
    return finding.detail.template.format_map(fields)[:_LONGEST]


def line(finding: Finding) -> str:
    """Return a finding with its code and place."""
    place = f" {finding.place}:" if finding.place else ""
    return f"{finding.code}{place} {message(finding)}"


def document(verification: Verification) -> dict[str, Any]:
    """Return a verification as JSON values, with the sentences of its findings."""
    plain = verification.to_json()
    for name, findings in (("findings", verification.findings), ("remarks", verification.remarks)):
        plain[name] = [{**entry, "message": message(of)} for entry, of in zip(plain[name], findings, strict=True)]
    return {**plain, "reason": reason_text.of(verification.reason)}


def bundle_totals(verifications: Sequence[Verification]) -> str:
    """Return how many bundles are sound, and their verdicts."""
    sound = [verification for verification in verifications if verification.sound]
    counts = Counter(verification.verdict for verification in sound)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    refused = sum(verification.standing == NOT_ACCEPTED for verification in sound)
    return (
        f"{len(sound)} sound, {len(verifications) - len(sound)} unsound; of the sound: {verdicts}"
        f"{f'; {refused} of them not accepted' if refused else ''}"
    )


def bundle_line(verification: Verification) -> str:
    """Return one line with a bundle's verdict, everything that qualifies it, and its path."""
    verdict = "" if verification.accepted else f" ({verification.verdict or 'no verdict'})"
    parts = [f"{verification.standing}{verdict}"]
    if verification.id is not None:
        parts += [verification.id, qualifiers.profile(verification.profile), str(verification.device)]
    if verification.verdict is not None:
        parts.append("proven" if verification.proven else qualifiers.UNPROVEN)
    if verification.signed_by:
        parts.append("signed by " + ", ".join(key[:KEY_LETTERS] for key in verification.signed_by))
    parts += qualifiers.overridden(verification.overrides)
    if verification.subject is not None:
        parts.append(qualifiers.another_subject(verification.subject))
    if verification.reason and verification.reason.code is not ReasonCode.UNPROVEN:
        parts.append(reason_text.of(verification.reason))
    return "  ".join([*parts, str(verification.path)])


def _text(name: str, value: Any) -> str:
    match name, value:
        case "reason", _:
            return "" if value is None else f": {reason_text.of(Reason.from_json(value))}"
        case "remedy", _:
            return f" ({value})" if value else ""
        case "more", _:
            return f" and {value} more" if value else ""
        case _, list():
            return ", ".join(value)
        case _, None:
            return "missing"
        case _, bool():
            return str(value).lower()
    return str(value)
