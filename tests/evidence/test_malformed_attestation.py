"""Malformed attestations: damaged envelopes, files of another kind or in another place, signatures of any bytes."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner
from syrupy.assertion import SnapshotAssertion

from harness.evidence.bundle_layout import ATTESTATION, MANIFEST
from harness.evidence.findings import Code
from tests.evidence.attested import envelope_of, known, put, signing, told

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.mark.parametrize("signature", [b"\0" * 64, b"\0", b"\xff" * 64, b"x" * 3000])
def test_a_signature_of_any_bytes_is_nobodys(attested: Path, signer: CryptoSigner, signature: bytes) -> None:
    """A signature of any bytes and length is of no known key."""
    envelope = envelope_of(attested)
    envelope["signatures"] = [{"sig": base64.b64encode(signature).decode()}]
    put(attested, envelope)
    assert signing(known(attested, signer)) == {Code.UNKNOWN_KEY}


@pytest.mark.parametrize(
    "damage",
    [
        {"signatures": []},
        {"signatures": [{"keyid": "a"}]},
        {"signatures": [{"sig": ""}]},
        {"signatures": [{"sig": "?"}]},
        {"signatures": [{"sig": "QUI"}]},
        {"signatures": [{"sig": "QUJ="}]},
        {"signatures": [{"sig": "QQ==", "keyid": 7}]},
        {"signatures": [{"sig": "QQ=="}] * 33},
        {"signatures": {"sig": "QQ=="}},
        {"payload": "e30"},
        {"payload": "e3 0="},
        {"payload": 7},
        {"payloadType": None},
    ],
)
def test_an_envelope_that_is_none_is_invalid(
    attested: Path, signer: CryptoSigner, damage: Mapping[str, Any], snapshot: SnapshotAssertion
) -> None:
    """The finding has the place."""
    put(attested, {**envelope_of(attested), **damage})
    verification = known(attested, signer)
    assert signing(verification) == {Code.INVALID}
    assert [finding.pointer.startswith(f"/{next(iter(damage))}") for finding in verification.findings] == [True]
    assert told(verification) == snapshot


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"null\n", b"{}\n{}\n", b'{"payload": "", "payload": ""}', b"\xff\n", b"{" * 5000, b"a" * (17 << 20)],
)
def test_a_file_that_is_no_attestation_is_invalid(
    attested: Path, signer: CryptoSigner, content: bytes, snapshot: SnapshotAssertion
) -> None:
    """The file is invalid, whatever its size."""
    (attested / ATTESTATION).write_bytes(content)
    verification = known(attested, signer)
    assert signing(verification) == {Code.INVALID}
    assert told(verification) == snapshot


def test_two_attestations_are_none(attested: Path, signer: CryptoSigner) -> None:
    """With two attestations it is not clear which one counts, so neither does."""
    (attested / ATTESTATION).write_bytes((attested / ATTESTATION).read_bytes() * 2)
    assert signing(known(attested, signer)) == {Code.INVALID}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_no_attestation(attested: Path, tmp_path: Path, signer: CryptoSigner, kind: str) -> None:
    """A link in its place is refused, because its target could change."""
    place = attested / ATTESTATION
    moved = place.rename(tmp_path / "moved")
    {"link": lambda: place.symlink_to(moved), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[kind]()
    verification = known(attested, signer)
    assert Code.TAMPERED in signing(verification)
    assert verification.signed_by == ()


def test_a_manifest_that_lists_the_attestation_is_none(attested: Path, signer: CryptoSigner) -> None:
    """Neither the manifest nor the attestation could be written after the other."""
    with (attested / MANIFEST).open("a") as file:
        file.write(f"{'0' * 64}  {ATTESTATION}\n")
    assert Code.INVALID in signing(known(attested, signer))


def test_an_attestation_is_only_in_its_place(attested: Path, signer: CryptoSigner) -> None:
    """Elsewhere it is an ordinary file."""
    (attested / ATTESTATION).rename(attested / "artifacts" / ATTESTATION)
    verification = known(attested, signer)
    assert {Code.TAMPERED, Code.UNSIGNED} <= signing(verification)
    assert verification.signed_by == ()


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_noticed_or_was_never_signed(
    attested: Path, signer: CryptoSigner, data: st.DataObject
) -> None:
    """A flipped byte is a finding, or it changes only the hint at the key, which is not signed."""
    path = attested / ATTESTATION
    content = path.read_bytes()
    before = json.loads(content)
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = content[place] ^ data.draw(st.integers(1, 255))
    path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
    try:
        verification = known(attested, signer)
        if verification.signed_by:
            after = json.loads(path.read_bytes())
            same = ("payload", "payloadType")
            assert {name: after[name] for name in same} == {name: before[name] for name in same}
            assert after["signatures"][0]["sig"] == before["signatures"][0]["sig"]
        else:
            assert signing(verification)
    finally:
        path.write_bytes(content)
