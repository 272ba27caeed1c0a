"""`harness run`: run claims, show what happens, and leave a sealed bundle for each."""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from harness.base.vocabulary import ExitStatus, Verdict, exit_status
from harness.cli.signing_key import signer_of
from harness.cli.subject import choose
from harness.contract import Contract
from harness.contract.project import Project, ProjectError
from harness.run.events import Handler
from harness.run.plan import Options

if TYPE_CHECKING:
    from harness.evidence.bundle import Attest

__all__ = ["checked_device", "command"]


@click.command("run")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--all", "everything", is_flag=True, help="Run every claim of the project.")
@click.option("--stale", is_flag=True, help="Of these, or of all, run only claims whose evidence covers too little.")
@click.option("--issue", metavar="ISSUE", help="Run the claims of an issue, such as PMAT-697.")
@click.option("--spec", metavar="SPEC", help="Run the claims of a spec, such as SPEC-DISTILL-001.")
@click.option(
    "--profile",
    type=click.Choice(["auto", "full", "reduced"]),
    default="auto",
    show_default=True,
    help="auto takes full where this machine meets its requirements, else reduced.",
)
@click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda:N", help="What to run on.")
@click.option(
    "--subject",
    metavar="MODULE:NAME|command:FILE|recorded:FILE",
    help="Another subject than the contract's: one of this project, or somebody else's trainer, which the TOML file "
    "describes, run as a command or judged from the directory of a run that is over (-P dir=RUN).",
)
@click.option(
    "-P", "parameters", multiple=True, metavar="KEY=VALUE", help="Change a parameter; recorded as an override."
)
@click.option("--no-mutants", is_flag=True, help="Skip the mutants; a PASS is then shown as unproven everywhere.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The seed of every trial.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Trials side by side (claims that measure time: always 1)."
)
@click.option(
    "--evidence", type=click.Path(path_type=Path), help="Where bundles go, instead of the project's evidence/."
)
@click.option(
    "--executor",
    type=click.Choice(["local", "slurm"]),
    default="local",
    show_default=True,
    help="slurm runs every claim as a job on a node of the cluster.",
)
@click.option("--partition", metavar="NAME", help="With --executor slurm: the partition.")
@click.option(
    "--slurm-args", metavar="TEXT", default="", help="With --executor slurm: further options of srun, in one text."
)
@click.option("--event-lines", is_flag=True, hidden=True, help="Tell every event as a line of JSON; no other reports.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write a JUnit report.")
@click.option("--json", "json_file", metavar="FILE|-", help="Also write the records as JSON; - is standard output.")
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    envvar="HARNESS_SIGNING_KEY",
    metavar="FILE",
    help="Sign every bundle with this private key (harness keygen); or name it in HARNESS_SIGNING_KEY.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show every step, and tracebacks.")
