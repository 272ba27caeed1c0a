"""`harness new ID`: makes the files of a new claim. They pass lint; the claim is NOT_MEASURED until you fill them in.

Each claim has its own modules: F-DISTILL-SMOKE-001 becomes falsifiers/distill/smoke.py (the falsifier, and the Protocol
that it needs), smoke_subject.py and smoke_mutants.py. If several claims of a folder share a subject, move it to a
subject.py by hand.
"""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.base import schemas, strictjson
from harness.base.vocabulary import ExitStatus
from harness.cli.kernel import document_of, kernel_options
from harness.cli.scaffold import render, write_all
from harness.contract import parse
from harness.contract.layout import laid_out
from harness.contract.project import Project, ProjectError
from harness.report.terminal.printing import tell, tell_all

__all__ = ["command"]

_OPTIONS = {"/id": "ID", "/issue": "--issue", "/spec": "--spec", "/title": "--title"}
_IN_THE_WAY = (FileExistsError, NotADirectoryError)


@dataclass(frozen=True)
class _Claim:
    """A new claim, with the places of its files."""

    id: str
    issue: str
    spec: str
    title: str
    folder: str
    name: str

    @property
    def module(self) -> str:
        """The name of the falsifier's module."""
        return f"falsifiers.{self.folder}.{self.name}"


@click.command("new")
@click.argument("identifier", metavar="ID")
@click.option("--issue", default="NO-ISSUE", show_default=True, help="The issue it belongs to, such as PMAT-697.")
@click.option("--spec", help="The spec that makes the claim.  [default: SPEC-… with the second part of the ID]")
@click.option("--title", default="TODO: the claim in one line", help="The claim in one line.")
@click.option("--folder", help="The folder of the family.  [default: the second part of the ID]")
@click.option("--name", help="The falsifier's module.  [default: the rest of the ID, without its number]")
@click.option(
    "--kernel", metavar="MODULE:NAME", help="Claim that this function of tensors is right; writes a contract."
)
@click.option("--cuda", is_flag=True, help="With --kernel: the claim is about a GPU; a CPU runs a reduced profile.")
@kernel_options
def command(
    identifier: str,
    issue: str,
    spec: str | None,
    title: str,
    folder: str | None,
    name: str | None,
    kernel: str | None,
    cuda: bool,
    **described: Any,
) -> ExitStatus:
    """Scaffold a claim: contract, falsifier, subject, mutant and test.

    `harness lint` passes at once. `harness run ID` says NOT_MEASURED until you fill in the parts marked TODO. If one of
    the files exists, nothing is written.

    With --kernel, the contract alone is written: what `harness kernel check` tries, as a claim of the project. The
    options from --against to --without belong to it.
    """
    project = Project.find()
    if kernel is not None:
        return _kernel_claim(project, _claim(identifier, issue, spec, title, folder, name), kernel, cuda, described)
    if described["against"] is not None or cuda:
        raise click.UsageError("--against and --cuda belong to --kernel")
    if not project.search:
        raise ProjectError(f"{project.root / 'pyproject.toml'}: tool.harness.pythonpath is empty; name a folder")
    claim = _claim(identifier, issue, spec, title, folder, name)
    contract, contents = _contents(project, claim)
    _refuse_lookalikes(project, claim)
    try:
        write_all(contents)
    except OSError as error:
        # If the disk is full or read-only, another name does not help.
        remedy = "; another --name or --folder may help" if isinstance(error, _IN_THE_WAY) else ""
        raise click.ClickException(f"{error}{remedy}") from error
    for path in contents:
        tell(f"wrote {path.relative_to(project.root)}")
    *_, test = contents  # the last one
    tell_all(_next(claim, contract.relative_to(project.root), test.relative_to(project.root)))
    return ExitStatus.PASS


def _kernel_claim(project: Project, claim: _Claim, kernel: str, cuda: bool, described: dict[str, Any]) -> ExitStatus:
    """Write the contract of a function of tensors."""
    document = document_of(project, kernel, claim.id, on_gpu=cuda, **described)
    named = {"id": claim.id, "issue": claim.issue, "spec": claim.spec}
    title = document["title"] if claim.title.startswith("TODO") else claim.title
    document = {"$schema": "../schema/contract.schema.json", **document, **named, "title": title}
    path = project.contracts / claim.folder / f"{claim.id}.json"
    _refuse_lookalikes(project, claim)
    try:
        write_all({path: laid_out(document)})
    except OSError as error:
        raise click.ClickException(str(error)) from error
    tell(f"wrote {path.relative_to(project.root)}")
    tell(f"Then: harness lint, and harness run {claim.id}")
    return ExitStatus.PASS


