"""Signing keys: how to make, read and use them.

    harness keygen ci.key           writes ci.key (private, for you alone) and ci.key.pub

The harness makes Ed25519 keys (RFC 8032). It also reads ECDSA keys over P-256, because other tools make them. Files
are PEM, as `openssl pkey` reads and writes them: PKCS #8 without a passphrase for a private key, SubjectPublicKeyInfo
for a public key. The id of a key is the sha256 that securesystemslib computes from its public half.

The libraries are the extra `sign`. They are imported on the first use of a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import regular_file
from harness.base.plugins import installation
from harness.evidence.signing import KeyRefused

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = ["exposure", "generate", "load_private", "load_public", "require", "signed", "signers"]

_LARGEST = 1 << 16
"""Bytes of a key's file. A pipe or a disk image that is named by mistake is refused."""


def generate(path: Path) -> tuple[SSlibKey, Path]:
    """Make an Ed25519 key: the private half at `path`, readable by its owner only; the public half beside it as .pub.

    Returns:
        The public half, and its file.

    Raises:
        KeyRefused: a file exists already (no file is overwritten), or cannot be written.
    """
    require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.signer import CryptoSigner

    private = Ed25519PrivateKey.generate()
    signer = CryptoSigner(private)
    public_pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public = path.with_name(path.name + ".pub")
    written: list[Path] = []
    try:
        for place, content, mode in ((path, signer.private_bytes, 0o600), (public, public_pem, 0o644)):
            with open(place, "xb", opener=partial(os.open, mode=mode)) as file:
                written.append(place)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        for place in written:
            place.unlink(missing_ok=True)
        place = path if path not in written else public
        remedy = "name another file, or move that one away" if isinstance(error, FileExistsError) else ""
        raise KeyRefused(f"{place} is not written: {error.strerror}" + (f"; {remedy}" if remedy else "")) from error
    return signer.public_key, public


def load_private(path: Path) -> CryptoSigner:
    """Read a private key.

    Raises:
        KeyRefused: the file does not exist, or holds no private key that can sign.
    """
    require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    content = _read(path)
    try:
        signer = CryptoSigner(load_pem_private_key(content, password=None))
    except TypeError as error:
        raise KeyRefused(f"{path} has a passphrase; take it off with `openssl pkey -in {path} -out FILE`") from error
    except (ValueError, UnsupportedAlgorithm):  # their texts may quote the file
        hint = "it is the public key; name the private one" if b"PUBLIC KEY-----" in content else _FORM
        raise KeyRefused(f"{path} is not a private key in PEM: {hint}") from None
    _check_kind(path, signer.public_key)
    return signer


def exposure(path: Path) -> str:
    """Return a warning with its remedy if others can read a private key; empty if only its owner can."""
    mode = path.stat().st_mode & 0o777
    return f"{path} is a private key that others can read (mode {mode:o}); chmod 600 {path}" if mode & 0o077 else ""


def load_public(path: Path) -> SSlibKey:
    """Read a public key.

    Raises:
        KeyRefused: the file does not exist, or holds no public key.
    """
    require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    content = _read(path)
    try:
        key = SSlibKey.from_crypto(load_pem_public_key(content))
    except (ValueError, UnsupportedAlgorithm):
        private = b"PRIVATE KEY-----" in content
        hint = "it is a private key; name the public one beside it, and keep this one to yourself" if private else _FORM
        raise KeyRefused(f"{path} is not a public key in PEM: {hint}") from None
    _check_kind(path, key)
    return key


def signed(payload: bytes, payload_type: str, signer: CryptoSigner) -> dict[str, Any]:
    """Return a DSSE envelope over a payload, with one signature."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(payload, payload_type, {})
    envelope.sign(signer)
    document: dict[str, Any] = envelope.to_dict()
    return document


def signers(
    payload: bytes, payload_type: str, signatures: Iterable[bytes], trusted: Mapping[str, SSlibKey]
) -> list[frozenset[str]]:
    """Return, for each signature, the ids of the trusted keys that made it.

    The key id that a signature states is not used: it is not signed, and other tools name keys in other ways.
    """
    if not trusted:
        return [frozenset() for _ in signatures]
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error
    from securesystemslib.signer import Signature

    content = Envelope(payload, payload_type, {}).pae()
    signers_by_envelope: list[frozenset[str]] = []
    for signature in signatures:
        made: set[str] = set()
        for identifier, key in trusted.items():
            try:
                key.verify_signature(Signature(identifier, signature.hex()), content)
            except Error:  # the nearest common base of the kinds of failure
                continue
            made.add(identifier)
        signers_by_envelope.append(frozenset(made))
    return signers_by_envelope


_FORM = "make one with `harness keygen FILE`, or convert it with `openssl pkey`"


def _read(path: Path) -> bytes:
    if not path.name:  # Path("") is the present folder; an unset variable on a command line gives ""
        raise KeyRefused("no file is named")
    try:
        return regular_file.read(path, _LARGEST)
    except OSError as error:
        raise KeyRefused(f"{path} cannot be read: {error.strerror}") from error


def _check_kind(path: Path, key: SSlibKey) -> None:
    if key.scheme not in ("ed25519", "ecdsa-sha2-nistp256"):
        raise KeyRefused(f"{path} is a key of the kind {key.scheme}; Ed25519 and ECDSA over P-256 are taken")


def require() -> None:
    """Check that the packages for signing are installed.

    Raises:
        KeyRefused: one of them cannot be imported.
    """
    for name in ("cryptography", "securesystemslib", "in_toto_attestation"):
        try:
            import_module(name)
        except ImportError as error:  # the package, or one that it needs, is missing
            raise KeyRefused(
                f"signatures need the package {name}, which cannot be imported: {error}; {installation('sign')}"
            ) from error
