"""SARIF 2.1.0: the open findings against claims, for code scanning and editors.

A finding is a clause that FAILed, a mutant that survived (VOID), an unsound or refused bundle, or that there is no
bundle. Its place is the line of the contract that states the clause or the mutant. All are of the kind "fail" and the
level "error", because services raise an alert for each result, whatever its kind. The findings of a refutation that the
contract knows are of the level "note", and have an accepted suppression with the explanation. A claim that holds
although its contract states a refutation is a finding too.

A finding is open until a later run answers it. Of the runs of one subject on one class of device, the newest FAIL,
proven PASS or VOID of each profile counts. A proven PASS of the full profile also answers an older run of the reduced
one. A finding of a run whose code has changed since is not open, as in `harness.evidence.claim_status`.

The run's properties have the counts of all cases. If a bundle is unsound or a claim was not measured, the run's
invocation did not succeed, and a notification has the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.base import strictjson
from harness.base.device import DeviceClass
from harness.base.version import VERSION
from harness.base.vocabulary import Verdict
from harness.contract.contract_annotations import Refutation
from harness.evidence.findings import STALE
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages import reason_text
from harness.report.messages.run_facts import facts
from harness.tools.ci_reports import cases
from harness.tools.ci_reports.cases import Case, CaseKind, Status
from harness.tools.text_report import BundleResult, TextReport

__all__ = ["REPORT", "render"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(bundles: Sequence[BundleResult]) -> str:
    """Return the document. The same bundles give the same text."""
    findings: list[tuple[Case, BundleResult | None]] = [
        (case, bundle) for bundle in _open(bundles) for case in cases.findings(bundle)
    ]
    findings = findings if bundles else [(cases.NOTHING, None)]
    rules = {_rule_id(case): _rule(case) for case, _ in findings}
    positions = {name: position for position, name in enumerate(rules)}
    counts = Counter(case.status for bundle in bundles for case in cases.of_bundle(bundle))
    notifications = [{"level": level, "message": {"text": text}} for level, text in _notifications(bundles)]
    run = {
        "tool": {
            "driver": {
                "name": "falsifier-harness",
                "version": VERSION,
                "rules": list(rules.values()),
            }
        },
        "invocations": [
            {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications},
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(case, bundle, positions) for case, bundle in findings],
        "properties": {
            "bundles": len(bundles),
            "verdicts": dict(sorted(Counter(bundle.verification.standing for bundle in bundles).items())),
            "cases": {str(status): counts[status] for status in Status},
        },
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _open(bundles: Sequence[BundleResult]) -> Iterator[BundleResult]:
    """Yield the bundles that no later run answers, in order. An unsound or refused bundle is always one."""
    records = sorted((bundle.record for bundle in bundles if bundle.record and _counts(bundle)), key=_age)
    latest = {_series(record): record for record in records}
    for bundle in bundles:
        record = bundle.record
        if record is None:
            yield bundle
        elif latest.get(_series(record)) is record:
            full = latest.get((*_series(record)[:-1], "full"), record)
            if full.verdict is not Verdict.PASS or full.started <= record.started:
                yield bundle


def _counts(bundle: BundleResult) -> bool:
    """Whether a run says something about the present code."""
    record = bundle.record
    if record is None or STALE & {remark.code for remark in bundle.verification.remarks}:
        return False
    return record.verdict in (Verdict.FAIL, Verdict.VOID) or (record.verdict is Verdict.PASS and record.proven)


def _age(record: Record) -> tuple[str, int]:
    """Order records by time. Of several in one second, the worst counts as the newest."""
    return record.started, (Verdict.PASS, Verdict.VOID, Verdict.FAIL).index(record.verdict)


def _series(record: Record) -> tuple[str, ...]:
    """Return what the runs that can answer one another have in common, the profile last."""
    overrides = strictjson.dumps(strictjson.tag_nonfinite(dict(record.overrides)))
    return record.id, str(DeviceClass.of(record.device)), record.judged, overrides, record.profile


def _rule_id(case: Case) -> str:
    return f"{case.claim}/{case.name}"


def _rule(case: Case) -> dict[str, Any]:
    what = {
        CaseKind.CLAUSE: f"{case.claim} holds in the clause {case.name}",
        CaseKind.MUTANT: f"The falsifier of {case.claim} kills the {case.name}",
        CaseKind.CLAIM: f"{case.claim} holds",
        CaseKind.BUNDLE: f"The evidence of {case.claim} is sound, and accepted",
    }[case.kind]
    return {"id": _rule_id(case), "name": case.name, "shortDescription": {"text": what}}


def _result(case: Case, bundle: BundleResult | None, positions: dict[str, int]) -> dict[str, Any]:
    rule = _rule_id(case)
    record = bundle.record if bundle is not None else None
    where = str(DeviceClass.of(record.device)) if record else ""
    fingerprint = hashlib.sha256(f"{rule}\0{where}".encode(errors="replace")).hexdigest()
    known = bundle.refutation if bundle is not None and bundle.is_known else None
    location = {"artifactLocation": {"uri": _uri(case, bundle)}, "region": {"startLine": case.line}}
    return {
        "ruleId": rule,
        "ruleIndex": positions[rule],
        "kind": "fail",
        "level": "error" if known is None else "note",
        "message": {"text": f"{case.status}: {case.message or rule}"},
        "locations": [{"physicalLocation": location}],
        # Equal findings on a class of device are one alert. GitHub compares only the first fingerprint.
        "partialFingerprints": {"primaryLocationLineHash": f"{fingerprint}:1", "claimClauseDevice/v2": fingerprint},
        "properties": {"status": str(case.status), **(facts(record) if record else {})},
        **({} if known is None else {"suppressions": [_suppression(known)]}),
    }


def _suppression(known: Refutation) -> dict[str, str]:
    text = printable(f"known since {known.since}: {known.explanation}")
    return {"kind": "external", "status": "accepted", "justification": text}


def _uri(case: Case, bundle: BundleResult | None) -> str:
    """Return the contract's file; without one, the bundle."""
    if case.file:
        return quote(case.file)
    if bundle is None:
        return "."
    here, path = Path.cwd(), Path(os.path.realpath(bundle.path))
    shown = path.relative_to(here) if path.is_relative_to(here) else Path(*path.parts[-3:])
    return quote(os.fsencode(shown))


def _notifications(bundles: Sequence[BundleResult]) -> Iterator[tuple[str, str]]:
    """Yield the reasons why the run as a whole did not succeed: level and text."""
    if not bundles:
        yield "error", cases.NOTHING.message
    for bundle in bundles:
        record = bundle.record
        if record is None:
            yield "error", f"{bundle.name}: {bundle.problem}"
        elif record.verdict is Verdict.NOT_MEASURED:
            yield "warning", printable(f"{record.id} was not measured: {reason_text.marked(record.reason)}")
        elif record.verdict is Verdict.VOID:
            yield "error", printable(f"{record.id} is void: {reason_text.marked(record.reason)}")


REPORT = TextReport("the open findings against the claims as SARIF 2.1.0", render)
