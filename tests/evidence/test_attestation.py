"""Attestations from an attacker: an attestation must agree with its bundle, and only keys show who signed it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey
from sigstore import dsse as sigstore_dsse
from syrupy.assertion import SnapshotAssertion

from harness.evidence.bundle_layout import ATTESTATION, MANIFEST, RECORD
from harness.evidence.findings import Code, Detail
from harness.evidence.signing import KeyRefused
from harness.evidence.verification import Against, verify
from harness.tools.sign import attestation
from harness.tools.sign import signing as signing_of_bundles
from harness.tools.sign.attestation import PAYLOAD_TYPE, AlreadySigned
from harness.tools.sign.keys import load_public
from harness.tools.sign.signing import sign
from tests.evidence.attested import envelope_of, forge, known, put, signing, statement_of, told
from tests.evidence.factory import files_of, rewrite, sealed, set_at

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def stranger() -> CryptoSigner:
    """A key that is not trusted."""
    return CryptoSigner.generate_ed25519()


def test_an_unsigned_bundle_says_so_and_is_sound(bundle: Path, signer: CryptoSigner) -> None:
    """The bundle is sound and unsigned, also if a key is trusted."""
    for verification in (known(bundle), known(bundle, signer)):
        assert verification.sound
        assert (signing(verification), verification.signed_by) == ({Code.UNSIGNED}, ())


def test_a_signed_bundle_is_signed_by_whom_we_trust(
    attested: Path, signer: CryptoSigner, stranger: CryptoSigner
) -> None:
    """The signer is known with the right trusted key, and unknown without a key or with another one."""
    assert (signing(known(attested, stranger, signer)), known(attested, signer).signed_by) == (
        set(),
        (signer.public_key.keyid,),
    )
    for verification in (known(attested), known(attested, stranger)):
        assert verification.sound
        assert (signing(verification), verification.signed_by) == ({Code.UNKNOWN_KEY}, ())


def test_signing_changes_nothing_that_is_sealed(bundle: Path, signer: CryptoSigner) -> None:
    """Signing adds one file, with the mode of the others, and leaves no file beside the bundle."""
    before = {name: (bundle / name).read_bytes() for name in files_of(bundle)}
    (bundle / MANIFEST).chmod(0o640)
    sign(bundle, signer)
    assert {name: (bundle / name).read_bytes() for name in files_of(bundle) if name != ATTESTATION} == before
    assert (bundle / ATTESTATION).stat().st_mode & 0o777 == 0o640
    assert list(bundle.parent.iterdir()) == [bundle]
    assert (bundle / ATTESTATION).read_bytes().count(b"\n") == 1


def test_several_may_sign_one_statement(attested: Path, signer: CryptoSigner, stranger: CryptoSigner) -> None:
    """The signatures are over the same bytes. A signer cannot sign twice."""
    payload = envelope_of(attested)["payload"]
    sign(attested, stranger)
    assert envelope_of(attested)["payload"] == payload
    both = tuple(sorted({signer.public_key.keyid, stranger.public_key.keyid}))
    assert known(attested, signer, stranger).signed_by == both
    assert known(attested, signer).signed_by == (signer.public_key.keyid,)
    before = (attested / ATTESTATION).read_bytes()
    for key in (signer, stranger):
        with pytest.raises(AlreadySigned):
            sign(attested, key)
    assert (attested / ATTESTATION).read_bytes() == before


def test_who_sign_at_the_same_moment_all_have_signed(bundle: Path) -> None:
    """Each signer adds a signature to the existing ones, and none is lost."""
    signers = [CryptoSigner.generate_ed25519() for _ in range(4)]
    with ThreadPoolExecutor(len(signers)) as pool:
        list(pool.map(lambda key: sign(bundle, key), signers))
    assert set(known(bundle, *signers).signed_by) == {signer.public_key.keyid for signer in signers}


def test_an_unsound_bundle_is_not_signed(bundle: Path, attested: Path, signer: CryptoSigner) -> None:
    """A bundle with a forged attestation is not signed either."""
    forge(attested, {**statement_of(attested), "subject": []}, signer)
    with pytest.raises(KeyRefused, match="FORGED"):
        sign(attested, signer)
    (bundle / ATTESTATION).unlink()
    rewrite(bundle, RECORD, set_at("proven", False))
    with pytest.raises(KeyRefused, match="REJUDGED_DIFFERENTLY"):
        sign(bundle, signer)
    assert not (bundle / ATTESTATION).exists()


# Enemies


def test_an_attestation_of_another_bundle_is_forged(attested: Path, tmp_path: Path, signer: CryptoSigner) -> None:
    """The other bundle has the same claim, commit and measurements."""
    other = sealed(tmp_path / "other", run="2026-11-20T201504Z-cpu-3f2a9d")
    sign(other, signer)
    (attested / ATTESTATION).write_bytes((other / ATTESTATION).read_bytes())
    verification = known(attested, signer)
    assert (signing(verification), verification.signed_by) == ({Code.FORGED}, ())
    assert "/payload/subject/0/digest/sha256" in {finding.pointer for finding in verification.findings}


def test_a_signed_bundle_can_be_moved(attested: Path, tmp_path: Path, signer: CryptoSigner) -> None:
    """The signature covers the content only."""
    moved = attested.rename(tmp_path / "elsewhere")
    assert known(moved, signer).signed_by == (signer.public_key.keyid,)


@pytest.mark.parametrize(
    "change",
    [
        set_at("verdict", "FAIL"),
        set_at("profile", "full"),
        set_at("seed", 7),
        set_at("commit", "dirty", True),
        set_at("reason", {"code": "unproven"}),
        set_at("sources", {}),
        set_at("seconds", 1.0),
    ],
)
def test_a_record_changed_under_its_signature_is_forged(
    attested: Path, signer: CryptoSigner, change: Callable[[Any], None]
) -> None:
    """Judging again would not notice the change, and the manifest agrees with it. The attestation shows it."""
    path, content = attested / ATTESTATION, (attested / ATTESTATION).read_bytes()
    path.unlink()
    rewrite(attested, RECORD, change)
    path.write_bytes(content)
    verification = known(attested, signer)
    assert Code.FORGED in signing(verification)
    assert verification.signed_by == ()


def test_a_re_signed_bundle_is_of_an_unknown_key(attested: Path, signer: CryptoSigner, stranger: CryptoSigner) -> None:
    """An attacker can sign a changed bundle, but only with their own key."""
    (attested / ATTESTATION).unlink()
    rewrite(attested, RECORD, set_at("profile_reason", "all is well"))
    sign(attested, stranger)
    assert signing(known(attested, signer)) == {Code.UNKNOWN_KEY}
    envelope = envelope_of(attested)
    envelope["signatures"][0]["keyid"] = signer.public_key.keyid
    put(attested, envelope)
    assert signing(known(attested, signer)) == {Code.FORGED}


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["predicate"].update(result="PASSED"),
        lambda said: said["predicate"].update(verdict="PASS"),
        lambda said: said.update(note="fine"),
        lambda said: said["predicate"]["passedTests"].append("F-DEMO-SORT-002"),
        lambda said: said["predicate"]["passedTests"].pop(),
        lambda said: said["predicate"].pop("warnedTests"),
        lambda said: said["predicate"].update(failedTests=[0]),
        lambda said: said["subject"].append(said["subject"][0]),
        lambda said: said["subject"][1]["digest"].update(gitCommit="0" * 40),
        lambda said: said["subject"].pop(1),
        lambda said: said["predicate"]["configuration"][0]["digest"].update(sha256="0" * 64),
        lambda said: said["predicate"]["configuration"][0]["annotations"].update(profile="full"),
        lambda said: said.update(predicateType="https://slsa.dev/verification_summary/v1"),
        lambda said: said.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda said: said.update(subject={"name": "MANIFEST.sha256"}),
        lambda said: said.update(predicate=True),
    ],
)
def test_a_statement_that_says_otherwise_is_forged(
    attested: Path, signer: CryptoSigner, change: Callable[[Any], Any], snapshot: SnapshotAssertion
) -> None:
    """The attestation is forged, although the trusted key signed it. Verification takes nothing from the statement."""
    said = statement_of(attested)
    before = copy.deepcopy(said)
    change(said)
    assert said != before
    forge(attested, said, signer)
    verification = known(attested, signer)
    assert (signing(verification), verification.signed_by) == ({Code.FORGED}, ())
    assert all(finding.pointer.startswith("/payload") for finding in verification.findings)
    assert told(verification) == snapshot


@pytest.mark.parametrize(
    "payload", [b"", b"null", b"[]", b"0", b'"PASSED"', b"{", b'{"a":1,"a":2}', b"\xff", b"[" * 100_000]
)
def test_a_payload_that_is_no_statement_is_unsound(
    attested: Path, signer: CryptoSigner, payload: bytes, snapshot: SnapshotAssertion
) -> None:
    """The bundle is unsound, although the payload is signed."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    put(attested, envelope.to_dict())
    assert signing(known(attested, signer)) <= {Code.FORGED, Code.INVALID}
    assert not known(attested, signer).sound
    assert told(known(attested, signer)) == snapshot


