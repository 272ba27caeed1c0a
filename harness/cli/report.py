"""`harness report`: verifies bundles, and writes reports of them. Each is an entry point (`harness.report.formats`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from harness.base.plugins import Plugin, PluginError, plugins
from harness.base.vocabulary import ExitStatus
from harness.cli.bundle_paths import BundlePaths
from harness.cli.key_options import against, trusted_key_option
from harness.cli.options import refusing
from harness.contract.project import Project
from harness.evidence.findings import Verification
from harness.report.formats import GROUP, STDOUT, Evidence, Report
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell

__all__ = ["command"]


class _ReportOption(click.Option):
    """The option of a report. The report's module is imported only for the help, and to write the report."""

    def __init__(self, plugin: Plugin) -> None:
        super().__init__(
            [f"--{plugin.name}", _parameter(plugin.name)], type=click.Path(path_type=Path, allow_dash=True)
        )
        self.plugin, self.metavar = plugin, "TARGET"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        try:
            self.help = f"Write {_loaded(self.plugin).about}."
        except PluginError:
            self.help = "Cannot be used; the option says why."
        return super().get_help_record(ctx)


class _Command(click.Command):
    """Adds an option for each report. None of them can replace an option of the core."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        taken = {name for option in own for name in option.opts}
        added = [_ReportOption(plugin) for plugin in plugins(GROUP).values() if f"--{plugin.name}" not in taken]
        return [*self.params, *added, *own[len(self.params) :]]


def _loaded(plugin: Plugin) -> Report:
    report: Report = plugin.load()
    lacking = [part for part in ("about", "check", "write") if not hasattr(report, part)]
    if lacking:
        raise PluginError(f"{plugin.name} of {plugin.origin} is no report: it has no {', '.join(lacking)}")
    return report


def _parameter(name: str) -> str:
    """Return the name of click's parameter for a report."""
    return "report_" + re.sub(r"\W", "_", name)


@click.command("report", cls=_Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@trusted_key_option
def command(paths: tuple[Path, ...], trusted_keys: tuple[Path, ...], **targets: Path | None) -> ExitStatus:
    """Verify the bundles at or below each PATH, and report them. TARGET is a file, or - for standard output.

    A report shows what `harness verify` finds: who signed a bundle, and what it does not cover. Whether it is stale
    depends on the project of the current folder. With --trusted-key, a bundle that none of these keys signed is not
    accepted, and its verdict does not count.

    Verdicts do not change the exit status. It is 2 if a bundle is unsound or not accepted, or a PATH is not a folder;
    else 3 if a PATH has no bundle below it; else 0. The report is written in any case.
    """
    known = plugins(GROUP)
    named = {name: target for name in known if (target := targets.get(_parameter(name))) is not None}
    if not named:
        raise click.UsageError(f"say what to write: {', '.join(f'--{name}' for name in known)}")
    on_stdout = [*named.values()].count(STDOUT)
    if on_stdout > 1:
        raise click.UsageError("standard output takes one report; write the others into files")
    reports: dict[str, Report] = {name: _loaded(known[name]) for name in named}
    bundles = BundlePaths.find(paths)
    project = Project.around()
    policy = against(trusted_keys, project)
    for name, report in reports.items():
        with refusing(f"--{name}", named[name]):
            report.check(named[name])
    evidence = Evidence(bundles.verified(policy), policy, project)
    for name, report in reports.items():
        with refusing(f"--{name}", named[name]):
            written = report.write(evidence, named[name])
        if written != STDOUT:
            tell(f"{_counted(evidence.verifications)}: {written}", err=on_stdout > 0)
    bundles.tell("report")
    return bundles.status(accepted=all(verification.accepted for verification in evidence.verifications))


def _counted(verifications: Sequence[Verification]) -> str:
    count, unsound = len(verifications), sum(not verification.sound for verification in verifications)
    refused = sum(bool(verification.refused) for verification in verifications if verification.sound)
    return f"{counted(count, 'bundle')}, {unsound} unsound{f', {refused} not accepted' if refused else ''}"
