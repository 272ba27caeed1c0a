"""attestation.intoto.jsonl: a signature over what a bundle says, in a form that other tools read.

    content = attest(record, contract_subject, manifest, signer)           # the file's bytes
    finding = check(content, record, contract_subject, manifest, trusted)  # what is wrong with it, and who signed it

The file has one line: a DSSE envelope (https://github.com/secure-systems-lab/dsse) over the bundle's in-toto statement.
The manifest does not list this file, because the statement names the manifest's digest.

Verifying takes nothing from the attestation. It makes the statement again from the bundle and compares every field
with the signed one. An unknown field, a longer list or a better result is FORGED. Data outside the signed bytes, such
as the name of a key, is not trusted.

The in-toto Statement
---------------------
The statement follows from the record alone, so an attestation cannot say more than its bundle. The form is in-toto
Statement v1 with the predicate test-result v0.1
(https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md).

Subject
    The sha256 of the manifest, which covers every file of the bundle. Also the commit that was tested, but only if the
    checkout certainly had no changes: with changes, the tested code is not that commit.
Configuration
    The sha256 of the contract, of every source file that the trials imported, and of the harness. Annotations name the
    source files of the falsifier, the subject and the mutants.
Tests
    `<claim>` is the claim itself, `<claim>/<clause>` is one of its clauses, and `<claim>/mutants/<id>` is the killing
    of a mutant. A clause is in the list of its outcome. A killed mutant has passed. A mutant that survived, or died of
    something else, has failed. A clause that was not measured, or a mutant that did not run, is in no list.
Result
    PASSED    the verdict is PASS, it is proven, and nothing narrows it; the claim is in passedTests
    WARNED    the verdict is PASS, but a remark narrows it; the claim is in warnedTests, with one entry
              `<claim>/remarks/<CODE>` for each remark (see `harness.evidence.findings`)
    FAILED    every other verdict. FAIL: the claim is in failedTests. VOID and NOT_MEASURED: it is in no list. The
              predicate has no result between WARNED and FAILED, and uses FAILED for tests that could not run. No policy
              should accept "not measured".

The statement of a sealed record must never change. If a change of this file changes the statement of an old record, the
signatures of that record become invalid. A test compares with the statement in tests/recorded.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from harness.base import schemas, strictjson
from harness.base.shortening import cut
from harness.base.strictjson import JsonObject, pointer
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.evidence.bundle_layout import ATTESTATION, MANIFEST
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.evidence.signing import Checked, KeyRefused
from harness.evidence.staleness import coverage
from harness.judging.record import Record
from harness.tools.sign import keys
from harness.tools.sign.keys import exposure, load_private, load_public

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "STATEMENT_TYPE",
    "AlreadySigned",
    "attest",
    "check",
    "exposure",
    "load_private",
    "load_public",
    "statement",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class AlreadySigned(ValueError):
    """The attestation already has a signature by this key."""


def attest(
    record: Record, contract_subject: str, manifest: bytes, signer: CryptoSigner, earlier: bytes | None = None
) -> bytes:
    """Return the content of a bundle's attestation.

    Args:
        contract_subject: the subject's entry point in the bundle's contract.
        manifest: the bytes of MANIFEST.sha256.
        signer: see `keys.load_private`.
        earlier: the attestation that the bundle has already, found sound by `check`. Its signatures are kept, and the
            new signature is over the same bytes.

    Raises:
        AlreadySigned: `earlier` has a signature by this key.
        KeyRefused: in-toto has no form for something in the record.
    """
    if earlier is None:
        document = statement(record, contract_subject, sha256(manifest).hexdigest())
        _check_form(document)
        return _line(keys.signed(json.dumps(document).encode("ascii"), PAYLOAD_TYPE, signer))
    envelope = _parse(earlier)
    key = {signer.public_key.keyid: signer.public_key}
    if any(keys.signers(envelope.payload, PAYLOAD_TYPE, envelope.signatures, key)):
        raise AlreadySigned(f"key {signer.public_key.keyid} has signed it already")
    added = keys.signed(envelope.payload, PAYLOAD_TYPE, signer)
    return _line({**added, "signatures": [*envelope.document["signatures"], *added["signatures"]]})


def check(
    content: bytes, record: Record, contract_subject: str, manifest: bytes, trusted: Mapping[str, SSlibKey]
) -> Checked:
    """Compare an attestation with its bundle.

    Args:
        content: the bytes of the file; not trusted.
        record: the bundle's record. contract_subject and manifest are as for `attest`.
        trusted: public keys by id. Without any, the signers stay unknown.
    """
    try:
        envelope = _parse(content)
        payload = strictjson.loads(envelope.payload)
    except _MalformedError as error:
        return _malformed(str(error), error.pointer)
    except strictjson.JsonError as error:
        return _malformed(str(error), "/payload")
    bundle = statement(record, contract_subject, sha256(manifest).hexdigest())
    findings = [*filter(None, [_difference(payload, bundle, "payload")])]
    made = keys.signers(envelope.payload, PAYLOAD_TYPE, envelope.signatures, trusted)
    for position, (named, by) in enumerate(zip(envelope.names, made, strict=True)):
        if named in trusted and named not in by:
            findings.append(_forged(Detail.NOT_BY_KEY, "signatures", position, key=named))
    signed_by = frozenset[str]().union(*made)
    if not signed_by and not findings:
        names = sorted({named[:80] for named in envelope.names})
        detail = Detail.SIGNERS_NOT_TRUSTED if trusted else Detail.NO_KEY_TRUSTED
        findings.append(finding(Code.UNKNOWN_KEY, detail, ATTESTATION, "/signatures", keys=names))
    return Checked(tuple(findings), () if findings else tuple(sorted(signed_by)))


@dataclass(frozen=True)
class _Envelope:
    document: JsonObject
    payload: bytes
    names: tuple[str, ...]
    """The key id that each signature states; empty if it states none."""
    signatures: tuple[bytes, ...]


class _MalformedError(ValueError):
    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.pointer = where


def _parse(content: bytes) -> _Envelope:
    lines = content.removesuffix(b"\n").split(b"\n")
    if len(lines) != 1:
        raise _MalformedError(f"has {len(lines)} lines; an attestation of ours is one envelope in one line")
    try:
        document = strictjson.loads(lines[0])
    except strictjson.JsonError as error:
        raise _MalformedError(error.message, error.pointer) from error
    for problem in schemas.problems("attestation", document):
        raise _MalformedError(problem.message[:300], problem.pointer)
    if document["payloadType"] != PAYLOAD_TYPE:
        message = f"is over {document['payloadType'][:80]!r}, not {PAYLOAD_TYPE!r}"
        raise _MalformedError(message, "/payloadType")
    return _Envelope(
        document,
        _decoded(document["payload"], "/payload"),
        tuple(signature.get("keyid") or "" for signature in document["signatures"]),
        tuple(
            _decoded(signature["sig"], pointer("signatures", position, "sig"))
            for position, signature in enumerate(document["signatures"])
        ),
    )


def _decoded(text: str, where: str) -> bytes:
    """Decode base64 of either alphabet, as DSSE requires. Each content has one valid text; other texts are refused."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        content = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _MalformedError(f"is not base64: {error}", where) from error
    if base64.b64encode(content).decode("ascii") != standard:
        raise _MalformedError("is base64 with bits left over", where)
    return content


