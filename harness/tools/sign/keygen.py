"""`harness keygen`: makes a key to sign evidence."""

from __future__ import annotations

from pathlib import Path

import click

from harness.base import regular_file
from harness.base.vocabulary import ExitStatus
from harness.evidence.signing import KeyRefused
from harness.machine.git import is_untracked
from harness.report.terminal.printing import tell
from harness.tools.sign.keys import generate

__all__ = ["command"]


@click.command("keygen", short_help="make a key to sign evidence with")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
def command(path: Path) -> ExitStatus:
    """Make an Ed25519 key. PATH is the private key: keep it secret. PATH.pub is the public key: publish it.

    Nothing is overwritten. Sign with `harness run --key PATH` or `harness attest --key PATH`. Verify with
    `harness verify --trusted-key PATH.pub`.
    """
    try:
        key, public = generate(path)
    except KeyRefused as error:
        raise click.ClickException(str(error)) from error
    tell(f"private key: {path} (keep it secret and out of every repository)")
    tell(f"public key:  {public}")
    tell(f"key id:      {key.keyid}")
    click.echo(regular_file.read(public).decode("ascii"), nl=False)
    if is_untracked(path):
        tell(
            f"move both files out of this git checkout: a commit could include {path.name}. Until then bundles that "
            "are sealed here are marked DIRTY_TREE and signed without their commit",
            err=True,
        )
    return ExitStatus.PASS
