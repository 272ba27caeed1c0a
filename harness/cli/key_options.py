"""The options --key and --trusted-key. Keys are read and checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.contract.project import Project
from harness.evidence.signing import KeyRefused, signing
from harness.report.terminal.printing import tell

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from harness.evidence.findings import Code
    from harness.evidence.verification import Against

__all__ = ["against", "signer_of", "trusted_key_option"]

trusted_key_option = click.option(
    "--trusted-key",
    "trusted_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A public key; every bundle must then be signed by one of those named.",
)


def against(trusted_keys: Sequence[Path], project: Project | None, refused: frozenset[Code] = frozenset()) -> Against:
    """Load the trusted keys (see `Against`)."""
    from harness.evidence.verification import Against

    try:
        return Against.of(trusted_keys, project, refused)
    except KeyRefused as error:
        raise click.BadParameter(str(error), param_hint="--trusted-key") from error


def signer_of(key: Path) -> CryptoSigner:
    """Return the signer of a private key. Warn if others can read the file; refuse a key that cannot sign."""
    try:
        signer: CryptoSigner = signing().load_private(key)
    except KeyRefused as error:
        raise click.BadParameter(str(error), param_hint="--key") from error
    if exposed := signing().exposure(key):
        tell(f"harness: {exposed}", err=True)
    return signer
