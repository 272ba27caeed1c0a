"""`harness merge`: combines the evidence of several hosts or archives."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import is_zipfile

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.bundle_paths import BundlePaths
from harness.contract.project import Project
from harness.evidence.findings import Code, Verification
from harness.report.escaping import printable
from harness.report.messages import finding_text
from harness.report.messages.finding_text import bundle_line
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell
from harness.tools.merge.archive import ArchiveError, extract
from harness.tools.merge.merging import LeftOut, merge

__all__ = ["command"]


@click.command("merge", short_help="combine the evidence of several hosts or archives")
@click.argument("paths", nargs=-1, required=True, metavar="DIR|FILE.zip…", type=click.Path(path_type=Path))
@click.option(
    "--into",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of evidence to merge into, instead of the project's evidence/; created if it does not exist.",
)
def command(paths: tuple[Path, ...], into: Path | None) -> ExitStatus:
    """Copy the bundles at or below each DIR, or in a FILE.zip, to evidence/<issue>/<claim>/<run>, byte for byte.

    Each bundle is verified first. merge names and leaves out unsound bundles, and bundles of the same run with other
    content: what is there already stays, and of two such bundles none is merged. A bundle that is there already, byte
    for byte, counts as merged. Links are not followed. After an error nothing was written.

    Below a bundle it says if its clock is wrong: if the run states a start or an end later than now. Verdicts do not
    change the exit status.

    Exit status: 0 every bundle is there, 2 a bundle was left out or a DIR is no folder, 3 a DIR or FILE.zip has no
    bundle.
    """
    place = into or Project.find().evidence
    with ExitStack() as extracted:
        folders = {_extracted(path, extracted): path for path in paths}
        bundles = BundlePaths.find([*folders])
        try:
            merged = merge(bundles.bundles, place)
        except OSError as error:
            where = error.filename or place
            raise click.ClickException(printable(f"nothing was merged: {where}: {error.strerror or error}")) from error
    for path in merged.new:
        tell(bundle_line(path))
        _tell_clocks(path)
    for left in merged.left_out:
        whole, archive = next(pair for pair in folders.items() if left.bundle.path.is_relative_to(pair[0]))
        named = replace(left.bundle, path=archive / left.bundle.path.relative_to(whole))
        tell(f"left out: {bundle_line(named)}", "red")
        tell(f"  {_why(left)}")
        _tell_clocks(left.bundle)
    replace(bundles, without=tuple(folders[path] for path in bundles.without)).tell("merge")
    count = len(merged.new)
    there = f", {len(merged.there)} already there and identical" if merged.there else ""
    left_out = f", {len(merged.left_out)} left out" if merged.left_out else ""
    tell(f"{counted(count, 'bundle')} merged into {place}{there}{left_out}")
    return bundles.status(accepted=not merged.left_out)


def _extracted(path: Path, extracted: ExitStack) -> Path:
    """Return a folder with the files of an archive; the path itself if it is none."""
    if not (path.is_file() and is_zipfile(path)):
        return path
    folder = Path(extracted.enter_context(TemporaryDirectory(prefix="harness-merge-")))
    try:
        extract(path, folder)
    except ArchiveError as error:
        raise click.ClickException(printable(f"nothing was merged: {path}: {error}")) from error
    return folder


def _tell_clocks(bundle: Verification) -> None:
    for remark in bundle.remarks:
        if remark.code is Code.CLOCK_AHEAD:
            tell(f"  {remark.code}: {finding_text.message(remark)}")


def _why(left: LeftOut) -> str:
    if left.other is None:
        first = left.bundle.findings[0]
        return f"unsound: {first}: {finding_text.message(first)}"
    what = "it is no folder of a bundle" if left.differs == "." else f"{left.differs} differs"
    return f"another bundle of this run: {left.other}: {what}"
