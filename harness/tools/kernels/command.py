"""`harness kernel`: tries to refute that a function of tensors is right. It needs no contract."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.base import regular_file, strictjson
from harness.base.vocabulary import ExitStatus, Verdict
from harness.cli.new import NewClaim, new_claim_options
from harness.cli.run_options import RunOptions, require_isolable
from harness.cli.scaffold import write_all
from harness.contract import Contract
from harness.contract.claim_folder import CONTRACT
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.project import Project
from harness.evidence.bundle import Bundle
from harness.execution.fork_server import IMPORT_SECONDS, PYTHON, server_environment
from harness.machine.limited_process import Stopped, completed
from harness.report.terminal.printing import tell
from harness.tools.kernels.kernel_contract import KernelCheck, constants_of, contract_of
from harness.tools.laid_out import laid_out
from harness.tools.one_claim import claim_options, performed, project_here, request_of

__all__ = ["command"]

_WATCHED = "relations.txt"
_DTYPES = ("float32", "float64", "bfloat16", "float16")


@click.group("kernel", short_help="try to refute that a function of tensors is right")
def command() -> None:
    """Try to refute that a kernel, a loss or any other function of tensors is right."""


def kernel_options(decorated: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a function of tensors."""
    options = (
        click.option(
            "--against", metavar="MODULE:NAME", help="The reference: the same function, written for exactness."
        ),
        click.option(
            "--example",
            metavar="MODULE:NAME",
            help="Arguments, or a function that returns or draws them.  [default: example in the reference's module]",
        ),
        click.option(
            "--dtype", "dtypes", multiple=True, type=click.Choice(_DTYPES), help="Try this dtype; by default, all four."
        ),
        click.option("--forward-only", is_flag=True, help="It has no gradient."),
        click.option("--nondeterministic", is_flag=True, help="Equal calls may differ in their last bits."),
        click.option("--no-wait", is_flag=True, help="It must not wait for the GPU."),
        click.option("--tf32", is_flag=True, help="Products of float32 may round their factors to TF32."),
        click.option(
            "--slack",
            type=click.FloatRange(0, min_open=True),
            default=1.0,
            show_default=True,
            help="Times every bound.",
        ),
        click.option(
            "--largest",
            type=click.IntRange(min=16),
            default=1 << 14,
            show_default=True,
            help="Elements of all tensors of a call, at most.",
        ),
        click.option(
            "--time", "time", is_flag=True, help="Also time it against the reference, in turns, with fresh inputs."
        ),
        click.option("--without", multiple=True, metavar="RELATION", help="Leave a relation out."),
    )
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@command.command("check")
@click.argument("function", metavar="MODULE:NAME")
@kernel_options
@claim_options("device", "isolate")
def check(given: RunOptions, function: str, **described: Any) -> ExitStatus:
    """Try every relation that holds for a right function of tensors, and show which one fails, with its smallest case.

    Outputs and gradients are compared with the reference in float64, for all dtypes and sizes, in odd layouts, after
    other calls, in reused memory, and in torch's modes. On a GPU, also on another stream and in a CUDA graph.

    The claim's mutants are defects that are planted in this very function: each must be found. The bundle is like those
    of `harness run`, and `harness verify` judges it again.
    """
    project = project_here()
    is_on_gpu = _is_on_gpu(given.device, project)
    document = _document_of(project, function, _name(function), on_gpu=is_on_gpu, isolate=given.isolate, **described)
    with tempfile.TemporaryDirectory(prefix="harness-kernel-") as folder:
        file = Path(folder, document["id"], CONTRACT)
        file.parent.mkdir()
        file.write_text(strictjson.dumps(document), encoding="utf-8")
        contract = project.load(file)
        request = request_of(given, contracts=[contract], device=given.device if is_on_gpu else "cpu")
        if given.isolate:
            require_isolable(request, project)
        return performed(given, project, request, partial(_table, contract))


@command.command("new")
@click.argument("identifier", metavar="ID")
@click.argument("function", metavar="MODULE:NAME")
@new_claim_options
@kernel_options
@click.option("--cuda", is_flag=True, help="The claim is about a GPU; a CPU runs a reduced profile.")
def new(
    identifier: str,
    function: str,
    issue: str,
    spec: str | None,
    title: str | None,
    folder: str | None,
    cuda: bool,
    **described: Any,
) -> ExitStatus:
    """Make what `harness kernel check` tries a claim of the project: write its contract, without a falsifier."""
    project, claim = Project.find(), NewClaim.of(identifier, issue, spec, title, folder)
    document = _document_of(project, function, claim.id, on_gpu=cuda, **described)
    named = {"id": claim.id, "issue": claim.issue, "spec": claim.spec, "title": title or document["title"]}
    document = {"$schema": "../../schema/contract.schema.json", **document, **named}
    path = project.contracts / claim.folder / claim.id / CONTRACT
    claim.refuse_lookalikes(project)
    try:
        write_all({path: laid_out(document)})
    except OSError as error:
        raise click.ClickException(str(error)) from error
    tell(f"wrote {path.relative_to(project.root)}")
    tell(f"Then: harness lint, and harness run {claim.id}")
    return ExitStatus.PASS


