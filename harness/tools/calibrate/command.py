"""`harness calibrate`: runs a claim with many seeds, and shows the margins of its clauses."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import click

from harness.base.vocabulary import ExitStatus, Verdict, exit_status
from harness.cli.options import device_option, overrides, parameter_texts, profile_option
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence.seal import ClaimResult
from harness.machine.host import probe
from harness.report.messages import reason_text
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import Block, Table, tell, tell_all
from harness.report.terminal.run_text import waiting_text
from harness.running.compose import compose
from harness.running.events import ClaimWaiting, Event
from harness.running.request import RunRequest
from harness.tools.calibrate import results as calibration_results

__all__ = ["command"]


@click.command("calibrate", short_help="run claims with many seeds, and show their margins")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--runs", type=click.IntRange(min=1), default=30, show_default=True, help="Seeds per claim.")
@profile_option
@device_option
@click.option("-P", "parameters", multiple=True, metavar="KEY=VALUE", help="Change a parameter in every run.")
@click.option("--no-mutants", is_flag=True, help="Run only the subject, which takes less time.")
@click.option("--write", "is_written", is_flag=True, help="Write calibration.json, and its digest into the contract.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Trials side by side (claims that measure time: always 1)."
)
def command(
    ids: tuple[str, ...],
    runs: int,
    profile: str,
    device: str,
    parameters: tuple[str, ...],
    no_mutants: bool,
    is_written: bool,
    jobs: int | None,
) -> ExitStatus:
    """Run claims with many seeds, each as `harness run` does it, and seal nothing.

    It prints how often the subject passed and each mutant was killed. For every clause with a threshold it prints a
    ratio; above 1 violates the clause. The subject's largest ratio should be well below 1, and a mutant's smallest well
    above. It also prints the range of each of the subject's numbers, and at last the
    seeds that come nearest to a wrong outcome.

    With --write the ratios and seeds go to calibration.json next to the contract, and its SHA-256 into the contract.
    Nothing is written unless every run passed.

    The exit status is that of the worst run. After Ctrl-C it prints what it has measured.
    """
    if is_written and (parameters or no_mutants):
        raise click.UsageError("--write records whole runs of the contract's profile; leave out -P and --no-mutants")
    project = Project.find()
    contracts = [project.contract(name) for name in project.matching(ids)]
    request = RunRequest(
        profile=profile,
        device=device,
        parameters=overrides(parameter_texts(parameters), contracts),
        mutants=not no_mutants,
        jobs=jobs,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    verdicts: list[Verdict] = []
    for contract in contracts:
        results: list[ClaimResult] = []
        try:
            for result in _runs(project, replace(request, contracts=[contract]), range(runs)):
                results.append(result)
                verdicts.append(result.record.verdict)
                _tell(result)
        except KeyboardInterrupt:
            if results:
                tell_all(_tables(contract, results, f"{len(results)} of {counted(runs, 'run')}, interrupted,"))
            return ExitStatus.INTERRUPTED
        tell_all(_tables(contract, results, counted(runs, "run")))
        if is_written:
            _write(contract, results)
    return exit_status(verdicts)


def _runs(project: Project, request: RunRequest, seeds: Iterable[int]) -> Iterator[ClaimResult]:
    """Run the claim once with each seed, and yield the results. Nothing is sealed.

    Raises:
        KeyboardInterrupt: the interrupted run is not among the results.
    """
    kept: list[ClaimResult] = []

    def keep(result: ClaimResult) -> None:
        kept.append(result)

    def hear(event: Event) -> None:
        if isinstance(event, ClaimWaiting):
            tell(f"{event.id}: {waiting_text(event.holders)}", err=True)

    runner = compose(project, probe(project.root), request, keep, hear, tell)
    for seed in seeds:
        if runner.run(replace(request, seed=seed)).interrupted:
            raise KeyboardInterrupt
        yield kept.pop()


def _tell(result: ClaimResult) -> None:
    record = result.record
    line = f"{record.id} seed {record.seed}, {record.profile} profile: {record.verdict} {reason_text.of(record.reason)}"
    tell(line.rstrip(), err=True)


def _tables(contract: Contract, results: Sequence[ClaimResult], done: str) -> Iterator[Block]:
    """Yield tables of rates, ratios and ranges. `done` says how many runs they are from."""
    profile = results[0].record.profile
    device = results[0].record.device.name
    yield f"{contract.id}: {done} of the {profile} profile on {device}"
    rates = [
        (rate.trial, _share(rate.as_declared, rate.runs), "; ".join(rate.violates) or "every clause")
        for rate in calibration_results.rates(contract, results)
    ]
    yield from (Table([("trial", "as declared", "passes, or must fail on"), *rates]), "")
    margins = calibration_results.margins(contract, results)
    if margins:
        rows = [
            (
                margin.trial,
                margin.clause,
                *("" if it is None else f"{it:.3g}" for it in (margin.smallest, margin.largest, margin.recorded)),
            )
            for margin in margins
        ]
        yield from (Table([("trial", "clause", "smallest ratio", "largest", "recorded"), *rows]), "")
    spreads = calibration_results.spreads(results)
    if spreads:
        numbers = [
            (spread.measurement, *(f"{it:.6g}" for it in (spread.least, spread.mean, spread.most)))
            for spread in spreads
        ]
        yield from (Table([("the subject measured", "least", "mean", "most"), *numbers]), "")
    yield from _worst(margins)


def _worst(margins: Sequence[calibration_results.Margin]) -> Iterator[str]:
    """Yield how near the worst seeds come to a wrong outcome, and on which clauses: of the subject, and of a mutant."""
    subject = [margin for margin in margins if margin.trial == calibration_results.SUBJECT]
    mutants = [margin for margin in margins if margin.trial != calibration_results.SUBJECT]
    if subject:
        nearest = max(subject, key=lambda margin: margin.worst)
        text = f"{nearest.worst:.3g} of the bound of {nearest.clause}, with seed {nearest.worst_seed}"
        yield f"worst of the subject: {text}; above 1 violates it"
    if mutants:
        nearest = min(mutants, key=lambda margin: margin.worst)
        text = f"{nearest.worst:.3g} of the bound of {nearest.clause}, {nearest.trial} with seed {nearest.worst_seed}"
        yield f"worst of the mutants: {text}; at most 1: it survives"
    if not margins:
        yield "no clause with a threshold was measured, so there is no margin"


def _write(contract: Contract, results: Sequence[ClaimResult]) -> None:
    if any(result.record.verdict is not Verdict.PASS for result in results):
        tell(f"{contract.id}: nothing was written, because not every run passed", err=True)
        return
    try:
        path = calibration_results.write(contract, results)
    except (calibration_results.CalibrationError, OSError) as error:
        raise click.ClickException(str(error)) from error
    tell(f"wrote {path}, and its digest into {contract.path}")


def _share(part: int, runs: int) -> str:
    return f"{part} of {runs} ({part / runs:.1%})" if runs else "not run"
