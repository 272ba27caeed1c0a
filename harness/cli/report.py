"""`harness report`: writes bundles as HTML pages, Markdown, and the formats of CI services."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import click

from harness.base.plugins import plugins
from harness.base.vocabulary import ExitStatus
from harness.cli.bundle_paths import BundlePaths
from harness.cli.key_options import against, trusted_key_option
from harness.cli.options import named_texts
from harness.contract.project import Project
from harness.evidence.findings import Verification
from harness.evidence.verification import Against
from harness.report.atomic_file import write_file
from harness.report.bundle_results import BundleResult, bundle_results
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell
from harness.report.terminal.progress_line import progress_line

__all__ = ["command"]

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)

Writer = Callable[[Sequence[BundleResult]], str]
_WRITERS = {
    "markdown": "harness.report.markdown",
    "ctrf": "harness.report.ci.ctrf",
    "junit": "harness.report.ci.junit",
    "sarif": "harness.report.ci.sarif",
}
"""The module of each report in one file. Distributions add others in the group `harness.reports`."""


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
@click.option(
    "--format", "formats", multiple=True, metavar="NAME=FILE|-", help="Write a report that a distribution adds."
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
    formats: tuple[str, ...],
    trusted_keys: tuple[Path, ...],
) -> ExitStatus:
    """Verify the bundles at or below each PATH, and report them.

    A report shows what `harness verify` finds: who signed a bundle, and what it does not cover. Whether it is stale
    depends on the project of the current folder. With --trusted-key, a bundle that none of these keys signed is not
    accepted, and its verdict does not count.

    Verdicts do not change the exit status. It is 2 if a bundle is unsound or not accepted, or a PATH is not a folder;
    else 3 if a PATH has no bundle below it; else 0. The report is written in any case.
    """
    files = {"markdown": markdown, "ctrf": ctrf, "junit": junit, "sarif": sarif}
    targets = [(name, target) for name, target in files.items() if target is not None]
    targets += [(name, Path(file)) for name, file in named_texts(formats, "--format", "NAME=FILE").items()]
    if html is None and not targets and not step_summary:
        raise click.UsageError(
            "say what to write: --html DIR, --markdown, --step-summary, --ctrf, --junit, --sarif or --format"
        )
    on_stdout = [target for _, target in targets].count(Path("-"))
    if on_stdout > 1:
        raise click.UsageError("standard output takes one report; write the others into files")
    reports = [(_writer(name), target, f"--{name}" if name in _WRITERS else "--format") for name, target in targets]
    summary = _step_summary() if step_summary else None
    found = BundlePaths.find(paths)
    project = Project.around()
    asked = against(trusted_keys, project)
    if html is not None:
        _prepare(html)
    verifications = found.verified(asked)
    if html is not None:
        _html(verifications, html, asked, project, err=on_stdout > 0)
    if reports or summary:
        _files(verifications, reports, summary, project, err=on_stdout > 0)
    found.tell("report")
    return found.status(accepted=all(one.accepted for one in verifications))


def _prepare(folder: Path) -> None:
    """Refuse a folder that cannot take the pages, before any bundle is verified."""
    from harness.report.html import site

    try:
        site.prepare(folder)
    except site.SiteError as error:
        raise click.BadParameter(str(error), param_hint="--html") from error


def _html(
    verifications: Sequence[Verification], folder: Path, asked: Against, project: Project | None, *, err: bool
) -> None:
    from harness.report.html import site

    try:
        with progress_line("writing pages") as watch:
            site.write(verifications, folder, asked, project, watch=watch)
    except site.SiteError as error:
        raise click.BadParameter(str(error), param_hint="--html") from error
    tell(_counted(verifications, folder / site.INDEX), err=err)


def _files(
    verifications: Sequence[Verification],
    reports: Sequence[tuple[Writer, Path, str]],
    summary: Path | None,
    project: Project | None,
    *,
    err: bool,
) -> None:
    results = bundle_results(verifications, project)
    for write, target, option in reports:
        text = write(results)
        if target == Path("-"):
            click.echo(text, nl=False)
            continue
        try:
            write_file(target, text)
        except OSError as error:
            raise click.BadParameter(f"{target} cannot be written: {error.strerror}", param_hint=option) from error
        tell(_counted(verifications, target), err=err)
    if summary is not None:
        _append(results, summary)


def _writer(name: str) -> Writer:
    """Return the function that makes a report, imported only where it is asked for."""
    if name in _WRITERS:
        built_in: Writer = import_module(_WRITERS[name]).render
        return built_in
    added = plugins("harness.reports")
    if name not in added:
        known = ", ".join([*_WRITERS, *added])
        raise click.BadParameter(f"there is no report {name!r}; there are {known}", param_hint="--format")
    writer: Writer = added[name].load()
    return writer


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
    told = f"{counted(count, 'bundle')}, {unsound} unsound{f', {refused} not accepted' if refused else ''}"
    return f"{told}: {written}"