def test_a_signature_over_another_payload_type_is_forged(attested: Path, signer: CryptoSigner) -> None:
    """The type is signed too; one that is not in-toto's is not read."""
    said = statement_of(attested)
    forge(attested, said, signer, payload_type="application/json")
    assert signing(known(attested, signer)) == {Code.INVALID}
    envelope = envelope_of(attested)
    envelope["payloadType"] = PAYLOAD_TYPE
    put(attested, envelope)
    assert signing(known(attested, signer)) == {Code.FORGED}


def test_the_name_of_a_key_is_a_hint(attested: Path, signer: CryptoSigner, stranger: CryptoSigner) -> None:
    """A name that is missing, null or of another scheme changes nothing.

    The key that verifies a signature is the signer.
    """
    envelope = envelope_of(attested)
    for name in (None, "", "SHA256:abc", stranger.public_key.keyid):
        envelope["signatures"][0]["keyid"] = name
        put(attested, envelope)
        assert known(attested, signer).signed_by == (signer.public_key.keyid,)
    del envelope["signatures"][0]["keyid"]
    put(attested, envelope)
    assert known(attested, signer).signed_by == (signer.public_key.keyid,)
    assert signing(known(attested)) == {Code.UNKNOWN_KEY}


def test_a_false_signature_beside_a_true_one(attested: Path, signer: CryptoSigner, stranger: CryptoSigner) -> None:
    """A false signature in the name of a trusted key is forged. One in the name of another key is only unknown."""
    envelope = envelope_of(attested)
    false = {"keyid": signer.public_key.keyid, "sig": base64.b64encode(bytes(64)).decode()}
    put(attested, {**envelope, "signatures": [*envelope["signatures"], false]})
    assert signing(known(attested, signer)) == {Code.FORGED}
    false["keyid"] = stranger.public_key.keyid
    put(attested, {**envelope, "signatures": [false, *envelope["signatures"]]})
    assert known(attested, signer).signed_by == (signer.public_key.keyid,)