def command(
    ids: tuple[str, ...],
    everything: bool,
    stale: bool,
    issue: str | None,
    spec: str | None,
    profile: str,
    device: str,
    subject: str | None,
    parameters: tuple[str, ...],
    no_mutants: bool,
    seed: int,
    jobs: int | None,
    evidence: Path | None,
    executor: str,
    partition: str | None,
    slurm_args: str,
    event_lines: bool,
    junit: Path | None,
    json_file: str | None,
    key: Path | None,
    verbose: bool,
) -> ExitStatus:
    """Run claims: real training or kernel steps, judged, proven by mutants, sealed in evidence/.

    --stale leaves out claims whose evidence still covers contract, falsifier and subject on this class of device, in
    the profile that would run. The exit status is 0 where none is left to run, and 1 where one of those left out is
    FALSIFIED.
    """
    extra = _slurm_options(executor, partition, slurm_args)
    project = Project.find()
    contracts = _select(project, ids, everything or (stale and not (ids or issue or spec)), issue, spec)
    chosen = choose(subject, parameters, contracts, project)
    options = Options(
        profile=profile,
        device=checked_device(device),
        subject=chosen.subject,
        external=chosen.external,
        parameters=chosen.parameters,
        mutants=not no_mutants,
        jobs=jobs,
        seed=seed,
    )
    if stale and (subject or parameters or no_mutants or executor != "local"):
        raise click.UsageError(
            "--stale looks for evidence of the contracts as they are, on this machine; leave out --subject, -P, "
            "--no-mutants and --executor, or --stale"
        )
    # Schedulers end jobs with SIGTERM; the engine keeps what was measured then, and until it runs nothing is lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # a locale without "…" ends no run

    from harness.evidence.bundle import Sealer, SealError
    from harness.execution.local_executor import LocalExecutor
    from harness.machine.host import probe
    from harness.machine.paths import made_cache_folder
    from harness.report import views
    from harness.report.counting import counting
    from harness.report.escaping import printable
    from harness.report.relay import Relay
    from harness.report.status import unreadable_line
    from harness.run import wire
    from harness.run.due import Due, due
    from harness.run.engine import Engine
    from harness.run.slurm.dispatcher import Dispatcher
    from harness.run.slurm.submission import Submission

    handlers = [wire.handler(sys.stdout)] if event_lines else _handlers(junit, json_file, verbose)
    lacks = views.missing()
    if lacks is not None:  # better now than after hours of work
        raise click.UsageError(f"a bundle's pages need {lacks}, which is not installed: pip install {lacks}")
    sealer = Sealer(evidence or project.evidence, views.VIEWS, _attest(key))
    try:
        sealer.prepare()
    except SealError as error:
        raise click.BadParameter(str(error), param_hint="--evidence") from error
    cache = made_cache_folder()
    machine = probe(project.root)
    selection: Due | None = None
    if stale:
        with counting("indexing bundles") as watch:
            selection = due(project, contracts, machine, options, evidence or project.evidence, watch)
        if selection.unreadable:
            for one in selection.unreadable:
                click.echo(unreadable_line(one), err=True)
            raise click.ClickException(
                "there may be a FAIL among these bundles, so nobody can tell what is stale; get back what they were "
                "(git checkout -- PATH, where they are committed), or take them out of there"
            )
        contracts = [contract for contract, _ in selection.due]
        for line in selection.lines():
            click.echo(printable(line), err=json_file == "-" or event_lines)
    relay = Relay(handlers)
    engine = Engine(
        project,
        machine,
        executor=lambda contract, gpu: LocalExecutor(
            project, contract, gpu, cache, () if options.external is None else options.external.admits
        ),
        seal=sealer.seal,
        emit=relay,
        command=shlex.join(["harness", "run", *options.arguments()]),
    )
    runner: Engine | Dispatcher = engine
    if executor == "slurm":
        submission = Submission(project.root, evidence or project.evidence, extra, key)
        runner = Dispatcher(submission.submit, engine.unmeasured, relay, lambda line: click.echo(line, err=True))
    for claim in () if selection is None else selection.passed_over():
        relay(claim)
    threading.Thread(target=views.load, name="views", daemon=True).start()
    try:
        finished = runner.run(contracts, options)
    finally:
        missed = _missed(relay.close())
    for output in (sys.stdout, sys.stderr):
        _let_go(output)
    if finished.interrupted:
        return ExitStatus.INTERRUPTED
    verdicts = [record.verdict for record in finished.records]
    if selection is not None:
        verdicts += selection.standing
    return exit_status([*verdicts, Verdict.NOT_MEASURED] if missed else verdicts)


