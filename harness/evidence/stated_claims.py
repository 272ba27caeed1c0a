"""Reads the part of each contract that a status needs, and remembers which contracts are accepted.

    claims, refused = stated_claims(project, project.known())

To load a contract takes milliseconds, most of it to check that it can hold. A contract that was accepted once is
accepted again while it, its calibration, the modules of its entry points and the harness's loader are the same files:
of the same size, time and inode. A refused contract is loaded each time. What a contract says is read each time, too,
so that no status follows from the memory.
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
from harness.base import regular_file, strictjson
from harness.base.device import Target
from harness.base.schemas import Problem, schema_folder
from harness.base.strictjson import JsonObject
from harness.contract import Contract, ContractError
from harness.contract.calibration import calibration_path
from harness.contract.contract_annotations import Refutation, judging_part
from harness.contract.entry_point import locate
from harness.contract.project import Project
from harness.machine.file_memory import identity, keep, recall

__all__ = ["Stated", "stated_claims"]


@final
@dataclass(frozen=True, slots=True)
class Stated:
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
    parameters: frozenset[str]
    """The names of the claim's parameters, of every profile."""
    stands_in_for: str
    refuted: tuple[Refutation, ...]

    @classmethod
    def of(cls, contract: Contract) -> Stated:
        """The part of a contract that a status needs."""
        return cls._read(contract.document, contract.digest)

    @classmethod
    def at(cls, path: Path) -> Stated | None:
        """The same of a file that was accepted before; None if it is no contract."""
        try:
            content = regular_file.read(path)
            return cls._read(strictjson.loads(content), hashlib.sha256(judging_part(content)).hexdigest())
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    @classmethod
    def _read(cls, document: JsonObject, digest: str) -> Stated:
        mutants = tuple(mutant["id"] for mutant in document["mutants"])
        refuted = tuple(map(Refutation.from_json, document.get("refuted", ())))
        named = {name: document[name] for name in ("id", "issue", "spec", "title", "subject")}
        profiles = document["profiles"].values()
        return cls(
            **named,
            target=document.get("target", {}),
            digest=digest,
            mutants=mutants,
            parameters=frozenset(name for profile in profiles for name in profile.get("parameters", ())),
            stands_in_for=document.get("stands_in_for", ""),
            refuted=refuted,
        )


def stated_claims(project: Project, paths: Iterable[Path]) -> tuple[list[Stated], list[ContractError]]:
    """Return the statements of contract files, and the refusals. A second file with one id is refused."""
    loader = _loader()
    known, fresh, refused = recall("contracts", project.root, loader) or {}, dict[str, Any](), list[ContractError]()
    found: dict[str, tuple[Stated, Path]] = {}
    state = lru_cache(maxsize=None)(_state)
    for path in paths:
        row = known.get(str(path))
        state(str(path))  # before it is read
        one = None
        if row is not None and row == {name: state(name) for name in row}:
            one = Stated.at(path)
        if one is None:
            try:
                contract = project.load(path)
            except ContractError as error:
                refused.append(error)
                continue
            entries = {contract.falsifier, contract.subject, *(mutant.subject for mutant in contract.mutants)}
            modules = {str(locate(entry, project.search_of(path))) for entry in entries}
            row = {name: state(name) for name in (str(path), str(calibration_path(path)), *sorted(modules))}
            one = Stated.of(contract)
        fresh[str(path)] = row
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