def _malformed(text: str, where: str) -> Checked:
    return Checked((finding(Code.INVALID, Detail.PROBLEM, ATTESTATION, where, text=text, remedy=""),))


def _forged(detail: Detail, *steps: str | int, **fields: Any) -> Finding:
    return finding(Code.FORGED, detail, ATTESTATION, pointer(*steps), **fields)


_NOTHING = object()


def _difference(payload: Any, bundle: Any, *steps: str | int) -> Finding | None:
    """Return the first difference between the signed statement and that of the bundle; None if they are equal."""
    found, expected = _text(payload), _text(bundle)
    if found == expected:
        return None
    pairs: Iterable[tuple[str | int, Any, Any]]
    if isinstance(payload, dict) and isinstance(bundle, dict):
        names = sorted({*payload, *bundle})
        pairs = ((name, payload.get(name, _NOTHING), bundle.get(name, _NOTHING)) for name in names)
    elif isinstance(payload, list) and isinstance(bundle, list):
        items = enumerate(zip_longest(payload, bundle, fillvalue=_NOTHING))
        pairs = ((position, one, other) for position, (one, other) in items)
    else:
        return _forged(Detail.OTHER_STATEMENT, *steps, found=cut(found, 120), expected=cut(expected, 120))
    return next(filter(None, (_difference(one, other, *steps, step) for step, one, other in pairs)))


def _text(value: Any) -> str:
    return "nothing" if value is _NOTHING else json.dumps(value, sort_keys=True)


def _line(envelope: JsonObject) -> bytes:
    return json.dumps(envelope).encode("ascii") + b"\n"


def _check_form(document: JsonObject) -> None:
    """Refuse to sign a document that in-toto's own definitions do not accept, because other tools could not read it."""
    keys.require()
    from google.protobuf import json_format
    from in_toto_attestation.predicates.test_result.v0.test_result_pb2 import TestResult
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage

    try:
        Statement.copy_from_pb(json_format.ParseDict(document, StatementMessage())).validate()
        result = json_format.ParseDict(document["predicate"], TestResult())
        for descriptor in result.configuration:
            ResourceDescriptor.copy_from_pb(descriptor).validate()
    except (json_format.ParseError, ValueError) as error:
        raise KeyRefused(f"in-toto has no form for what this bundle says: {error}") from error


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
        here = {role: sorted({point for point in points if _lies_in(point, name)}) for role, points in roles.items()}
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
