"""Signing a bundle that is sealed already, without touching what is sealed.

sign(bundle, load_private(Path("ci.key")))
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import strictjson
from harness.evidence import attestation, manifest, reader
from harness.evidence.durable import sync_folder
from harness.evidence.findings import Severity
from harness.evidence.keys import KeyRefused
from harness.evidence.layout import ATTESTATION, CONTRACT, MANIFEST, RECORD
from harness.evidence.verify import verify
from harness.judging.record import Record

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

__all__ = ["sign"]


def sign(bundle: Path, signer: CryptoSigner) -> None:
    """Put an attestation into a bundle, or a signature into the one that it has; who signs beside us waits.

    Raises:
        KeyRefused: the bundle is unsound.
        attestation.AlreadySigned: this key has signed it.
        OSError: it cannot be read or written; it is as it was.
    """
    known = verify(bundle)
    if not known.sound:
        raise KeyRefused(f"it is unsound: {known.problem}")
    sealed = reader.read(bundle, MANIFEST)[0]
    if sha256(sealed).hexdigest() != known.manifest:
        raise KeyRefused(_CHANGED)
    # Verified in a process of its own, so these are of their formats, and of a size to read here.
    digests = manifest.parse(sealed)
    record = Record.from_json(_verified(bundle, RECORD, digests))
    subject = _verified(bundle, CONTRACT, digests)["subject"]
    with _alone(bundle):
        earlier = reader.read(bundle, ATTESTATION)[0] if (bundle / ATTESTATION).exists() else None
        if earlier is not None:
            said = attestation.check(earlier, record, subject, sealed, {}).findings
            if any(finding.code.severity is Severity.UNSOUND for finding in said):
                raise KeyRefused(_CHANGED)
        _put(attestation.attest(record, subject, sealed, signer, earlier), bundle)


@contextmanager
def _alone(bundle: Path) -> Iterator[None]:
    """Nobody else signs the bundle meanwhile: of two signatures added to one attestation, one would be lost."""
    descriptor = os.open(bundle, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put(content: bytes, bundle: Path) -> None:
    """Write it beside the bundle, whose files are those of the manifest at any moment, and move it into place whole."""
    descriptor, name = tempfile.mkstemp(prefix=".attestation-", dir=bundle.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, (bundle / MANIFEST).stat().st_mode & 0o777)
            os.fsync(descriptor)
        os.replace(name, bundle / ATTESTATION)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(bundle)


def _verified(bundle: Path, name: str, digests: Mapping[str, str]) -> Any:
    content, digest = reader.read(bundle, name)
    if digest != digests[name]:
        raise KeyRefused(_CHANGED)
    return strictjson.loads(content)


_CHANGED = "it was changed while it was verified; look who does that, and sign it again"
