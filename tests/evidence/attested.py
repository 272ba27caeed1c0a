"""Signed bundles: verify them, take them apart, and forge them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from harness.evidence.bundle_layout import ATTESTATION
from harness.evidence.findings import Code, Verification
from harness.evidence.verification import Against, verify
from harness.tools.sign.attestation import PAYLOAD_TYPE


def known(bundle: Path, *signers: CryptoSigner) -> Verification:
    """The verification with these trusted keys."""
    keys = {signer.public_key.keyid: signer.public_key for signer in signers}
    return verify(bundle, against=Against(keys))


def signing(verification: Verification) -> set[Code]:
    """The findings about signatures, and all that make the bundle unsound."""
    about = {Code.UNSIGNED, Code.UNKNOWN_KEY}
    return {finding.code for finding in (*verification.findings, *(r for r in verification.remarks if r.code in about))}


def envelope_of(bundle: Path) -> Any:
    """The parsed envelope."""
    return json.loads((bundle / ATTESTATION).read_text())


def statement_of(bundle: Path) -> Any:
    """The parsed payload."""
    return json.loads(base64.b64decode(envelope_of(bundle)["payload"]))


def put(bundle: Path, envelope: Any) -> None:
    """Write an envelope."""
    (bundle / ATTESTATION).write_text(json.dumps(envelope) + "\n")


def forge(bundle: Path, statement: Any, *signers: CryptoSigner, payload_type: str = PAYLOAD_TYPE) -> None:
    """Write an envelope over a statement."""
    envelope = Envelope(json.dumps(statement).encode(), payload_type, {})
    for signer in signers:
        envelope.sign(signer)
    put(bundle, envelope.to_dict())


def told(verification: Verification) -> list[str]:
    """The findings with their fields, without digests, and without Python's messages about JSON and base64."""
    lines = []
    for finding in verification.findings:
        fields = {
            **finding.fields,
            **({"text": finding.fields["text"].partition(": ")[0]} if "text" in finding.fields else {}),
        }
        lines.append(
            re.sub(
                r"[0-9a-f]{40,}|[0-9a-f]{4,}(?=\\u2026)", "DIGEST", f"{finding} {finding.detail} {json.dumps(fields)}"
            )
        )
    return lines
