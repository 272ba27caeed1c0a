"""`harness run`: run claims, show what happens, and leave a sealed bundle for each."""

from __future__ import annotations

import io
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from harness.base.vocabulary import ExitStatus, Verdict, exit_status
from harness.cli.run_options import RunOptions, request_of, run_options
from harness.cli.run_reports import handlers_of, is_missing, let_go
from harness.cli.signing_key import attest_of
from harness.contract.project import Project
from harness.run.request import RunRequest

if TYPE_CHECKING:
    from harness.evidence.seal import Sealer
    from harness.machine.host import Host
    from harness.run.due import Due

__all__ = ["command"]


@click.command("run")
@run_options
def command(**options: Any) -> ExitStatus:
    """Run claims: real training or kernel steps, judged, proven by mutants, sealed in evidence/.

    --stale leaves out a claim if its evidence still covers contract, falsifier and subject, on this class of device and
    in the profile that would run. If nothing is left to run, the exit status is 0, or 1 if a claim that was left out is
    FALSIFIED.
    """
    given, project = RunOptions(**options), Project.find()
    request = request_of(given, project)
    # Schedulers end jobs with SIGTERM; the engine keeps what was measured then, and until it runs nothing is lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # a locale without "…" ends no run

    from harness.machine.host import probe
    from harness.run.compose import compose
    from harness.run.relay import Relay

    handlers = handlers_of(given)
    sealer = _sealer(request, project)
    machine = probe(project.root)
    selection = (
        _due(project, machine, request, err=given.json_file == "-" or given.event_lines) if given.stale else None
    )
    if selection is not None:
        request = replace(request, contracts=[contract for contract, _ in selection.due])
    relay = Relay(handlers)
    runner = compose(project, machine, request, sealer.seal, relay, lambda line: click.echo(line, err=True))
    for claim in () if selection is None else selection.passed_over():
        relay(claim)
    try:
        finished = runner.run(request)
    finally:
        missed = is_missing(relay.close())
    for output in (sys.stdout, sys.stderr):
        let_go(output)
    if finished.interrupted:
        return ExitStatus.INTERRUPTED
    verdicts = [record.verdict for record in finished.records]
    if selection is not None:
        verdicts += selection.standing
    return exit_status([*verdicts, Verdict.NOT_MEASURED] if missed else verdicts)


def _sealer(request: RunRequest, project: Project) -> Sealer:
    """What writes the bundles; refused before hours of work if it could not."""
    from harness.evidence.seal import Sealer, SealError

    sealer = Sealer(request.evidence or project.evidence, attest_of(request.key))
    try:
        sealer.prepare()
    except SealError as error:
        raise click.BadParameter(str(error), param_hint="--evidence") from error
    return sealer


def _due(project: Project, machine: Host, request: RunRequest, err: bool) -> Due:
    """Which claims are due; said on stdout, or on stderr. Refused if a bundle cannot be read."""
    from harness.report.escaping import printable
    from harness.report.progress_line import progress_line
    from harness.report.status_table import unreadable_line
    from harness.run.due import due

    with progress_line("indexing bundles") as watch:
        selection = due(project, machine, request, watch)
    if selection.unreadable:
        for one in selection.unreadable:
            click.echo(unreadable_line(one), err=True)
        raise click.ClickException(
            "there may be a FAIL among these bundles, so nobody can tell what is stale; get back what they were "
            "(git checkout -- PATH, where they are committed), or take them out of there"
        )
    for line in selection.lines():
        click.echo(printable(line), err=err)
    return selection
