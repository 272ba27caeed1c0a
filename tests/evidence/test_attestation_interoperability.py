"""Attestations and other tools: sigstore reads ours, and we read sigstore's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.signer import CryptoSigner, SSlibKey
from sigstore import dsse as sigstore_dsse

from harness.evidence.bundle_layout import ATTESTATION
from harness.evidence.verification import Against, verify
from harness.tools.sign.keys import load_public
from harness.tools.sign.signing import sign
from tests.evidence.attested import envelope_of, statement_of
from tests.evidence.factory import sealed


def p256() -> tuple[CryptoSigner, Any]:
    """A key of the kind that sigstore signs with, for both sides."""
    private = ec.generate_private_key(ec.SECP256R1())
    return CryptoSigner(private), private


def test_sigstore_verifies_ours(bundle: Path) -> None:
    """sigstore's implementation of DSSE shares no code with ours. It takes only P-256."""
    signer, private = p256()
    sign(bundle, signer)
    theirs = sigstore_dsse.Envelope._from_json((bundle / ATTESTATION).read_bytes())
    payload = sigstore_dsse._verify(private.public_key(), theirs)
    assert json.loads(payload) == statement_of(bundle)


def test_sigstores_encoding_is_what_our_ed25519_signatures_are_over(attested: Path, signer: CryptoSigner) -> None:
    """`cryptography` alone verifies our Ed25519 signatures over the bytes that sigstore defines."""
    theirs = sigstore_dsse.Envelope._from_json((attested / ATTESTATION).read_bytes())
    signer.public_key._crypto_key().verify(theirs.signature, theirs.pae())  # raises InvalidSignature


def test_we_verify_sigstores(tmp_path: Path) -> None:
    """sigstore spells the envelope differently, and writes a missing key differently."""
    # sigstore's statements have no gitCommit, and neither has a statement of a dirty tree.
    bundle = sealed(tmp_path, commit={"revision": "c" * 40, "dirty": True, "reason": None})
    signer, private = p256()
    sign(bundle, signer)
    statement = sigstore_dsse.Statement(json.dumps(statement_of(bundle), indent=1).encode())
    (bundle / ATTESTATION).write_text(sigstore_dsse._sign(private, statement).to_json())
    assert b"keyid" not in (bundle / ATTESTATION).read_bytes() or not envelope_of(bundle)["signatures"][0]["keyid"]
    public = tmp_path / "key.pub"
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    key: SSlibKey = load_public(public)
    assert verify(bundle, against=Against({key.keyid: key})).signed_by == (key.keyid,)