def _document_of(
    project: Project,
    function: str,
    name: str,
    *,
    on_gpu: bool,
    against: str | None,
    example: str | None,
    dtypes: tuple[str, ...],
    forward_only: bool,
    nondeterministic: bool,
    no_wait: bool,
    tf32: bool,
    slack: float,
    largest: int,
    time: bool,
    without: tuple[str, ...],
    isolate: bool = False,
) -> dict[str, Any]:
    """Return the contract of a function of tensors.

    Raises:
        click.ClickException: an entry point is missing, or the example raises.
    """
    if against is None:
        raise click.UsageError("--against names the reference, such as mine.reference:silu_mul")
    source = _find(function, project, "MODULE:NAME")
    _find(against, project, "--against")
    if example is None:
        module = against.partition(":")[0]
        example = f"{module}:example"
        if not _defines(example, project):
            example = f"{function.partition(':')[0]}:example"
    _find(example, project, "--example")
    if isolate and time:
        raise click.UsageError("--time measures the function in the process that judges; leave out --isolate")
    if isolate and function.partition(":")[0] in (against.partition(":")[0], example.partition(":")[0]):
        raise click.UsageError(
            "--isolate keeps the function's module out of the process that judges; put the reference and the example "
            "into another module, and name it with --example"
        )
    known = _describe_in_process(project, {"against": against, "example": example})
    unknown = [name for name in without if name not in known["relations"]]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is no relation; they are {', '.join(known['relations'])}", param_hint="--without"
        )
    texts = {relation: text for relation, (text, _) in known["relations"].items() if relation not in without}
    of_gpu = frozenset(relation for relation, (_, needs_gpu) in known["relations"].items() if needs_gpu)
    relations = [relation for relation in texts if on_gpu or relation not in of_gpu]
    declared = {"differentiable": not forward_only, "deterministic": not nondeterministic}
    checked = KernelCheck(
        function=function,
        against=against,
        example=example,
        relations=relations,
        dtypes=dtypes or _DTYPES,
        waits=not no_wait,
        constants=_source_constants(source),
        largest=largest,
        tf32=tf32,
        slack=slack,
        time=time,
        texts=texts,
        needing_gpu=of_gpu,
        **declared,
    )
    defects = {
        measured_relation: (relation, text, calls)
        for measured_relation, (relation, text, calls, needs, needs_gpu) in known["defects"].items()
        if relation in relations and declared.get(needs, True) and (on_gpu or not needs_gpu)
    }
    return contract_of(checked, name, defects, on_gpu=on_gpu)


def _is_on_gpu(device: str, project: Project) -> bool:
    from harness.machine.host import probe

    return device != "cpu" and (device != "auto" or bool(probe(project.root).gpus))


def _name(function: str) -> str:
    return f"F-KERNEL-{re.sub('[^A-Z0-9]+', '-', function.partition(':')[2].upper()).strip('-')[:60]}-001"


def _find(entry_point: str, project: Project, option: str) -> Path | None:
    """Return the file of an entry point of the project; None for one of a library."""
    if not re.fullmatch(r"[\w.]+:\w+", entry_point):
        raise click.BadParameter(f"{entry_point!r} is no MODULE:NAME, such as mine.kernels:silu_mul", param_hint=option)
    try:
        return locate(entry_point, project.search)
    except EntryPointError as error:
        if "there is no module" in str(error) and _is_library(entry_point):
            return None
        raise click.BadParameter(f"{error}; {error.remedy}", param_hint=option) from error


def _is_library(entry_point: str) -> bool:
    from importlib.util import find_spec

    return find_spec(entry_point.partition(".")[0].partition(":")[0]) is not None


def _defines(entry_point: str, project: Project) -> bool:
    try:
        locate(entry_point, project.search)
    except EntryPointError:
        return False
    return True


def _source_constants(source: Path | None) -> tuple[int, ...]:
    try:
        return () if source is None else constants_of(regular_file.read(source).decode("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()


def _describe_in_process(project: Project, names: Mapping[str, str]) -> dict[str, Any]:
    """Ask a process that imports the reference and the example."""
    command = [*PYTHON, "harness.tools.kernels.user_example", json.dumps(names), *map(str, project.search)]
    try:
        done = completed(command, IMPORT_SECONDS, cwd=project.root, environment=server_environment(project.root))
        answer: dict[str, Any] = strictjson.loads(done.stdout.splitlines()[-1])
    except Stopped as error:
        raise click.ClickException(f"the import of the example {error}") from error
    except (ValueError, IndexError) as error:
        raise click.ClickException(f"the example cannot be imported: {done.stderr[-2000:]}") from error
    if "wrong" in answer:
        raise click.ClickException(f"the reference or the example cannot be used: {answer['wrong']}")
    return answer


def _table(contract: Contract, bundle: Path) -> Iterator[str]:
    """Yield a line for each relation, and its violations below it."""
    file, sealed = bundle / "artifacts" / _WATCHED, Bundle(bundle)
    measured = sealed.observation.measurements
    lines = regular_file.read(file).decode("utf-8", "replace").splitlines() if file.exists() else []
    for line in lines:
        relation, tried, inapplicable, refused = (*line.split("\t"), "", "", "")[:4]
        cases = measured.get(relation) or []
        outcome = "FAIL" if cases else inapplicable or ("holds" if tried != "0" else "not tried")
        yield f"  {relation:<18} {tried:>5}  {outcome}"
        yield from (f"      {case}" for case in cases)
        if refused:
            yield f"      refuses {refused}"
    if ratio := measured.get("time_ratio"):
        low, estimate, high = ratio
        yield f"  {'time':<18} {estimate:.3g} of the reference's (99 %: {low:.3g} to {high:.3g})"
        yield from (f"      {reason}" for reason in measured.get("untrue_times", ()))
    left_out = [
        measurement
        for measurement in contract.measurements
        if measurement not in measured and measurement not in ("calls", "untried")
    ]
    if left_out and lines:
        yield f"  not measured: {', '.join(sorted(left_out))}"
    if sealed.record.verdict is Verdict.PASS and sealed.record.proven:
        yield "this PASS is about the relations above; `harness kernel new ID …` makes it a claim of the project"