def _handlers(junit: Path | None, json_file: str | None, verbose: bool) -> list[Handler]:
    """Those who show or write what happens, opened before the work so that none is found wanting after it."""
    from harness.report import junit as junit_report
    from harness.report import records, terminal

    handlers: list[Handler] = [terminal.handler(sys.stderr if json_file == "-" else sys.stdout, verbose)]
    if junit == Path("-"):
        raise click.BadParameter(
            "a file is needed, for until its end a run is an error there; standard output is for --json -",
            param_hint="--junit",
        )
    if junit is not None:
        try:
            handlers.append(junit_report.handler(junit))
        except OSError as error:
            raise click.BadParameter(f"{junit} cannot be written: {error.strerror}", param_hint="--junit") from error
    if json_file is not None:
        try:
            handlers.append(records.handler(json_file))
        except OSError as error:
            raise click.BadParameter(f"{json_file} cannot be written: {error.strerror}", param_hint="--json") from error
    return handlers


def _slurm_options(executor: str, partition: str | None, text: str) -> list[str]:
    """The further options of `srun`; refused where they could have no effect, or no job can be submitted."""
    if executor != "slurm":
        if partition is not None or text:
            raise click.UsageError("--partition and --slurm-args speak to Slurm; add --executor slurm")
        return []
    from harness.run.slurm.submission import obstacle

    if why := obstacle():
        raise click.UsageError(why)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--slurm-args") from error
    return [*([] if partition is None else [f"--partition={partition}"]), *words]


def _select(
    project: Project, ids: tuple[str, ...], everything: bool, issue: str | None, spec: str | None
) -> list[Contract]:
    """The claims asked for, in the order asked for; one that is refused refuses the run before anything runs."""
    chosen: dict[str, Contract] = {name: project.contract(name) for name in ids}
    if ids and (everything or issue or spec):
        raise click.UsageError("name claims, or say --all, --issue or --spec; not both")
    if sum((everything, bool(issue), bool(spec))) > 1:  # one would be meant to narrow the other, and hours would run
        raise click.UsageError("say one of --all, --issue and --spec")
    if everything or issue or spec:
        contracts, refused = project.load_all()
        if refused:
            *others, last = refused
            for error in others:  # whoever mends one of them should not meet the next in the night after
                click.echo(f"harness: {error}", err=True)
            raise last
        found = [
            contract
            for contract in contracts
            if everything or (issue and contract.issue == issue) or (spec and contract.spec == spec)
        ]
        if not found:
            wanted = f"for issue {issue}" if issue else f"for spec {spec}" if spec else "at all"
            remedy = "`harness list` shows them" if contracts else "`harness new` makes one"
            raise ProjectError(f"there is no contract {wanted} under {project.contracts}; {remedy}")
        chosen.update((contract.id, contract) for contract in found)
    if not chosen:
        raise click.UsageError("name a claim, or --all, --issue or --spec; `harness list` shows the claims")
    return list(chosen.values())


def _attest(key: Path | None) -> Attest | None:
    """What signs a bundle: tried before hours of work, for a key that cannot sign refuses the run."""
    if key is None:
        return None
    from functools import partial

    from harness.evidence import attestation

    return partial(attestation.attest, signer=signer_of(key))


def checked_device(text: str) -> str:
    """The value of --device; BadParameter where it names no device."""
    if text in ("auto", "cpu") or (re.fullmatch(r"cuda:[0-9]{1,4}", text)):
        return text
    wanted = text.lower()
    near = "cuda:0" if wanted in ("cuda", "gpu") else wanted if wanted != text else ""
    hint = f"; did you mean {near}?" if near in ("auto", "cpu") or near.startswith("cuda") else ""
    raise click.BadParameter(f"{text!r} is not auto, cpu or cuda:N{hint}", param_hint="--device")


def _missed(failures: Iterable[Exception]) -> bool:
    """Whether a report is missing; says of each why. Who reads our output may leave when they like."""
    gone = (errno.EPIPE, errno.EIO)  # a pipe that was closed, a terminal that was
    telling = [error for error in failures if not (isinstance(error, OSError) and error.errno in gone)]
    for error in telling:
        click.echo(f"harness: a report is missing: {type(error).__name__}: {error}", err=True)
    return bool(telling)


def _let_go(stream: IO[str]) -> None:
    """Drop what a stream cannot take any more: Python would try again at its end, and exit with a status of its own."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
