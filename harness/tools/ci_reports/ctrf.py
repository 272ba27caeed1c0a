"""CTRF: test results as one JSON document, which many CI services and bots read (https://ctrf.io).

    passed   a claim that holds, a mutant that was killed
    failed   a claim that FAILed or is VOID, a mutant that survived, an unsound or refused bundle, no bundle; a claim
             that holds where its contract states a refutation
    skipped  a mutant that cannot run on this machine or was skipped
    other    a claim or mutant that was not measured; "pending" would promise a later result; a refutation that the
             contract knows

rawStatus has the harness's own word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from harness.base.version import VERSION
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages.run_facts import facts
from harness.tools.ci_reports import cases
from harness.tools.ci_reports.cases import Case
from harness.tools.report_text import narrowed
from harness.tools.text_report import BundleResult, TextReport

__all__ = ["REPORT", "SPEC_VERSION", "render"]

SPEC_VERSION = "0.0.0"
"""The version of the published schema, tests/recorded/schemas/ctrf-schema-0.0.json."""


def render(bundles: Sequence[BundleResult]) -> str:
    """Return the document. The same bundles give the same text."""
    tests = [_test(case, bundle) for bundle in bundles for case in cases.of_bundle(bundle)]
    tests = tests or [_test(cases.NOTHING, None)]
    statuses = [test["status"] for test in tests]
    records = [bundle.record for bundle in bundles if bundle.record is not None]
    starts = [_milliseconds(record) for record in records]
    stops = [start + _duration(record.seconds) for start, record in zip(starts, records, strict=True)]
    summary = {
        "tests": len(tests),
        **{name: statuses.count(name) for name in ("passed", "failed", "skipped", "pending", "other")},
        "suites": len(bundles),
        "start": min(starts, default=0),
        "stop": max(stops, default=0),
    }
    tool = {"name": "falsifier-harness", "version": VERSION}
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "generatedBy": "harness report",
        "results": {"tool": tool, "summary": summary, "tests": tests},
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _test(case: Case, bundle: BundleResult | None) -> dict[str, Any]:
    record = bundle.record if bundle is not None else None
    test: dict[str, Any] = {
        "name": case.name if case.kind is cases.CaseKind.CLAIM else f"{case.claim} {case.name}",
        "status": case.status.ctrf,
        "rawStatus": str(case.status),
        "duration": _duration(case.seconds),
        "type": str(case.kind),
        "suite": [printable(f"{record.id} {record.title}") if record else case.claim],
        "message": case.message or str(case.status),
    }
    if case.details:
        test["trace"] = "\n".join(case.details)
    if case.file:
        test |= {"filePath": case.file, "line": case.line}
    if bundle is not None:
        test["extra"] = {"bundle": printable(str(bundle.path))}
    if bundle is not None and record is not None:
        narrowing = narrowed(record, bundle.verification.remarks)
        test["tags"] = [str(record.verdict), *map(printable, narrowing)]  # shown beside green lines
        test["extra"] |= facts(record)
    return test


def _duration(seconds: float) -> int:
    """Return milliseconds."""
    return round(cases.bounded(seconds) * 1000)


def _milliseconds(record: Record) -> int:
    """Return the start of the run in milliseconds since 1970."""
    return round(datetime.fromisoformat(record.started).timestamp() * 1000)


REPORT = TextReport("a CTRF report", render)
