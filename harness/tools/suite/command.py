"""`harness falsify-tests`: tries to refute that a pytest suite tests what it seems to test."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from harness.authoring.faults import NotMeasured
from harness.authoring.setting import Setting
from harness.base import regular_file, strictjson, toml
from harness.base.vocabulary import ExitStatus, Verdict
from harness.cli.options import duration
from harness.cli.run_options import RunOptions
from harness.contract import Contract
from harness.contract.claim_folder import CONTRACT, claim_of
from harness.contract.project import Project
from harness.evidence.bundle import Bundle
from harness.evidence.verified import verify
from harness.report.terminal.printing import tell
from harness.tools.laid_out import laid_out
from harness.tools.one_claim import claim_options, performed, project_here, request_of
from harness.tools.suite.contract import LISTS, SuiteSettings, choose_faults, contract_of
from harness.tools.suite.falsifier import EXECUTED, MUTANTS
from harness.tools.suite.ledger import Ledger, lines_of
from harness.tools.suite.session import of_project
from harness.tools.suite.survivors import missing

__all__ = ["command"]

_SHOWN = 20
"""Entries of a list on the terminal."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_CODE = click.Path(exists=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("falsify-tests", short_help="try to refute that a pytest suite tests what it seems to")
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@click.option("-k", "expression", metavar="EXPRESSION", help="Run only tests that match, as pytest does.")
@click.option("--contract", "contract_file", type=_FILE, metavar="FILE", help="Compare with this contract.")
@click.option("--against", type=_FOLDER, metavar="BUNDLE|DIR", help="Compare with this run, or with the newest PASS.")
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="ID/contract.json", help="Write a contract of what runs now."
)
@click.option(
    "--rounds", type=click.IntRange(min=0), default=1, show_default=True, help="Assertions of each test made to fail."
)
@click.option(
    "--mutate", multiple=True, type=_CODE, metavar="PACKAGE|FILE", help="Try mutants of this code, in copies."
)
@click.option("--budget", type=duration, default="10m", show_default=True, help="Time for the mutants of --mutate.")
@click.option(
    "--most-survivors",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="SHARE",
    help="Refute a larger share of survivors than this, such as 0.2; any by default.",
)
@claim_options()
def command(
    given: RunOptions,
    paths: tuple[str, ...],
    expression: str | None,
    contract_file: Path | None,
    against: Path | None,
    write: Path | None,
    rounds: int,
    mutate: tuple[Path, ...],
    budget: float,
    most_survivors: float | None,
) -> ExitStatus:
    """Run a pytest suite, and try to refute that it tests what it seems to test.

    The suite runs in this folder. What it executes is compared with a contract, or with an earlier run: assertions that
    held, and cells, which are tests with values of their parameters. Then an assertion is made to fail in each test; a
    test that still passes is deaf. Without --contract and --against, the suite runs once more before, for comparison.

    With --mutate, Cosmic Ray changes one place at a time in a copy of this folder, in an order by the seed. The report
    has the mutants that no test kills.

    The claim's mutants are defects of suites, planted in the tests of this one: each must be seen. The bundle is like
    those of `harness run`, and `harness verify` judges it again.
    """
    if most_survivors is not None and not mutate:
        raise click.UsageError("--most-survivors is about the mutants of --mutate; say which code to change")
    if contract_file is not None and (paths or against or write or mutate):
        raise click.UsageError("a contract says which paths it is about, and what is expected; use --contract alone")
    if not paths and contract_file is None and against is None:
        raise click.UsageError("say which tests: harness falsify-tests tests/")
    project = project_here()
    options = ["-k", expression] if expression else []
    request = request_of(given)
    if contract_file is not None:
        contract = project.load(contract_file)
        request = replace(request, contracts=[contract], parameters=_extra_parameters(contract, options))
        return performed(given, project, request, _found)
    with tempfile.TemporaryDirectory(prefix="harness-suite-") as folder:
        place = Path(folder)
        code = _relative_paths(project.root, mutate) if mutate else []
        settings = _settings(project, paths, options, rounds, against, place)
        settings = replace(
            settings, mutate=code, budget_seconds=budget, workers=request.jobs or 1, most_survivors=most_survivors
        )
        if write is not None:
            return _write_contract(write, settings, project)
        return performed(given, project, replace(request, contracts=[_contract(settings, project, place)]), _found)


def _relative_paths(root: Path, paths: tuple[Path, ...]) -> list[str]:
    """Return the paths of code from the root."""
    if find_spec("cosmic_ray") is None:
        raise click.ClickException(missing())
    absolute = [path.absolute() for path in paths]
    for path in absolute:
        if not path.is_relative_to(root):
            raise click.BadParameter(f"{path} is not below {root}", param_hint="--mutate")
    return [path.relative_to(root).as_posix() for path in absolute]


def _found(bundle: Path) -> Iterator[str]:
    """Yield every entry of what refutes the claim, and the survivors among the mutants."""
    yield from _entries(bundle)
    yield from _survivors(bundle)


