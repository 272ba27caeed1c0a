"""`harness unpack`: unpacks and verifies the bundles of an untrusted archive, all or none."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.evidence.packing import ArchiveError
from harness.evidence.unpacking import unpack
from harness.report.escaping import printable
from harness.report.messages.number_text import counted
from harness.report.messages.verdict_text import bundle_line
from harness.report.terminal.printing import tell

__all__ = ["command"]


@click.command("unpack")
@click.argument("archive", metavar="FILE.zip", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "-C",
    "--into",
    default=".",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to unpack into, such as evidence; created if it does not exist.",
)
def command(archive: Path, into: Path) -> ExitStatus:
    """Unpack the bundles of FILE.zip to DIR/<issue>/<claim>/<run>, and verify them.

    Nothing is written if the file is not a plain archive of bundles, if a bundle is unsound, or if something else is in
    a bundle's place. An identical bundle that exists already is left as it is. Verdicts do not change the exit status.

    Exit status: 0 every bundle is there, 2 refused.
    """
    try:
        bundles = unpack(archive, into)
    except ArchiveError as error:
        raise click.ClickException(printable(f"nothing was unpacked: {archive}: {error}")) from error
    except OSError as error:
        where = error.filename or into
        raise click.ClickException(printable(f"nothing was unpacked: {where}: {error.strerror or error}")) from error
    for unpacked in bundles:
        before = "" if unpacked.is_new else "  already there, identical"
        tell(f"{bundle_line(unpacked.bundle)}{before}")
    new = sum(unpacked.is_new for unpacked in bundles)
    there = f", {len(bundles) - new} already there and identical" if new < len(bundles) else ""
    sound = "all" if len(bundles) > 1 else "it is"
    tell(f"{counted(new, 'bundle')} unpacked{there}, {sound} sound")
    below = shlex.quote(printable(str(into)))
    tell(f"what narrows them: harness verify {below}; as pages: harness report {below} --html DIR")
    return ExitStatus.PASS
