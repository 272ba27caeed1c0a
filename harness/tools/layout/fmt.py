"""`harness fmt`: gives all contracts the same layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import click

from harness.base import regular_file, strictjson
from harness.base.vocabulary import ExitStatus
from harness.contract.claim_folder import CALIBRATION, CONTRACT, EQUIVALENT, NOTES, PLANTING
from harness.contract.project import Project
from harness.report.terminal.printing import tell
from harness.tools.laid_out import laid_out

__all__ = ["command"]

_SCHEMA = re.compile(rb'("\$schema"\s*:\s*")(?:\.\./)+(?=schema/)')
_CLAIM = re.compile(r"F-[A-Z0-9-]+")
_SIDE_FILES: Final = {".json": CONTRACT, ".md": NOTES, ".calibration.json": CALIBRATION, ".equivalent.json": EQUIVALENT}
"""The ends of the names of a claim's files before claims had folders, and what they are called now."""


@click.command("fmt", short_help="lay contracts out, compact and readable")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
def command(paths: tuple[Path, ...], check: bool) -> ExitStatus:
    """Lay out contract files: files, or folders of them; all of the project's if no PATH is given.

    Keys stay in their order. A changed layout is a changed file: evidence of the claim becomes STALE.

    A claim that has no folder gets one: ID.json becomes ID/contract.json, with the files beside it. Results of planting
    move to evidence/planting/. No evidence becomes STALE by that.
    """
    project = Project.find()
    changed = 0
    for folder in [path for path in paths if path.is_dir()] if paths else [project.contracts]:
        for old, new in [*_moves(project, folder)]:
            changed += 1
            tell(f"{'would move' if check else 'moved'} {old} to {new}")
            if not check:
                _move(old, new)
    files = [file for path in paths for file in (project.files(path) if path.is_dir() else [path])]
    for file in files if paths else project.files():
        try:
            text = regular_file.read(file)
            better = laid_out(strictjson.loads(text)).encode()
        except (OSError, strictjson.JsonError) as error:
            raise click.ClickException(f"{file}: {error}") from error
        if text != better:
            changed += 1
            tell(f"{'would change' if check else 'changed'} {file}")
            if not check:
                file.write_bytes(better)
    return ExitStatus.FAIL if check and changed else ExitStatus.PASS


def _moves(project: Project, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each file below a folder that has the old layout, and its new place."""
    for family in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir())):
        claims = [file.with_suffix("") for file in sorted(family.glob("F-*.json")) if _CLAIM.fullmatch(file.stem)]
        for claim, (end, name) in product(claims, _SIDE_FILES.items()):
            if (old := claim.with_name(claim.name + end)).exists():
                yield old, claim / name
        for result in sorted(family.glob("*planting.json")):
            name = result.name.removesuffix("planting.json").rstrip(".-") or "all"
            yield result, project.evidence / PLANTING / f"{family.name}-{name}.json"


def _move(old: Path, new: Path) -> None:
    if new.exists():
        raise click.ClickException(f"{new} exists; remove it or {old}")
    new.parent.mkdir(parents=True, exist_ok=True)
    # From the folder of a claim, contracts/schema/ is one folder further away.
    new.write_bytes(_SCHEMA.sub(rb"\1../../", regular_file.read(old), count=1))
    old.unlink()