def _entries(bundle: Path) -> Iterator[str]:
    """Yield the entries of each list that has to be empty and is not."""
    for name, entries in Bundle(bundle).observation.measurements.items():
        if name in LISTS and entries:
            yield f"{name}:"
            yield from (f"  {entry}" for entry in entries[:_SHOWN])
            if len(entries) > _SHOWN:
                yield f"  and {len(entries) - _SHOWN} more, in {bundle / 'observation.json'}"


def _survivors(bundle: Path) -> Iterator[str]:
    """Yield the place of each survivor, the line there, and what it becomes."""
    file = bundle / "artifacts" / MUTANTS
    diffs = regular_file.read(file).decode("utf-8").partition("\n\n")[2] if file.exists() else ""
    lines = [line for line in diffs.splitlines() if line and not line.startswith((" ", "---", "+++", "@@"))]
    if lines:
        yield "mutants of the code under test that survive:"
        yield from lines


def _extra_parameters(contract: Contract, options: list[str]) -> dict[str, Any]:
    profile = contract.profiles.get("full") or contract.profiles["reduced"]
    if "paths" not in profile.parameters or "options" not in profile.parameters:
        raise click.BadParameter(f"{contract.id} is not about a suite of tests", param_hint="--contract")
    return {"options": [*profile.parameters["options"], *options]} if options else {}


def _settings(
    project: Project, paths: tuple[str, ...], options: list[str], rounds: int, against: Path | None, folder: Path
) -> SuiteSettings:
    """Return what the suite is asked: to execute what an earlier run did, or its own first run."""
    name = f"F-TESTS-{_name(project.root)}-001"
    if against is None:
        tell(f"first run of {' '.join(paths)}, for comparison", err=True)
        reference = _first_run(paths, options, folder)
        return SuiteSettings(name, paths, options, rounds, tuple(lines_of(reference)), checks=False)
    bundle = _earlier_bundle(against, name)
    earlier = {**bundle.contract.profiles[bundle.record.profile].parameters, **bundle.record.overrides}
    before = tuple(earlier.get("paths", ()))
    if paths and paths != before:
        raise _refused(f"{bundle.path} is about {' '.join(before)}; name these paths, or none")
    try:
        kept = regular_file.read(bundle.path / "artifacts" / EXECUTED).decode("utf-8").splitlines()
    except OSError as error:
        raise _refused(f"{bundle.path} does not say what ran: {error.strerror}") from error
    options = [*earlier["options"], *options]
    return SuiteSettings(bundle.record.id, before, options, rounds, kept, source=f"bundle {bundle.path.name}")


def _name(root: Path) -> str:
    """Return the name of the distribution in a folder, or that of the folder, as part of a claim's id."""
    try:
        named = toml.load(root / "pyproject.toml")["project"]["name"]
    except (OSError, ValueError, LookupError, TypeError):
        named = root.name
    return re.sub("[^A-Z0-9]+", "-", str(named).upper()).strip("-")[:60] or "SUITE"


def _first_run(paths: tuple[str, ...], options: list[str], folder: Path) -> Ledger:
    try:
        return of_project(Setting({"paths": [*paths], "options": options}, "cpu", 0, folder, folder)).run()
    except NotMeasured as error:
        raise click.ClickException(str(error)) from error


def _earlier_bundle(path: Path, name: str) -> Bundle:
    """Return the bundle, or the newest PASS of this claim at or below the folder."""
    passed = [
        Bundle(verification.path)
        for verification in verify(path)
        if verification.sound and verification.verdict is Verdict.PASS
    ]
    candidates = [
        bundle
        for bundle in passed
        if bundle.record.id == name or os.path.realpath(bundle.path) == os.path.realpath(path)
    ]
    if not candidates:
        raise _refused(f"{path} has no sound bundle of {name} with the verdict PASS")
    return max(candidates, key=lambda candidate: candidate.record.started)


def _refused(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="--against")


def _contract(settings: SuiteSettings, project: Project, folder: Path) -> Contract:
    planted = choose_faults(settings.tests, project.root)
    if not planted:
        raise click.ClickException(
            f"no test at {' '.join(settings.paths)} passes and asserts anything; nothing to judge"
        )
    file = folder / settings.name / CONTRACT
    file.parent.mkdir()
    file.write_text(strictjson.dumps(contract_of(settings, planted)), encoding="utf-8")
    return project.load(file)


def _write_contract(file: Path, settings: SuiteSettings, project: Project) -> ExitStatus:
    """Write a contract that states the cells and the assertions of the first run."""
    if file.name != CONTRACT:
        raise click.BadParameter(f"name the file ID/{CONTRACT}, not {file.name}", param_hint="--write")
    file.parent.mkdir(parents=True, exist_ok=True)
    stated = replace(settings, name=claim_of(file), exactly=True, checks=True)
    file.write_text(laid_out(contract_of(stated, choose_faults(settings.tests, project.root))), encoding="utf-8")
    tell(f"wrote {file}; harness falsify-tests --contract {file} compares with it")
    return ExitStatus.PASS
