"""Remembers the part of each contract that a status needs, until a file changes.

    claims, refused = stated_claims(project, project.known())

To load a contract takes milliseconds, most of it to check that it can hold. A contract that was accepted once is
accepted again while it, its calibration, the modules of its entry points and the harness's loader are the same files:
of the same size, time and inode. A refused contract is loaded each time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import harness.contract
from harness.base import strictjson
from harness.base.device import Target
from harness.base.json_dataclass import JsonDataclass
from harness.base.schemas import Problem, schema_folder
from harness.contract import Contract, ContractError
from harness.contract.calibration import calibration_path
from harness.contract.contract_annotations import Refutation
from harness.contract.entry_point import locate
from harness.contract.project import Project
from harness.machine.file_memory import identity, keep, recall

__all__ = ["Stated", "stated_claims"]


@final
@dataclass(frozen=True, slots=True)
class Stated(JsonDataclass):
    """The part of a contract on which its claim's status depends."""

    id: str
    issue: str
    spec: str
    title: str
    target: Target
    subject: str
    digest: str
    mutants: tuple[str, ...]
    """The ids of the mutants."""
    stands_in_for: str
    refuted: tuple[Refutation, ...]

    @classmethod
    def of(cls, contract: Contract) -> Stated:
        """The part of a contract that a status needs."""
        return cls(
            contract.id, contract.issue, contract.spec, contract.title, contract.target,
            contract.document["subject"], contract.digest, tuple(mutant.id for mutant in contract.mutants),
            contract.stands_in_for, contract.refuted,
        )  # fmt: skip


def stated_claims(project: Project, paths: Iterable[Path]) -> tuple[list[Stated], list[ContractError]]:
    """Return the statements of contract files, and the refusals. A second file with one id is refused."""
    loader = _loader()
    known, fresh, refused = recall("contracts", project.root, loader) or {}, dict[str, Any](), list[ContractError]()
    found: dict[str, tuple[Stated, Path]] = {}
    state = lru_cache(maxsize=None)(_state)
    for path in paths:
        row = known.get(str(path))
        state(str(path))  # before it is read
        if row is None or row["states"] != [state(name) for name in row["files"]]:
            try:
                contract = project.load(path)
            except ContractError as error:
                refused.append(error)
                continue
            entries = {contract.falsifier, contract.subject, *(mutant.subject for mutant in contract.mutants)}
            modules = {str(locate(entry, project.search_of(path))) for entry in entries}
            files = [str(path), str(calibration_path(path)), *sorted(modules)]
            row = {"files": files, "states": [state(name) for name in files], "stated": Stated.of(contract).to_json()}
        fresh[str(path)] = row
        one = Stated.from_json(row["stated"])
        if one.id in found:
            problem = Problem("/id", f"{one.id} is also in {found[one.id][1]}", "give each claim one contract")
            refused.append(ContractError(path, [problem]))
        found.setdefault(one.id, (one, path))
    if fresh != known:
        keep("contracts", project.root, loader, fresh)
    return [one for one, _ in found.values()], refused


def _state(name: str) -> str:
    try:
        return identity(name, of_target=True)
    except OSError:
        return ""


def _loader() -> str:
    """The state of the code and the schemas that decide whether a contract is accepted."""
    folders = [Path(harness.contract.__file__).parent, Path(strictjson.__file__).parent, schema_folder()]
    files = sorted(str(path) for folder in folders for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(json.dumps([(name, _state(name)) for name in files]).encode()).hexdigest()