def test_a_signer_that_is_not_trusted_is_named(attested: Path, signer: CryptoSigner, stranger: CryptoSigner) -> None:
    """An untrusted signer is named once, by the id that the signature states, cut to 80 characters."""
    envelope = envelope_of(attested)
    signature = envelope["signatures"][0]
    envelope["signatures"] = [
        {**signature, "keyid": "b" * 90},
        {**signature, "keyid": "a"},
        {**signature, "keyid": "a"},
    ]
    put(attested, envelope)
    for trusted, detail in (((), Detail.NO_KEY_TRUSTED), ((stranger,), Detail.SIGNERS_NOT_TRUSTED)):
        (remark,) = [remark for remark in known(attested, *trusted).remarks if remark.code is Code.UNKNOWN_KEY]
        assert (remark.detail, remark.pointer, remark.fields) == (detail, "/signatures", {"keys": ["a", "b" * 80]})


def test_of_many_differences_the_first_is_found(attested: Path, signer: CryptoSigner) -> None:
    """The finding names the first difference, also where one of the two has nothing."""
    forge(attested, {**statement_of(attested), "a": None, "b": 0}, signer)
    (forged,) = known(attested, signer).findings
    assert (forged.pointer, forged.fields) == ("/payload/a", {"found": "null", "expected": "nothing"})


@pytest.mark.parametrize(
    ("entry_point", "file", "lies_in"),
    [
        ("a.b:C", "a/b.py", True),
        ("a.b:C", "src/a/b.py", True),
        ("a.b:C", "src/a/b/__init__.py", True),
        ("a.b:C", "a/b", True),
        ("a.b:C", "xa/b.py", False),
        ("a.b:C", "a/b/c.py", False),
        ("b:C", "a/b.py", True),
        ("a.b", "b.py", False),
    ],
)
def test_the_file_of_an_entry_point(entry_point: str, file: str, lies_in: bool) -> None:
    assert attestation._lies_in(entry_point, file) is lies_in


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_the_statement_is_forged(attested: Path, signer: CryptoSigner, data: st.DataObject) -> None:
    """A change of any value is found. The trusted key's signature does not help."""
    content = (attested / ATTESTATION).read_bytes()
    said = statement_of(attested)
    before = copy.deepcopy(said)
    parent, key, place = None, None, said
    while isinstance(place, (dict, list)) and place and (parent is None or data.draw(st.booleans())):
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        parent, place = place, place[key]
    parent[key] = data.draw(json_values)
    try:
        forge(attested, said, signer)
        verification = known(attested, signer)
        assert (Code.FORGED in signing(verification)) == (json.dumps(said) != json.dumps(before))
        assert bool(verification.signed_by) == (json.dumps(said) == json.dumps(before))
    finally:
        (attested / ATTESTATION).write_bytes(content)


def test_a_bundle_that_changes_after_it_was_verified_is_not_signed(
    bundle: Path, signer: CryptoSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signer notices that the record has vanished."""
    sound = verify(bundle)
    (bundle / RECORD).unlink()
    monkeypatch.setattr(signing_of_bundles, "verify", lambda _: sound)
    with pytest.raises(KeyRefused):
        sign(bundle, signer)
    assert not (bundle / ATTESTATION).exists()


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
