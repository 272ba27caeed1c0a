"""The options of `harness run`, and the request that they become."""

# ruff: noqa: RUF009 (a field is declared by a call, as attrs does it)

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base.plugins import plugins
from harness.cli.options import device_option, profile_option
from harness.cli.subject import choose
from harness.contract import Contract
from harness.contract.project import Project, ProjectError
from harness.report.terminal.printing import tell
from harness.running.request import RunRequest

if TYPE_CHECKING:
    from harness.machine.host import Host

__all__ = [
    "RunOptions",
    "refuse_without_gpu",
    "request_of",
    "require_isolable",
    "run_options",
    "with_scratch",
]

_PATH = click.Path(path_type=Path)


def _declared(declaration: Callable[[Any], Any], default: Any) -> Any:
    """Return a field of RunOptions with the declaration of its option."""
    return field(default=default, metadata={"declaration": declaration})


def _option(*names: str, default: Any = None, **settings: Any) -> Any:
    return _declared(click.option(*names, default=default, **settings), default)


def _flag(*names: str, **settings: Any) -> Any:
    return _option(*names, is_flag=True, default=False, **settings)


@dataclass(frozen=True)
class RunOptions:
    """The options of `harness run`. Each field has the option's declaration and, once parsed, its value."""

    ids: tuple[str, ...] = _declared(click.argument("ids", nargs=-1, metavar="[ID]…"), ())
    everything: bool = _flag("--all", "everything", help="Run every claim of the project.")
    stale: bool = _flag("--stale", help="Run only claims whose evidence no longer covers the code.")
    issue: str | None = _option("--issue", metavar="ISSUE", help="Run the claims of an issue, such as PMAT-697.")
    spec: str | None = _option("--spec", metavar="SPEC", help="Run the claims of a spec, such as SPEC-DISTILL-001.")
    without: tuple[str, ...] = _option(
        "--except", "without", multiple=True, default=(), metavar="ID", help="Leave this claim out; may be repeated."
    )
    profile: str = _declared(profile_option, "auto")
    require_gpu: bool = _flag(
        "--require-gpu", help="Refuse the run if no GPU works on this machine, with the driver's reason."
    )
    device: str = _declared(device_option, "auto")
    subject: str | None = _option(
        "--subject",
        metavar="SUBJECT",
        help="Another subject than the contract's: MODULE:NAME of this project, hf:MODULE:FUNCTION for the "
        "transformers.Trainer that a function returns, an external trainer that a TOML file describes: command:FILE "
        "runs it, recorded:FILE judges the directory of a finished run (-P dir=RUN), or file:PATH for a file that is "
        "judged itself.",
    )
    parameters: tuple[str, ...] = _option(
        "-P",
        "parameters",
        multiple=True,
        default=(),
        metavar="KEY=VALUE",
        help="Change a parameter; recorded as an override.",
    )
    no_mutants: bool = _flag("--no-mutants", help="Skip the mutants; a PASS is then shown as unproven everywhere.")
    all_mutants: bool = _flag("--all-mutants", help="Run the mutants also if the subject does not pass.")
    accept: str | None = _option(
        "--accept",
        type=click.Choice(["not-visible"]),
        help="Of a command or a finished run, accept as a PASS for the exit status what lacks only clauses that are "
        "not visible from outside. Its mutants then run, too.",
    )
    isolate: bool = _flag("--isolate", help="Run each subject in a process of its own, apart from the falsifier.")
    fail_fast: bool = _flag("-x", "--fail-fast", help="End the run after the first claim that is FAIL or VOID.")
    seed: int = _option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The seed of every trial."
    )
    jobs: int | None = _option(
        "-j", "--jobs", type=click.IntRange(min=1), help="Trials side by side (claims that measure time: always 1)."
    )
    evidence: Path | None = _option(
        "--evidence", type=_PATH, help="Where bundles go, instead of the project's evidence/."
    )
    scratch: bool = _flag(
        "--scratch", help="Seal into a new temporary folder, not into evidence/. Those of your last three runs stay."
    )
    executor: str = _option(
        "--executor",
        metavar="NAME",
        default="local",
        show_default=True,
        help="Where claims run: local, or slurm, which runs each as a job on a node of the cluster.",
    )
    executor_options: str = _option(
        "--executor-options",
        metavar="TEXT",
        default="",
        help="Options for the executor, as one text; with --executor slurm those of srun, such as --partition=gpu.",
    )
    event_lines: bool = _flag(
        "--event-lines", hidden=True, help="Print every event as a line of JSON; no other reports."
    )
    junit: Path | None = _option("--junit", type=_PATH, metavar="FILE", help="Also write a JUnit report.")
    json_file: str | None = _option(
        "--json", "json_file", metavar="FILE|-", help="Also write the records as JSON; - is standard output."
    )
    key: Path | None = _option(
        "--key",
        type=_PATH,
        envvar="HARNESS_SIGNING_KEY",
        metavar="FILE",
        help="Sign every bundle with this private key (harness keygen). HARNESS_SIGNING_KEY also names it.",
    )
    verbose: bool = _flag("-v", "--verbose", help="Show every step, every clause, and tracebacks.")
    quiet: bool = _flag("-q", "--quiet", help="Show only claims that did not PASS, and the last line of the summary.")
    durations: int = _option(
        "--durations",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        metavar="N",
        help="List the N slowest claims of a run of several; 0 lists all.",
    )


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of RunOptions to a command."""
    for option in reversed(fields(RunOptions)):
        command = option.metadata["declaration"](command)
    return command


def request_of(options: RunOptions, project: Project) -> RunRequest:
    """Return the request that the options describe.

    Raises:
        click.UsageError, ProjectError, ContractError: an option or a contract is refused; nothing has run.
    """
    if options.quiet and options.verbose:
        raise click.UsageError("say one of -q and -v")
    executor_options = _executor_options(options.executor, options.executor_options)
    elsewhere = options.executor != "local"
    if elsewhere and options.fail_fast:
        raise click.UsageError("the jobs of all claims are submitted at once; leave out --fail-fast")
    contracts = _select(project, options)
    request = RunRequest(
        contracts=contracts,
        profile=options.profile,
        device=options.device,
        subjects=choose(options.subject, options.parameters, contracts, project),
        mutants=not options.no_mutants,
        all_mutants=options.all_mutants or options.accept is not None,
        isolate=options.isolate,
        jobs=options.jobs,
        seed=options.seed,
        executor=options.executor,
        executor_options=executor_options,
        evidence=options.evidence,
        fail_fast=options.fail_fast,
        key=options.key,
    )
    if options.stale and (options.subject or options.parameters or options.no_mutants or elsewhere):
        raise click.UsageError(
            "--stale looks for evidence of the contracts as they are, on this machine; leave out --subject, -P, "
            "--no-mutants and --executor, or --stale"
        )
    if options.require_gpu and (elsewhere or options.device == "cpu"):
        raise click.UsageError("--require-gpu speaks of this machine's GPU; leave out --device cpu and --executor")
    if options.isolate:
        require_isolable(request, project)
    return request


def refuse_without_gpu(options: RunOptions, machine: Host) -> None:
    """Check that a GPU works if one is required, or if Slurm gave this process one and the profile is chosen here.

    Otherwise the reduced profile would run on the CPU and pass. A job of another executor gets its profile
    from the client, and seals why it cannot run.

    Raises:
        click.ClickException: no GPU works; the text has the driver's reason.
    """
    from harness.machine.host import promised_gpu

    if machine.gpus:
        return
    if options.require_gpu:
        raise click.ClickException(f"--require-gpu: no GPU works on this machine: {machine.gpu_reason}")
    choosing = options.executor == "local" and options.device != "cpu" and options.profile != "reduced"
    if choosing and not options.event_lines and (promised := promised_gpu()):
        raise click.ClickException(
            f"Slurm gave this job a GPU ({promised}), but none works: {machine.gpu_reason}; "
            "to run without it, say --device cpu or --profile reduced"
        )


def with_scratch(options: RunOptions, run: ExitStack) -> RunOptions:
    """Return the options with the folder of `--scratch`, if they have it, as the folder for evidence.

    Args:
        run: holds the folder.

    Raises:
        click.UsageError: the folder cannot be made, or another option contradicts it.
    """
    if not options.scratch:
        return options
    if options.evidence is not None:
        raise click.UsageError("say one of --scratch and --evidence")
    if options.executor != "local":
        raise click.UsageError("a node does not see this machine's temporary folder; say --evidence FOLDER")
    from harness.evidence.atomic_dir import scratch_folder

    try:
        return replace(options, scratch=False, evidence=run.enter_context(scratch_folder()))
    except OSError as error:
        raise click.BadParameter(f"{error.filename}: {error.strerror}", param_hint="--scratch") from error


def require_isolable(request: RunRequest, project: Project) -> None:
    """Check that the subjects of all claims can be isolated.

    Raises:
        click.UsageError: one cannot. The text names the method or another obstacle.
    """
    for subject in request.subjects.values():
        if subject.why_not_isolated:
            raise click.UsageError(f"{subject.why_not_isolated}; leave out --isolate")
    if request.executor != "local":
        return  # the job checks it, on a node that can import the falsifiers
    from harness.execution.isolation import isolation

    obstacles = isolation().obstacles(project, request.contracts)
    able = [contract.id for contract in request.contracts if not obstacles[contract.id]]
    lines = [f"{name}: {why}" for name, why in obstacles.items() if why]
    if lines:
        others = f"\nThese can: {', '.join(able)}" if able else ""
        raise click.UsageError("--isolate is not possible for\n  " + "\n  ".join(lines) + others)


def _executor_options(name: str, text: str) -> list[str]:
    """Return the options for an executor.

    Raises:
        click.UsageError: there is no such executor, it can run nothing from here, or it has no options.
    """
    if name == "local":
        if text:
            raise click.UsageError("--executor-options are for another executor; add --executor")
        return []
    from harness.running.compose import EXECUTORS

    executors = plugins(EXECUTORS)
    if name not in executors:
        raise click.BadParameter(f"there is no {name!r}; say local, {', '.join(executors)}", param_hint="--executor")
    if why := executors[name].load().obstacle():
        raise click.UsageError(why)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--executor-options") from error


def _select(project: Project, options: RunOptions) -> list[Contract]:
    """Return the requested claims, in the requested order. One invalid contract refuses the run."""
    ids, issue, spec = options.ids, options.issue, options.spec
    everything = options.everything or (options.stale and not (ids or issue or spec))
    chosen: dict[str, Contract] = {name: project.contract(name) for name in project.matching(ids)}
    if ids and (everything or issue or spec):
        raise click.UsageError("name claims, or say --all, --issue or --spec; not both")
    if sum((everything, bool(issue), bool(spec))) > 1:  # refused, because the user may expect one to narrow the other
        raise click.UsageError("say one of --all, --issue and --spec")
    if everything or issue or spec:
        contracts, refused = project.load_all(None if everything else project.known())
        if refused:
            *others, last = refused
            for error in others:  # show all, so that they can be fixed at once
                tell(f"harness: {error}", err=True)
            raise last
        selected = [
            contract
            for contract in contracts
            if everything or (issue and contract.issue == issue) or (spec and contract.spec == spec)
        ]
        if not selected:
            condition = f"for issue {issue}" if issue else f"for spec {spec}" if spec else "at all"
            remedy = "`harness list` shows them" if contracts else "`harness new` makes one"
            raise ProjectError(f"there is no contract {condition} under {project.contracts}; {remedy}")
        chosen.update((contract.id, contract) for contract in selected)
    if not chosen:
        raise click.UsageError(
            "name a claim, several as 'F-DISTILL-*', or say --all, --issue or --spec; `harness list` shows them"
        )
    for name in project.matching(options.without):
        if chosen.pop(name, None) is None:
            raise click.BadParameter(f"{name} is not among the claims of this run", param_hint="--except")
    if not chosen:
        raise click.UsageError("--except leaves no claim to run")
    return list(chosen.values())
