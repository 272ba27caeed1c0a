"""`harness pack`: packs sound bundles into one file, to attach to a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus
from harness.evidence.packing import ArchiveError, NothingToPack, pack
from harness.report.escaping import printable
from harness.report.messages import number_text
from harness.report.terminal.printing import tell

__all__ = ["command"]


@click.command("pack")
@click.argument("paths", nargs=-1, required=True, metavar="BUNDLE…", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, metavar="FILE.zip", type=click.Path(path_type=Path), help="The file to write."
)
def command(paths: tuple[Path, ...], output: Path) -> ExitStatus:
    """Pack the bundles at or below each BUNDLE into one zip file, which `harness unpack` reads.

    The same bundles always give the same bytes. Each is verified first, and an unsound one is refused; its verdict does
    not matter. An existing file is not replaced.

    Exit status: 0 packed, 2 refused, 3 there was no bundle to pack.
    """
    try:
        packed = pack(paths, output)
    except NothingToPack as error:
        tell(f"harness: nothing was packed: {error}", err=True)
        return ExitStatus.NOT_MEASURED
    except ArchiveError as error:
        raise click.ClickException(printable(f"nothing was packed: {error}")) from error
    except OSError as error:
        where = error.filename or output
        raise click.ClickException(printable(f"nothing was packed: {where}: {error.strerror or error}")) from error
    for one in packed.bundles:
        tell(f"{one.verdict}  {one.issue}/{one.id}/{one.run}")
    count = len(packed.bundles)
    bundles = number_text.counted(count, "bundle")
    tell(f"{bundles}, {packed.files} files, {number_text.binary(packed.size)}: {output}")
    tell(f"sha256 {packed.sha256}")
    return ExitStatus.PASS
