"""`harness new ID`: makes the files of a new claim. They pass lint; the claim is NOT_MEASURED until you fill them in.

Each claim has its own modules: F-DISTILL-SMOKE-001 becomes falsifiers/distill/smoke.py (the falsifier, and the Protocol
that it needs) and smoke_subject.py. If several claims of a folder share a subject, move it to a subject.py by hand.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.base import schemas, strictjson
from harness.base.vocabulary import ExitStatus
from harness.cli.scaffold import render, write_all
from harness.contract import parse
from harness.contract.claim_folder import CONTRACT, claim_of
from harness.contract.project import Project, ProjectError
from harness.report.terminal.printing import tell, tell_all

__all__ = ["NewClaim", "command", "new_claim_options"]

_OPTIONS = {"/id": "ID", "/issue": "--issue", "/spec": "--spec", "/title": "--title"}
_IN_THE_WAY = (FileExistsError, NotADirectoryError)


@dataclass(frozen=True)
class NewClaim:
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

    @classmethod
    def of(
        cls,
        identifier: str,
        issue: str,
        spec: str | None,
        title: str | None,
        folder: str | None,
        name: str | None = None,
    ) -> NewClaim:
        """Return the claim. Missing options are derived from its id.

        Raises:
            click.BadParameter: one of them cannot be used.
        """
        title = "TODO: the claim in one line" if title is None else title
        schema = strictjson.load(schemas.schema_folder() / "contract.schema.json")["properties"]["id"]
        if not re.fullmatch(schema["pattern"], identifier) or len(identifier) > schema["maxLength"]:
            raise click.BadParameter(
                f"{identifier!r} is no id; write something like F-DISTILL-SMOKE-001, "
                f"at most {schema['maxLength']} letters",
                param_hint="ID",
            )
        if not title.isprintable():
            raise click.BadParameter("must be one line of text", param_hint="--title")
        _, second, *rest = identifier.split("-")
        if rest and rest[-1].isdigit():
            rest.pop()
        folder = folder or second.lower()
        name = name or "_".join(rest).lower() or folder
        for value, option in ((folder, "--folder"), (name, "--name")):
            if not re.fullmatch(r"[a-z][a-z0-9_]*", value) or keyword.iskeyword(value):
                raise click.BadParameter(f"{value!r} is no name for a Python module; give another", param_hint=option)
        if folder == "schema":
            raise click.BadParameter("contracts/schema/ holds no contracts; give another", param_hint="--folder")
        return cls(identifier, issue, spec or f"SPEC-{second}-001", title, folder, name)

    def refuse_lookalikes(self, project: Project) -> None:
        """Refuse a claim that has a contract already, or a module that a package would hide."""
        for path in project.files():
            if claim_of(path) == self.id:
                raise click.ClickException(f"{self.id} has a contract already, {path}; give the claim another id")
        for folder in project.search:
            package = folder / "falsifiers" / self.folder / self.name
            if package.is_dir():
                raise click.ClickException(
                    f"{package} is a package, and would hide a module of that name; give a --name"
                )


def new_claim_options(decorated: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where a claim belongs."""
    for option in (
        click.option("--folder", help="The folder of the family.  [default: the second part of the ID]"),
        click.option("--title", help="The claim in one line."),
        click.option("--spec", help="The spec that makes the claim.  [default: SPEC-… with the second part of the ID]"),
        click.option(
            "--issue", default="NO-ISSUE", show_default=True, help="The issue it belongs to, such as PMAT-697."
        ),
    ):
        decorated = option(decorated)
    return decorated


@click.command("new")
@click.argument("identifier", metavar="ID")
@new_claim_options
@click.option("--name", help="The falsifier's module.  [default: the rest of the ID, without its number]")
@click.option("--cause", "kind", flag_value="cause", help="Rival causes of a failure, and their fixes.")
@click.option("--training", "kind", flag_value="training", help="A training run: its losses, and weights that move.")
def command(
    identifier: str,
    issue: str,
    spec: str | None,
    title: str | None,
    folder: str | None,
    name: str | None,
    kind: str | None,
) -> ExitStatus:
    """Scaffold a claim: contract, falsifier, subject, mutant and test.

    `harness lint` passes at once. `harness run ID` says NOT_MEASURED until you fill in the parts marked TODO. If one of
    the files exists, nothing is written.
    """
    project = Project.find()
    if not project.search:
        raise ProjectError(f"{project.root / 'pyproject.toml'}: tool.harness.pythonpath is empty; name a folder")
    claim = NewClaim.of(identifier, issue, spec, title, folder, name)
    contract, contents = _contents(project, claim, kind or "")
    claim.refuse_lookalikes(project)
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


def _contents(project: Project, claim: NewClaim, kind: str) -> tuple[Path, dict[Path, str]]:
    """Return the contract's path, and the text of each file by its path. The test is the last file.

    Args:
        kind: the folder of the templates, empty for those of any claim.
    """
    home = next((folder for folder in project.search if (folder / "falsifiers").is_dir()), project.search[0])
    package = home / "falsifiers" / claim.folder
    contract = project.contracts / claim.folder / claim.id / CONTRACT
    mirror = project.root / "tests" / "falsifiers" / claim.folder
    packages = {
        package.parent / "__init__.py": render("falsifiers.py.template"),
        package / "__init__.py": render("spec.py.template", spec=claim.spec),
    }
    modules = {
        package / f"{claim.name}.py": render(f"{kind}/falsifier.py.template", id=claim.id),
        package / f"{claim.name}_subject.py": render(f"{kind}/subject.py.template", id=claim.id),
    }
    # A package tests/falsifiers could hide the falsifiers. Without packages, pytest refuses two files of one name.
    test = {mirror / f"test_{claim.folder}_{claim.name}.py": render(f"{kind}/test.py.template", id=claim.id)}
    return contract, {
        contract: _contract(claim, contract, kind),
        **_missing(packages),
        **modules,
        **test,
    }


def _missing(packages: dict[Path, str]) -> dict[Path, str]:
    return {path: text for path, text in packages.items() if not path.exists()}


def _contract(claim: NewClaim, path: Path, kind: str) -> str:
    """Return the contract's text. Options that break the schema are refused."""
    quoted = {key: json.dumps(getattr(claim, key), ensure_ascii=False) for key in ("id", "issue", "spec", "title")}
    text = render(f"{kind}/contract.json.template", module=claim.module, **quoted)
    document: Any = strictjson.loads(text.encode())
    for problem in schemas.problems("contract", document):
        raise click.BadParameter(problem.message, param_hint=_OPTIONS.get(problem.pointer, problem.pointer))
    parse(document, path, text.encode())
    return text


def _next(claim: NewClaim, contract: Path, test: Path) -> list[str]:
    place = claim.module.replace(".", "/")
    return [
        "",
        "Now fill in each TODO, and adapt the test:",
        f"  1. {contract}: the claim, its source, the measurements that refute it, and defects of the subject",
        f"  2. {place}_subject.py: the code under test, behind the falsifier's Protocol",
        f"  3. {place}.py: do the work and measure",
        f"  4. {test}: measurements that satisfy the contract, and some that refute the claim",
        f"Then: harness lint, and harness run {claim.id}",
    ]
