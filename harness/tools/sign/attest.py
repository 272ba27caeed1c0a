"""`harness attest`: signs sealed bundles."""

from __future__ import annotations

from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.key_options import signer_of
from harness.evidence.signing import KeyRefused
from harness.evidence.verification import find_bundles, no_folder
from harness.report.escaping import printable
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell
from harness.tools.sign.attestation import AlreadySigned
from harness.tools.sign.signing import sign

__all__ = ["command"]


@click.command("attest", short_help="sign bundles that are sealed already")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    envvar="HARNESS_SIGNING_KEY",
    required=True,
    metavar="FILE",
    help="The private key (harness keygen). HARNESS_SIGNING_KEY also names it.",
)
def command(paths: tuple[Path, ...], key: Path) -> ExitStatus:
    """Sign the bundles at or below each PATH. With your signature you vouch that they state what was measured.

    Each bundle is verified first. An unsound bundle is not signed. Other signatures of a bundle are kept.

    Code under test runs as your user and can read every key that `harness run` can read. To keep the key from it, sign
    on a machine where that code does not run.

    Exit status: 0 every bundle is signed now; 2 one was refused; 3 there is none.
    """
    signer = signer_of(key)
    for path in paths:
        if not path.is_dir():
            raise click.UsageError(printable(f"{path} {no_folder(path)}"))
    bundles = find_bundles(paths)
    refused = 0
    for bundle in bundles:
        try:
            sign(bundle, signer)
        except AlreadySigned:
            tell(f"signed already: {bundle}")
        except (KeyRefused, OSError) as error:
            refused += 1
            why = (error.strerror if isinstance(error, OSError) else "") or error
            tell(f"not signed: {bundle}: {why}", err=True)
        else:
            tell(f"signed: {bundle}")
    tell(f"{counted(len(bundles), 'bundle')}: {len(bundles) - refused} signed by {signer.public_key.keyid}")
    if not bundles:
        return ExitStatus.NOT_MEASURED
    return ExitStatus.REFUSED if refused else ExitStatus.PASS
