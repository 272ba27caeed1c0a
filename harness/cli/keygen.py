"""`harness keygen`: make a key to sign evidence with."""

from __future__ import annotations

from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus

__all__ = ["command"]


@click.command("keygen")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
def command(path: Path) -> ExitStatus:
    """Make an Ed25519 key: PATH is the private half, for you alone, PATH.pub the public one, for everybody.

    Nothing is overwritten. Sign with `harness run --key PATH` or `harness attest --key PATH`; who verifies names
    PATH.pub with `harness verify --trusted-key`.
    """
    from harness.evidence.keys import KeyRefused, generate
    from harness.machine.git import is_untracked

    try:
        key, public = generate(path)
    except KeyRefused as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"private key: {path} (keep it to yourself, out of every repository)")
    click.echo(f"public key:  {public}")
    click.echo(f"key id:      {key.keyid}")
    click.echo(public.read_text(encoding="ascii"), nl=False)
    if is_untracked(path):
        click.echo(
            f"move both out of this git checkout: a commit could take {path.name} along, and what is sealed here says "
            "DIRTY_TREE until then, and is signed without its commit",
            err=True,
        )
    return ExitStatus.PASS
