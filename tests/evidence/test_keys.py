"""Signing keys: files that are made, read and refused."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from syrupy.assertion import SnapshotAssertion

from harness.base.plugins import installation
from harness.evidence.signing import KeyRefused
from harness.tools.sign import keys
from harness.tools.sign.keys import exposure, generate, load_private, load_public, signed, signers


def test_a_key_has_two_files(tmp_path: Path) -> None:
    """Only the owner can read the private half, whatever the umask is."""
    before = os.umask(0)
    try:
        key, public = generate(tmp_path / "ci.key")
    finally:
        os.umask(before)
    assert public == tmp_path / "ci.key.pub"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ci.key": 0o600, "ci.key.pub": 0o644}
    assert load_public(public).to_dict() == key.to_dict()
    assert load_private(tmp_path / "ci.key").public_key.to_dict() == key.to_dict()
    assert load_public(public).keyid == key.keyid


@pytest.mark.parametrize("taken", ["a.key", "a.key.pub"])
def test_a_file_that_is_there_stays(tmp_path: Path, taken: str) -> None:
    """An existing file is not replaced, and no other half is left."""
    (tmp_path / taken).write_text("mine")
    with pytest.raises(KeyRefused) as refused:
        generate(tmp_path / "a.key")
    place = tmp_path / taken
    assert str(refused.value) == f"{place} is not written: File exists; name another file, or move that one away"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(taken, "mine")]


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused) as refused:
        generate(tmp_path / "none" / "a.key")
    assert str(refused.value) == f"{tmp_path / 'none' / 'a.key'} is not written: No such file or directory"


@pytest.mark.parametrize(
    ("mode", "is_exposed"),
    [(0o600, False), (0o400, False), (0o700, False), (0o640, True), (0o604, True), (0o601, True)],
)
def test_a_key_that_others_can_read_is_told(tmp_path: Path, mode: int, is_exposed: bool) -> None:
    path = tmp_path / "a.key"
    path.touch()
    path.chmod(mode)
    expected = f"{path} is a private key that others can read (mode {mode:o}); chmod 600 {path}" if is_exposed else ""
    assert exposure(path) == expected


def contents() -> dict[str, bytes]:
    """Files that are not the expected key."""
    form = (Encoding.PEM, PrivateFormat.PKCS8)
    own = ed25519.Ed25519PrivateKey.generate()
    public = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    large = rsa.generate_private_key(65537, 2048)
    return {
        "empty": b"",
        "garbage": b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
        "private": own.private_bytes(*form, NoEncryption()),
        "public": own.public_key().public_bytes(*public),
        "passphrase": own.private_bytes(*form, BestAvailableEncryption(b"open sesame")),
        "rsa": large.private_bytes(*form, NoEncryption()),
        "rsa public": large.public_key().public_bytes(*public),
        "p384": ec.generate_private_key(ec.SECP384R1()).private_bytes(*form, NoEncryption()),
        "large": own.private_bytes(*form, NoEncryption()).ljust(keys._LARGEST + 1),
    }


def test_what_is_no_key_says_so(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Each file is refused as a private and as a public key. No message quotes the file."""
    notes: dict[str, list[str]] = {}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, content in contents().items():
        (tmp_path / name).write_bytes(content)
    for name in (*contents(), "pipe", "folder", "missing"):
        for load in (load_private, load_public):
            try:
                load(tmp_path / name)
            except KeyRefused as error:
                notes.setdefault(name, []).append(str(error).replace(str(tmp_path), "FOLDER"))
            else:
                notes.setdefault(name, []).append("taken")
    assert notes == snapshot
    with pytest.raises(KeyRefused, match="no file is named"):
        load_public(Path(""))


def test_a_key_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_bytes(contents()["private"].ljust(keys._LARGEST))
    assert load_private(tmp_path / "a.key").public_key.scheme == "ed25519"


def test_a_key_over_p256_is_taken(tmp_path: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "a.key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert load_private(tmp_path / "a.key").public_key.scheme == "ecdsa-sha2-nistp256"


def test_signers_are_those_whose_key_verifies(tmp_path: Path) -> None:
    """The signer of each signature is found by verification, whatever key the signature names."""
    halves = [generate(tmp_path / name)[0] for name in ("a", "b", "c")]
    trusted = {key.keyid: key for key in halves[:2]}
    made = [signed(b"payload", "type", load_private(tmp_path / name)) for name in ("a", "b", "c")]
    signatures = [base64.b64decode(envelope["signatures"][0]["sig"]) for envelope in made]
    first, second = (frozenset({key.keyid}) for key in halves[:2])
    assert signers(b"payload", "type", [*signatures, b"", b"x" * 64], trusted) == [first, second, *[frozenset()] * 3]
    assert signers(b"payload", "another", signatures, trusted) == [frozenset()] * 3
    assert signers(b"other", "type", signatures[:1], trusted) == [frozenset()]
    assert signers(b"payload", "type", signatures, {}) == [frozenset()] * 3


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is named with the remedy, for each of the packages."""
    questions: list[str] = []
    monkeypatch.setattr(keys, "import_module", questions.append)
    keys.require()
    assert questions == ["cryptography", "securesystemslib", "in_toto_attestation"]

    def missing(name: str) -> None:
        raise ImportError("no such package")

    monkeypatch.setattr(keys, "import_module", missing)
    with pytest.raises(KeyRefused) as refused:
        keys.require()
    assert str(refused.value) == (
        f"signatures need the package cryptography, which cannot be imported: no such package; {installation('sign')}"
    )
