"""`harness run`: runs claims, shows what happens, and seals a bundle for each."""

from __future__ import annotations

import errno
import io
import signal
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base.plugins import plugins
from harness.base.shortening import described
from harness.base.vocabulary import ExitStatus, Verdict, exit_status
from harness.cli.key_options import signer_of
from harness.cli.options import refusing
from harness.cli.run_options import (
    RunOptions,
    refuse_without_gpu,
    request_of,
    run_options,
    with_scratch,
)  # fmt: skip
from harness.contract.contract_annotations import counted
from harness.contract.project import Project
from harness.evidence.signing import signing
from harness.report.messages.qualifiers import refutation_text
from harness.report.terminal.printing import discard_unwritten, tell, tell_all
from harness.running.request import RunRequest

if TYPE_CHECKING:
    from harness.evidence.index import Entry
    from harness.evidence.seal import Sealer
    from harness.machine.host import Host
    from harness.running.events import ClaimPassedOver, Event, Handler
    from harness.running.stale_selection import Due

__all__ = ["command", "perform"]

_GONE = (errno.EPIPE, errno.EIO)
"""Error numbers of a closed pipe and a closed terminal."""


@click.command("run")
@run_options
def command(**options: Any) -> ExitStatus:
    """Run claims: real training or kernel steps, judged, proven by mutants, sealed in evidence/.

    --stale leaves out a claim if its evidence still covers contract, falsifier and subject, on this class of device and
    in the profile that would run. It also leaves out a claim that cannot run here, unless --profile names one that
    it has, and that needs no more memory or GPUs than are here. If nothing is left to run, the exit status is 0, or 1
    if a claim that was left out is FALSIFIED and not known to be.

    --all with --profile leaves out a claim whose profile needs more memory or GPUs than this machine has.

    A FAIL that the contract states as a known refutation counts as expected: exit status 0. If such a claim holds, if
    other clauses fail, or if a mutant lives, the exit status is not 0.
    """
    parsed, project = RunOptions(**options), Project.find()
    with ExitStack() as run:
        parsed = with_scratch(parsed, run)
        return perform(parsed, project, request_of(parsed, project))


def perform(options: RunOptions, project: Project, request: RunRequest, watch: Handler | None = None) -> ExitStatus:
    """Run a request with these options, and print its events. `watch` is called with every event too."""
    from harness.running.compose import LOCAL, local_executors

    # Schedulers end jobs with SIGTERM. The engine then keeps what was measured; before it runs, nothing can be lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # so that a locale without "…" does not end a run

    ahead = request.executor == LOCAL and not (options.stale or options.everything)
    with closing(local_executors(project, request)) if ahead else nullcontext() as executors:
        # A fork server starts while the rest is imported.
        from harness.machine.host import probe
        from harness.running.compose import compose
        from harness.running.events import Relay

        handlers = _handlers_of(options, project)
        seal = _sealer(request, project).seal
        machine = probe(project.root)
        refuse_without_gpu(options, machine)
        passed_over: Iterable[ClaimPassedOver] = ()
        if (selection := _selected(options, project, machine, request)) is not None:
            from harness.report.messages.due_text import passed_over as events_of

            passed_over = events_of(selection)
            request = replace(request, contracts=[contract for contract, _ in selection.due])
        relay = Relay([*handlers, watch] if watch else handlers)
        expected = _Expected(request, relay, accepts_not_visible=options.accept is not None)
        runner = compose(project, machine, request, seal, expected, lambda line: tell(line, err=True), begun=executors)
        for claim in passed_over:
            relay(claim)
        try:
            finished = runner.run(request)
        finally:
            failures = relay.close()
    for output in (sys.stdout, sys.stderr):
        discard_unwritten(output)
    missed = _is_missing(failures, None if options.event_lines else handlers[0])
    if finished.interrupted:
        return ExitStatus.INTERRUPTED
    verdicts = [*expected.verdicts, *(selection.standing if selection is not None else ())]
    return exit_status([*verdicts, Verdict.NOT_MEASURED] if missed else verdicts)


def _sealer(request: RunRequest, project: Project) -> Sealer:
    """Return the sealer. An invalid key, and a folder that cannot be written, refuse the run before the work."""
    from harness.evidence.seal import Sealer, SealError

    attest = None if request.key is None else partial(signing().attest, signer=signer_of(request.key))
    sealer = Sealer(request.evidence or project.evidence, attest)
    try:
        sealer.prepare()
    except SealError as error:
        raise click.BadParameter(str(error), param_hint="--evidence") from error
    return sealer


