"""Signing a sealed bundle. The sealed files do not change.

sign(bundle, load_private(Path("ci.key")))
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.beneath import Beneath
from harness.evidence.atomic_dir import locked, sync_folder
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import ATTESTATION, CONTRACT, MANIFEST, RECORD
from harness.evidence.findings import Severity
from harness.evidence.signing import KeyRefused
from harness.evidence.verification import verify
from harness.tools.sign import attestation

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

__all__ = ["sign"]


def sign(bundle: Path, signer: CryptoSigner) -> None:
    """Add an attestation to a bundle, or add a signature to its attestation. Other processes that sign it wait.

    Raises:
        KeyRefused: the bundle is unsound.
        attestation.AlreadySigned: this key has signed the bundle already.
        OSError: the bundle cannot be read or written. It is unchanged.
    """
    known = verify(bundle)
    if not known.sound:
        raise KeyRefused(f"it is unsound: {known.findings[0]}; `harness verify` says more")
    try:
        # Another process verified the bundle. Make sure that these are still the same files.
        opened = Bundle(bundle)
        sealed = opened.content(MANIFEST)
        if sha256(sealed).hexdigest() != known.manifest:
            raise KeyRefused(_CHANGED)
        for name in (RECORD, CONTRACT):
            if opened.digest(name) != opened.manifest[name]:
                raise KeyRefused(_CHANGED)
        record, subject = opened.record, opened.contract.subject
    except BundleError as error:
        raise KeyRefused(_CHANGED) from error
    with locked(Beneath(bundle), fcntl.LOCK_EX):  # of two processes that add signatures at a time, one would be lost
        earlier = Bundle(bundle).attestation
        if earlier is not None:
            problems = attestation.check(earlier, record, subject, sealed, {}).findings
            if any(finding.code.severity is Severity.UNSOUND for finding in problems):
                raise KeyRefused(_CHANGED)
        _put(attestation.attest(record, subject, sealed, signer, earlier), bundle)


def _put(content: bytes, bundle: Path) -> None:
    """Write the attestation beside the bundle, then rename it into place: the bundle never holds another file."""
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
    sync_folder(Beneath(bundle))


_CHANGED = "it changed while the harness verified it; find out what changes it, and sign it again"
