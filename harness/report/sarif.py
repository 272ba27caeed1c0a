"""SARIF 2.1.0: what speaks against a claim, for code scanning and editors.

    fail           a clause that FAILed, a mutant that survived (VOID), an unsound or refused bundle, or no bundle;
                   its level is error
    open           a clause or mutant that was not measured
    notApplicable  a mutant that cannot run on this machine or was skipped

The results leave out what passed, because services that ignore `kind` would raise an alert for each. The run's
properties have the counts of all cases. If a bundle is unsound or a claim was not measured, the run's invocation did
not succeed, and a notification has the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.base.vocabulary import Verdict
from harness.judging.record import Record
from harness.report import ci_cases, reason_text
from harness.report.bundle_results import BundleResult
from harness.report.ci_cases import Case, Kind, Status
from harness.report.escaping import printable

__all__ = ["render"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_KINDS = {
    Status.FAIL: ("fail", "error"),
    Status.VOID: ("fail", "error"),
    Status.UNSOUND: ("fail", "error"),
    Status.NOT_ACCEPTED: ("fail", "error"),
    Status.NOT_MEASURED: ("open", "none"),
    Status.NOT_RUN: ("notApplicable", "none"),
}


def render(bundles: Sequence[BundleResult]) -> str:
    """Return the document. The same bundles give the same text."""
    found: list[tuple[Case, BundleResult | None]] = [(case, one) for one in bundles for case in ci_cases.of_bundle(one)]
    found = found or [(ci_cases.NOTHING, None)]
    told = [(case, bundle) for case, bundle in found if case.status is not Status.PASS]
    rules = {_rule_id(case): _rule(case) for case, _ in told}
    positions = {name: position for position, name in enumerate(rules)}
    counts = Counter(case.status for case, _ in found)
    notifications = list(_notifications(bundles))
    run = {
        "tool": {
            "driver": {
                "name": "falsifier-harness",
                "version": version("falsifier-harness"),
                "rules": list(rules.values()),
            }
        },
        "invocations": [
            {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications},
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(case, bundle, positions) for case, bundle in told],
        "properties": {
            "bundles": len(bundles),
            "verdicts": dict(sorted(Counter(_verdict(bundle) for bundle in bundles).items())),
            "cases": {str(status): counts[status] for status in Status},
        },
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _verdict(bundle: BundleResult) -> str:
    return bundle.verification.standing


def _rule_id(case: Case) -> str:
    return f"{case.claim}/{case.name}"


def _rule(case: Case) -> dict[str, Any]:
    what = {
        Kind.CLAUSE: f"{case.claim} holds in the clause {case.name}",
        Kind.MUTANT: f"The falsifier of {case.claim} kills the {case.name}",
        Kind.VERDICT: f"{case.claim} holds",
        Kind.BUNDLE: f"The evidence of {case.claim} is sound, and accepted",
    }[case.kind]
    return {"id": _rule_id(case), "name": case.name, "shortDescription": {"text": what}}


def _result(case: Case, bundle: BundleResult | None, positions: dict[str, int]) -> dict[str, Any]:
    kind, level = _KINDS[case.status]
    rule = _rule_id(case)
    record = bundle.record if bundle is not None else None
    where = record.device.type if record else ""
    fingerprint = hashlib.sha256(f"{rule}\0{where}".encode(errors="replace")).hexdigest()
    return {
        "ruleId": rule,
        "ruleIndex": positions[rule],
        "kind": kind,
        "level": level,
        "message": {"text": f"{case.status}: {case.message or rule}"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(case, bundle)}, "region": {"startLine": 1}}}
        ],
        # Equal findings of two runs on a class of device are one alert.
        "partialFingerprints": {"claimClauseDevice/v1": fingerprint},
        "properties": {"status": str(case.status), **(_circumstances(record) if record else {})},
    }


def _circumstances(record: Record) -> dict[str, Any]:
    return {
        "verdict": str(record.verdict),
        "proven": record.proven,
        "profile": record.profile,
        "subject": record.subject,
        "device": printable(f"{record.device.type} {record.device.name}"),
        "run": record.run,
        "reproduce": printable(record.command),
    }


def _uri(case: Case, bundle: BundleResult | None) -> str:
    """Return the file to look into: the subject's for a clause, the falsifier's for a mutant, else the bundle."""
    if bundle is None:
        return "."
    if bundle.record is not None:
        entry = bundle.record.falsifier if case.kind is Kind.MUTANT else bundle.record.subject
        module = entry.partition(":")[0].replace(".", "/")
        for name in (f"{module}.py", f"{module}/__init__.py"):
            if name in bundle.record.sources:
                return quote(name)
    here = Path.cwd()
    path = bundle.path.resolve()
    shown = path.relative_to(here) if path.is_relative_to(here) else Path(*path.parts[-3:])
    return quote(os.fsencode(shown))


def _notifications(bundles: Sequence[BundleResult]) -> Iterator[dict[str, Any]]:
    """Yield why the whole run is no success, whatever its results."""
    if not bundles:
        yield {"level": "error", "message": {"text": ci_cases.NOTHING.message}}
    for bundle in bundles:
        record = bundle.record
        if record is None:
            yield {"level": "error", "message": {"text": f"{bundle.name}: {bundle.problem}"}}
        elif record.verdict is Verdict.NOT_MEASURED:
            yield {
                "level": "warning",
                "message": {"text": printable(f"{record.id} was not measured: {reason_text.marked(record.reason)}")},
            }
        elif record.verdict is Verdict.VOID:
            yield {
                "level": "error",
                "message": {"text": printable(f"{record.id} is void: {reason_text.marked(record.reason)}")},
            }