def _selected(options: RunOptions, project: Project, machine: Host, request: RunRequest) -> Due | None:
    """Return which claims run, and print why others do not; None if all run. An unreadable bundle refuses the run."""
    if not (options.stale or options.everything):
        return None
    from harness.report.messages import due_text
    from harness.report.status_table import unreadable_line
    from harness.report.terminal.progress_line import progress_line
    from harness.running.stale_selection import due, never_here

    if options.stale:
        with progress_line("indexing bundles") as watch:
            selection = due(project, machine, request, watch)
        lines = due_text.lines(selection)
    else:
        selection = never_here(machine, request)
        lines = due_text.elsewhere_lines(selection)
    if selection.unreadable:
        for unreadable in selection.unreadable:
            tell(unreadable_line(unreadable), err=True)
        raise click.ClickException(
            "one of these bundles may hold a FAIL, so the harness cannot tell what is stale; restore them "
            "(git checkout -- PATH if they are committed), or move them out of the evidence folder"
        )
    tell_all(lines, err=options.json_file == "-" or options.event_lines)
    return selection


def _handlers_of(options: RunOptions, project: Project) -> list[Handler]:
    """Return the handlers of events. A file that cannot be written refuses the run before the work."""
    from harness.report.terminal.run_lines import Shown
    from harness.report.terminal.run_output import json_handler, terminal_handler

    if options.event_lines:
        return [plugin.load()(sys.stdout) for plugin in plugins("harness.event_lines").values()]
    junit, json_file = options.junit, options.json_file
    style = Shown(options.verbose, options.quiet, options.durations)
    handlers = [terminal_handler(sys.stderr if json_file == "-" else sys.stdout, style, lambda: _earlier(project))]
    handlers += filter(None, (plugin.load()() for plugin in plugins("harness.handlers").values()))
    if junit is not None:
        if junit == Path("-"):
            raise click.BadParameter(
                "name a file: it reports an error until the run ends; standard output is for --json -",
                param_hint="--junit",
            )
        from harness.report.formats import GROUP

        with refusing("--junit", junit):
            handlers.append(plugins(GROUP)["junit"].load().handler(junit))
    if json_file is not None:
        with refusing("--json", json_file):
            handlers.append(json_handler(json_file))
    return handlers


def _earlier(project: Project) -> Iterable[Entry]:
    """Return the evidence of earlier runs, from the project's own folder."""
    from harness.evidence.index import read
    from harness.machine.cache_folder import cache_folder

    return read(project.evidence, cache=cache_folder()).entries


class _Expected:
    """Passes events on, and adds a remark to each verdict of a claim with a known refutation.

    Attributes:
        verdicts: the verdicts that count for the exit status.
    """

    def __init__(self, request: RunRequest, emit: Handler, *, accepts_not_visible: bool = False) -> None:
        self._accepts_not_visible, self._emit = accepts_not_visible, emit
        self._contracts = {contract.id: contract for contract in request.contracts}
        self.verdicts: list[Verdict] = []

    def __call__(self, event: Event) -> None:
        """Pass on one event."""
        from harness.running.events import ClaimFinished, Remarked

        self._emit(event)
        if not isinstance(event, ClaimFinished):
            return
        record, contract = event.record, self._contracts.get(event.record.id)
        refutation = None if contract is None else record.refutation(contract)
        if self._accepts_not_visible and record.lacks_only_not_visible:
            self.verdicts.append(Verdict.PASS)
            remark = "accepted: only what is not visible from outside was not measured"
            self._emit(Remarked(record.id, remark))
        else:
            self.verdicts.append(counted(refutation, record.result))
        if refutation is not None:
            self._emit(Remarked(record.id, refutation_text(refutation, record.result)))


def _is_missing(failures: Iterable[tuple[Handler, Exception]], terminal: Handler | None) -> bool:
    """Return whether a report is missing, and print why it is missing or cut short.

    An output that its reader closed is no failure, and neither is a full terminal.
    """
    missing = False
    for handler, error in failures:
        if isinstance(error, OSError) and error.errno in _GONE:
            continue
        with suppress(OSError):
            if handler is terminal and isinstance(error, OSError):
                tell(f"harness: the output is cut short: {error.strerror}; the evidence is complete", err=True)
                continue
            missing = True
            tell(f"harness: a report is missing: {described(error)}", err=True)
    return missing