def _claim(identifier: str, issue: str, spec: str | None, title: str, folder: str | None, name: str | None) -> _Claim:
    """Return the claim. Missing options are derived from its id."""
    schema = strictjson.load(schemas.schema_folder() / "contract.schema.json")["properties"]["id"]
    if not re.fullmatch(schema["pattern"], identifier) or len(identifier) > schema["maxLength"]:
        raise click.BadParameter(
            f"{identifier!r} is no id; write something like F-DISTILL-SMOKE-001, at most {schema['maxLength']} letters",
            param_hint="ID",
        )
    if not title.isprintable():
        raise click.BadParameter("must be one line of text", param_hint="--title")
    _, second, *rest = identifier.split("-")
    if rest and rest[-1].isdigit():
        rest.pop()
    folder = folder or second.lower()
    name = name or "_".join(rest).lower() or folder
    for given, option in ((folder, "--folder"), (name, "--name")):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", given) or keyword.iskeyword(given):
            raise click.BadParameter(f"{given!r} is no name for a Python module; give another", param_hint=option)
    if folder == "schema":
        raise click.BadParameter("contracts/schema/ holds no contracts; give another", param_hint="--folder")
    return _Claim(identifier, issue, spec or f"SPEC-{second}-001", title, folder, name)


def _contents(project: Project, claim: _Claim) -> tuple[Path, dict[Path, str]]:
    """Return the contract's path, and the text of each file by its path. The test is the last file."""
    home = next((folder for folder in project.search if (folder / "falsifiers").is_dir()), project.search[0])
    package = home / "falsifiers" / claim.folder
    contract = project.contracts / claim.folder / f"{claim.id}.json"
    mirror = project.root / "tests" / "falsifiers" / claim.folder
    packages = {
        package.parent / "__init__.py": render("falsifiers.py.template"),
        package / "__init__.py": render("spec.py.template", spec=claim.spec),
    }
    modules = {
        package / f"{claim.name}.py": render("falsifier.py.template", id=claim.id),
        package / f"{claim.name}_subject.py": render("subject.py.template", id=claim.id),
        package / f"{claim.name}_mutants.py": render("mutants.py.template", id=claim.id, module=claim.module),
    }
    # A package tests/falsifiers could hide the falsifiers. Without packages, pytest refuses two files of one name.
    test = {mirror / f"test_{claim.folder}_{claim.name}.py": render("test.py.template", id=claim.id)}
    return contract, {
        contract: _contract(claim, contract),
        **_missing(packages),
        **modules,
        **test,
    }


def _missing(packages: dict[Path, str]) -> dict[Path, str]:
    return {path: text for path, text in packages.items() if not path.exists()}


def _contract(claim: _Claim, path: Path) -> str:
    """Return the contract's text. Options that break the schema are refused."""
    quoted = {key: json.dumps(getattr(claim, key), ensure_ascii=False) for key in ("id", "issue", "spec", "title")}
    text = render("contract.json.template", module=claim.module, **quoted)
    document: Any = strictjson.loads(text.encode())
    for problem in schemas.problems("contract", document):
        raise click.BadParameter(problem.message, param_hint=_OPTIONS.get(problem.pointer, problem.pointer))
    parse(document, path, text.encode())
    return laid_out(document)


def _refuse_lookalikes(project: Project, claim: _Claim) -> None:
    """Refuse a claim that has a contract already, or a module that a package would hide."""
    for path in project.files():
        if path.stem == claim.id:
            raise click.ClickException(f"{claim.id} has a contract already, {path}; give the claim another id")
    for folder in project.search:
        package = folder / "falsifiers" / claim.folder / claim.name
        if package.is_dir():
            raise click.ClickException(f"{package} is a package, and would hide a module of that name; give a --name")


def _next(claim: _Claim, contract: Path, test: Path) -> list[str]:
    place = claim.module.replace(".", "/")
    return [
        "",
        "Now fill in each TODO, and adapt the test:",
        f"  1. {contract}: the claim, its source, and the measurements that refute it",
        f"  2. {place}_subject.py: the code under test, behind the falsifier's Protocol",
        f"  3. {place}.py: do the work and measure",
        f"  4. {place}_mutants.py: a defect that the falsifier must find",
        f"  5. {test}: measurements that satisfy the contract, and some that refute the claim",
        f"Then: harness lint, and harness run {claim.id}",
    ]
