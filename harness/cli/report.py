"""`harness report`: writes bundles as HTML pages, Markdown, and the formats of CI services."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.vocabulary import ExitStatus
from harness.cli.bundle_paths import BundlePaths
from harness.cli.key_options import against, trusted_key_option
from harness.report.columns import tell

if TYPE_CHECKING:
    from harness.contract.project import Project
    from harness.evidence.findings import Verification
    from harness.evidence.verification import Against
    from harness.report.bundle_results import BundleResult

__all__ = ["command"]

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(path_type=Path), metavar="DIR", help="Write a static site into this folder.")
@click.option("--markdown", type=_FILE, metavar="FILE|-", help="Write a comment for a pull request, below 64 KB.")
@click.option("--step-summary", is_flag=True, help="Append to $GITHUB_STEP_SUMMARY, below its 1 MiB.")
@click.option("--ctrf", type=_FILE, metavar="FILE|-", help="Write a CTRF report.")
@click.option("--junit", type=_FILE, metavar="FILE|-", help="Write a JUnit report.")
@click.option(
    "--sarif", type=_FILE, metavar="FILE|-", help="Write the open findings against the claims as SARIF 2.1.0."
)
@trusted_key_option
def command(
    paths: tuple[Path, ...],
    html: Path | None,
    markdown: Path | None,
    step_summary: bool,
    ctrf: Path | None,
    junit: Path | None,
    sarif: Path | None,
    trusted_keys: tuple[Path, ...],
) -> ExitStatus:
    """Verify the bundles at or below each PATH, and report them.

    A report shows what `harness verify` finds: who signed a bundle, and what it does not cover. Whether it is stale
    depends on the project of the current folder. With --trusted-key, a bundle that none of these keys signed is not
    accepted, and its verdict does not count.

    Verdicts do not change the exit status. It is 2 if a bundle is unsound or not accepted, or a PATH is not a folder;
    else 3 if a PATH has no bundle below it; else 0. The report is written in any case.
    """
    from harness.contract.project import Project
    from harness.evidence.verification import verify_all
    from harness.report.progress_line import progress_line

    files = {"markdown": markdown, "ctrf": ctrf, "junit": junit, "sarif": sarif}
    targets = {name: target for name, target in files.items() if target is not None}
    if html is None and not targets and not step_summary:
        raise click.UsageError("say what to write: --html DIR, --markdown, --step-summary, --ctrf, --junit or --sarif")
    if sum(target == Path("-") for target in targets.values()) > 1:
        raise click.UsageError("standard output takes one report; write the others into files")
    summary = _step_summary() if step_summary else None
    found = BundlePaths.find(paths)
    project = Project.around()
    asked = against(trusted_keys, project)
    if html is not None:
        _prepare(html)
    verifications = []
    with progress_line("verifying bundles") as watch:
        for done, one in enumerate(verify_all(found.bundles, against=asked), 1):
            verifications.append(one)
            watch(done, len(found.bundles))
    if html is not None:
        _html(verifications, html, asked, project, err=Path("-") in targets.values())
    if targets or summary:
        _files(verifications, targets, summary, project)
    found.tell("report")
    return found.status(accepted=all(one.accepted for one in verifications))


def _prepare(folder: Path) -> None:
    """Refuse a folder that cannot take the pages, before any bundle is verified."""
    if importlib.util.find_spec("jinja2") is None:
        raise click.UsageError("pages need jinja2, which is not installed: pip install jinja2")
    from harness.report.html import site

    try:
        site.prepare(folder)
    except site.SiteError as error:
        raise click.BadParameter(str(error), param_hint="--html") from error


def _html(
    verifications: Sequence[Verification], folder: Path, asked: Against, project: Project | None, *, err: bool
) -> None:
    from harness.report.html import site
    from harness.report.progress_line import progress_line

    try:
        with progress_line("writing pages") as watch:
            site.write(verifications, folder, asked, project, watch=watch)
    except site.SiteError as error:
        raise click.BadParameter(str(error), param_hint="--html") from error
    tell(_counted(verifications, folder / site.INDEX), err=err)


def _files(
    verifications: Sequence[Verification], targets: dict[str, Path], summary: Path | None, project: Project | None
) -> None:
    from harness.report.atomic_file import write_file
    from harness.report.bundle_results import bundle_results

    results = bundle_results(verifications, project)
    quiet = Path("-") in targets.values()
    for name, target in targets.items():
        text = _writer(name)(results)
        if target == Path("-"):
            click.echo(text, nl=False)
            continue
        try:
            write_file(target, text)
        except OSError as error:
            raise click.BadParameter(f"{target} cannot be written: {error.strerror}", param_hint=f"--{name}") from error
        tell(_counted(verifications, target), err=quiet)
    if summary is not None:
        _append(results, summary)


def _writer(name: str) -> Callable[[Sequence[BundleResult]], str]:
    """Return the function that writes a format. Its module is imported only now."""
    if name == "markdown":
        from harness.report.markdown import render as render_markdown

        return render_markdown
    if name == "ctrf":
        from harness.report.ctrf import render as render_ctrf

        return render_ctrf
    if name == "sarif":
        from harness.report.sarif import render as render_sarif

        return render_sarif
    from harness.report.junit import report as render_junit

    return render_junit


def _step_summary() -> Path:
    """Return the file that GitHub shows as the summary of a job."""
    named = os.environ.get("GITHUB_STEP_SUMMARY")
    if not named:
        raise click.UsageError("GITHUB_STEP_SUMMARY is not set: outside of a GitHub workflow use --markdown FILE")
    return Path(named)


def _append(results: Sequence[BundleResult], summary: Path) -> None:
    """Append to a job's summary as much as fits."""
    from harness.report import markdown

    try:
        there = summary.stat().st_size if summary.exists() else 0
        limit = max(markdown.SUMMARY - there, markdown.LEAST)
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown.render(results, limit))
    except OSError as error:
        raise click.UsageError(f"GITHUB_STEP_SUMMARY: {summary} cannot be written: {error.strerror}") from error


def _counted(verifications: Sequence[Verification], written: Path) -> str:
    count, unsound = len(verifications), sum(not one.sound for one in verifications)
    refused = sum(bool(one.refused) for one in verifications if one.sound)
    told = (
        f"{count} bundle{'' if count == 1 else 's'}, {unsound} unsound{f', {refused} not accepted' if refused else ''}"
    )
    return f"{told}: {_plain(written)}"


def _plain(path: Path) -> str:
    from harness.report.escaping import printable

    return printable(str(path))
