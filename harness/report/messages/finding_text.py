"""Formats findings of verification."""

from __future__ import annotations

from typing import Any

from harness.contract.reasons import Reason
from harness.evidence.findings import Finding, Verification
from harness.report.messages import reason_text

__all__ = ["document", "line", "message"]

_LONGEST = 600


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
