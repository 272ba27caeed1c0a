"""The properties of a run in CI reports."""

from __future__ import annotations

from harness.base import strictjson
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages import reason_text

__all__ = ["facts"]


def facts(record: Record) -> dict[str, str]:
    """Return the properties of a run by name, without its outcome."""
    device = record.device
    texts = {
        "verdict": str(record.verdict),
        "proven": "yes" if record.proven else "no",
        "reason": reason_text.marked(record.reason),
        "profile": record.profile,
        "subject": record.subject,
        "device": f"{device.type} {device.name}",
        "overrides": strictjson.dumps(strictjson.tag_nonfinite(dict(record.overrides))),
        "run": record.run,
        "issue": record.issue,
        "spec": record.spec,
        "commit": f"{record.commit.get('revision')}{' (dirty)' if record.commit.get('dirty') else ''}",
        "contract_sha256": record.contract_digest,
        "command": record.command,
        "waited_seconds": str(record.waited_seconds),
    }
    return {name: printable(value) for name, value in texts.items()}
