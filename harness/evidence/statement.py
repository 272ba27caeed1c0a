"""The in-toto Statement of a bundle: what an attestation says, made from the bundle's record and nothing else.

It follows from the record alone, so whoever verifies makes it again and compares: an attestation cannot say more than
the bundle beneath it, however it is signed. The form is that of in-toto Statement v1 with the predicate test-result
v0.1 (https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md).

Subject
    The manifest by its sha256, and so every file of the bundle; and the commit that was tested, unless the checkout had
    changes or may have had, for then it was not that commit that was tested.
Configuration
    The contract, every source file that the trials imported (those of the falsifier, the subject and the mutants are
    named so in their annotations), and the harness, each by its sha256.
Tests
    `<claim>` is the claim itself, `<claim>/<clause>` one of its clauses, `<claim>/mutants/<id>` the killing of a
    mutant. A clause stands where its outcome puts it. A mutant that was killed has passed, one that survived or died of
    something else has failed. What was not measured, or not run, stands nowhere.
Result
    PASSED    the verdict is PASS, it is proven, and nothing narrows it; the claim is in passedTests
    WARNED    the verdict is PASS, and speaks for less than the claim says; the claim is in warnedTests, and beside it
              `<claim>/remarks/<CODE>` for each reason (see `harness.evidence.findings`)
    FAILED    every other verdict. FAIL: the claim is in failedTests. VOID and NOT_MEASURED: it is in none of them. The
              predicate knows nothing between; it lets FAILED stand for tests that could not be run too, and no policy
              should read "not measured" as good enough.

Statements that were signed once must come out the same for ever. A change of this file that changes what old records
say unseats their signatures; tests/recorded has one to prevent that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.evidence.findings import Code
from harness.evidence.layout import MANIFEST
from harness.evidence.staleness import coverage
from harness.judging.record import Record

__all__ = ["PREDICATE_TYPE", "STATEMENT_TYPE", "statement"]

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"

_NARROWING = (
    Code.DIRTY_TREE,
    Code.WRONG_TARGET,
    Code.REDUCED_PROFILE,
    Code.MUTANTS_SKIPPED,
    Code.OVERRIDDEN,
    Code.OTHER_SUBJECT,
)
"""What narrows a PASS. Listed, because a kind of remark that is invented later must not change what was signed."""


def statement(record: Record, contract_subject: str, manifest_sha256: str) -> dict[str, Any]:
    """The statement of a bundle, as JSON values.

    Args:
        contract_subject: the subject's entry point in the bundle's contract; the record has the one that was measured.
        manifest_sha256: lower-case hex, of the bytes of MANIFEST.sha256.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": list(_subject(record, manifest_sha256)),
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            **_tests(record, contract_subject),
            "configuration": list(_configuration(record)),
        },
    }


def _subject(record: Record, manifest_sha256: str) -> Iterator[dict[str, Any]]:
    yield {"name": MANIFEST, "digest": {"sha256": manifest_sha256}}
    if record.commit["revision"] is not None and record.commit["dirty"] is False:
        yield {"name": "commit", "digest": {"gitCommit": record.commit["revision"]}}


def _configuration(record: Record) -> Iterator[dict[str, Any]]:
    yield {
        "name": "contract",
        "digest": {"sha256": record.contract_digest},
        "annotations": {"claim": record.id, "issue": record.issue, "spec": record.spec, "profile": record.profile},
    }
    for name, digest in sorted(record.sources.items()):
        roles = {
            "falsifier": [record.falsifier],
            "subject": [record.subject],
            "mutants": [mutant.subject for mutant in record.mutants],
        }
        here = {role: sorted({one for one in points if _lies_in(one, name)}) for role, points in roles.items()}
        annotations = {role: points for role, points in here.items() if points}
        yield {"name": name, "digest": {"sha256": digest}, **({"annotations": annotations} if annotations else {})}
    if "sha256" in record.harness:
        version = {"version": record.harness["version"]}
        yield {"name": "harness", "digest": {"sha256": record.harness["sha256"]}, "annotations": version}


def _lies_in(entry_point: str, file: str) -> bool:
    """Whether a source file is the module of an entry point, in whichever folder the project keeps its modules."""
    module = entry_point.partition(":")[0].replace(".", "/")
    path = file.removesuffix("/__init__.py").removesuffix(".py")
    return path == module or path.endswith(f"/{module}")


def _tests(record: Record, contract_subject: str) -> dict[str, Any]:
    passed = [f"{record.id}/{clause.id}" for clause in record.clauses if clause.outcome is Outcome.PASS]
    failed = [f"{record.id}/{clause.id}" for clause in record.clauses if clause.outcome is Outcome.FAIL]
    warned: list[str] = []
    for mutant in record.mutants:
        if mutant.fate is Fate.KILLED:
            passed.append(f"{record.id}/mutants/{mutant.id}")
        elif mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED):
            failed.append(f"{record.id}/mutants/{mutant.id}")
    result = "FAILED"
    if record.verdict is Verdict.FAIL:
        failed.insert(0, record.id)
    elif record.verdict is Verdict.PASS:
        codes = {finding.code for finding in coverage(record, contract_subject)}
        narrowing = [code for code in _NARROWING if code in codes]
        if record.proven and not narrowing and not failed:
            result = "PASSED"
            passed.insert(0, record.id)
        elif not failed:
            result = "WARNED"
            warned = [record.id, *(f"{record.id}/remarks/{code}" for code in narrowing)]
    return {"result": result, "passedTests": passed, "warnedTests": warned, "failedTests": failed}
