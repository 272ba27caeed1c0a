"""`harness report`: bundles as pages for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.verdict import ExitStatus

if TYPE_CHECKING:
    from harness.project import Project

__all__ = ["command"]


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path), metavar="DIR", help="Write a static site into this folder.")
def command(paths: tuple[Path, ...], html: Path | None) -> ExitStatus:
    """Report the bundles at or below each PATH: every one is verified first, and shown as what it proves to be.

    The verdicts do not change the exit status: it is 2 where a bundle is unsound, or a PATH is no folder; else 3 where
    a PATH has no bundle below it; else 0. Whatever was found is reported all the same.
    """
    from harness.evidence.verify import find_bundles

    if html is None:
        raise click.UsageError("say what to write: --html DIR")
    unusable = [path for path in paths if not path.is_dir()]
    found = {path: find_bundles([path]) for path in paths if path not in unusable}
    empty = [path for path, bundles in found.items() if not bundles]
    bundles = list({bundle.resolve(): bundle for some in found.values() for bundle in some}.values())
    sound = _html(bundles, html)
    for path in unusable:
        click.echo(f"{_plain(path)}: is no folder; name a bundle or a folder of bundles", err=True)
    for path in empty:
        click.echo(f"{_plain(path)}: nothing to report, there is no bundle below it", err=True)
    if unusable or not sound:
        return ExitStatus.REFUSED
    return ExitStatus.NOT_MEASURED if empty else ExitStatus.PASS


def _html(bundles: list[Path], folder: Path) -> bool:
    """Write the site; whether every bundle in it is sound."""
    try:
        from harness.report.html import site
    except ModuleNotFoundError as error:
        raise click.UsageError(f"pages need {error.name}, which is not installed: pip install jinja2") from error
    try:
        entries = site.write(bundles, folder, _project())
    except site.SiteError as error:
        raise click.BadParameter(str(error), param_hint="--html") from error
    unsound = sum(not entry.verification.sound for entry in entries)
    click.echo(
        f"{len(entries)} bundle{'' if len(entries) == 1 else 's'}, {unsound} unsound: {_plain(folder / site.INDEX)}"
    )
    return not unsound


def _project() -> Project | None:
    """The project that we are in: its contracts say what the evidence comes to. Bundles can be reported anywhere."""
    from harness.project import Project, ProjectError

    try:
        return Project.find()
    except ProjectError:
        return None


def _plain(path: Path) -> str:
    from harness.report.escaping import printable

    return printable(str(path))
