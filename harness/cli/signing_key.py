"""The private key that a command signs with, read before there is anything to sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from harness.evidence.seal import Attest

__all__ = ["attest_of", "signer_of"]


def signer_of(key: Path) -> CryptoSigner:
    """Who signs with a key's file; a warning where others can read it, BadParameter where it cannot sign."""
    from harness.evidence.keys import KeyRefused, exposure, load_private
    from harness.report.escaping import printable

    try:
        signer = load_private(key)
    except KeyRefused as error:
        raise click.BadParameter(str(error), param_hint="--key") from error
    if exposed := exposure(key):
        click.echo(printable(f"harness: {exposed}"), err=True)
    return signer


def attest_of(key: Path | None) -> Attest | None:
    """What signs a bundle; None without a key. It is made before any work, so that a bad key refuses the run."""
    if key is None:
        return None
    from functools import partial

    from harness.evidence import attestation

    return partial(attestation.attest, signer=signer_of(key))
