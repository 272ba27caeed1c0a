"""attestation.intoto.jsonl: a signature over what a bundle says, in a form that others' tools read.

    content = attest(record, contract_subject, manifest, signer)           # the file's bytes
    finding = check(content, record, contract_subject, manifest, trusted)  # what is wrong with it, and who signed it

One line: a DSSE envelope (https://github.com/secure-systems-lab/dsse) over the bundle's in-toto statement (see
`harness.evidence.statement`). The manifest does not list this file, for the statement names the manifest's digest.

Nothing that verifying says is taken from the attestation: the statement is made again from the bundle, and every field
of the signed one must be the same. A field that we do not know, a list that is longer, a result that is better: FORGED.
What is outside the signed bytes, such as the name of a key, is believed of nobody.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from harness.base import schemas, strictjson
from harness.base.schemas import pointer
from harness.evidence import keys
from harness.evidence.findings import Code, Finding
from harness.evidence.layout import ATTESTATION
from harness.evidence.statement import statement
from harness.judging.record import Record

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = ["PAYLOAD_TYPE", "AlreadySigned", "Checked", "attest", "check"]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MOST_DIFFERENCES = 5


class AlreadySigned(ValueError):
    """An attestation has a signature of this key."""


@dataclass(frozen=True)
class Checked:
    """What came of checking an attestation."""

    findings: tuple[Finding, ...]
    signed_by: tuple[str, ...] = ()
    """The trusted keys that signed what the bundle says, by id; none where anything in it is wrong."""


def attest(
    record: Record, contract_subject: str, manifest: bytes, signer: CryptoSigner, earlier: bytes | None = None
) -> bytes:
    """The content of a bundle's attestation.

    Args:
        contract_subject: the subject's entry point in the bundle's contract.
        manifest: the bytes of MANIFEST.sha256.
        signer: see `keys.load_private`.
        earlier: the attestation that the bundle has already, found sound by `check`; its signatures are kept, and the
            new one is over the very bytes that they are over.

    Raises:
        AlreadySigned: by this key.
        keys.KeyRefused: the record has something that in-toto has no form for.
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
    """Hold an attestation against the bundle that it lies in.

    Args:
        content: of the file, from anybody.
        record: of the bundle, with contract_subject and manifest as for `attest`.
        trusted: public keys by id; where there are none, whose a signature is stays unknown.
    """
    try:
        envelope = _parse(content)
        said = strictjson.loads(envelope.payload)
    except _MalformedError as error:
        return Checked((Finding(Code.INVALID, ATTESTATION, str(error), error.pointer),))
    except strictjson.JsonError as error:
        return Checked((Finding(Code.INVALID, ATTESTATION, f"its payload: {error}", "/payload"),))
    findings = [*_contradictions(said, statement(record, contract_subject, sha256(manifest).hexdigest()))]
    made = keys.signers(envelope.payload, PAYLOAD_TYPE, envelope.signatures, trusted)
    for position, (named, by) in enumerate(zip(envelope.names, made, strict=True)):
        if named in trusted and named not in by:
            message = f"is not the trusted key's: {named} did not sign this"
            findings.append(Finding(Code.FORGED, ATTESTATION, message, pointer("signatures", position)))
    signed_by = frozenset[str]().union(*made)
    if not signed_by and not findings:
        names = ", ".join(sorted({named[:80] or "a key without a name" for named in envelope.names}))
        remedy = "none of them was named as trusted" if trusted else "say which key you trust with --trusted-key"
        message = f"signed in the name of {names}; {remedy}"
        findings.append(Finding(Code.UNKNOWN_KEY, ATTESTATION, message, "/signatures"))
    return Checked(tuple(findings), () if findings else tuple(sorted(signed_by)))


@dataclass(frozen=True)
class _Envelope:
    document: Mapping[str, Any]
    payload: bytes
    names: tuple[str, ...]
    """What each signature calls its key; empty where it does not."""
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
        tuple(one.get("keyid") or "" for one in document["signatures"]),
        tuple(
            _decoded(one["sig"], pointer("signatures", position, "sig"))
            for position, one in enumerate(document["signatures"])
        ),
    )


def _decoded(text: str, where: str) -> bytes:
    """Bytes from base64, of either alphabet, as DSSE wants; of several texts for the same bytes only one is taken."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        content = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _MalformedError(f"is no base64: {error}", where) from error
    if base64.b64encode(content).decode("ascii") != standard:
        raise _MalformedError("is base64 with bits left over", where)
    return content


def _contradictions(said: Any, bundle: Any) -> Iterator[Finding]:
    differences = _differences(said, bundle, ())
    for number, (steps, message) in enumerate(differences):
        if number == _MOST_DIFFERENCES:
            yield Finding(Code.FORGED, ATTESTATION, "and there is more in it that the bundle does not say")
            return
        yield Finding(Code.FORGED, ATTESTATION, f"its statement: {message}", pointer("payload", *steps))


def _differences(said: Any, bundle: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(said, dict) and isinstance(bundle, dict):
        for name in sorted({*said, *bundle}):
            if name not in bundle:
                yield (*steps, name), f"has {name[:80]!r}, which no statement of ours has"
            elif name not in said:
                yield (*steps, name), f"lacks {name!r}"
            else:
                yield from _differences(said[name], bundle[name], (*steps, name))
    elif isinstance(said, list) and isinstance(bundle, list):
        if len(said) != len(bundle):
            yield steps, f"has {len(said)} items; the bundle makes {len(bundle)}"
        for position, (one, other) in enumerate(zip(said, bundle, strict=False)):
            yield from _differences(one, other, (*steps, position))
    elif type(said) is not type(bundle) or said != bundle:
        yield steps, f"says {_short(said)}; the bundle says {_short(bundle)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "…"


def _line(envelope: Mapping[str, Any]) -> bytes:
    return json.dumps(envelope).encode("ascii") + b"\n"


def _check_form(document: Mapping[str, Any]) -> None:
    """What we sign must be a statement for everybody else too: in-toto's own definitions decide."""
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
        raise keys.KeyRefused(f"in-toto has no form for what this bundle says: {error}") from error
