"""The project: the nearest folder, from the current one upwards, whose pyproject.toml has `[tool.harness]`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import near, toml
from harness.base.schemas import Problem
from harness.contract.claim_folder import CALIBRATION, EQUIVALENT, claim_of
from harness.contract.contract_annotations import FIGURES
from harness.contract.installed import claims_roots, root_of, source_file, source_name

if TYPE_CHECKING:
    from harness.contract import Contract, ContractError

__all__ = ["Mentions", "Project", "ProjectError"]

_SCHEMAS = "schema"
"""The folder in contracts/ with copies of the schemas, for editors."""
_NO_CONTRACTS = frozenset({FIGURES, CALIBRATION, EQUIVALENT})
_OLD_NAMES = (".calibration.json", ".equivalent.json", "planting.json")
"""Names of files beside a contract before claims had folders. `harness fmt` moves these files."""


class ProjectError(ValueError):
    """There is no project, its configuration is wrong, or it has no such claim."""


_MARKS = ("pyproject.toml", ".git")
"""Files that mark the root of a repository without `[tool.harness]`."""


@dataclass(frozen=True)
class Mentions:
    """How to find claims that a project's files mention."""

    pattern: str = r"F-[A-Z0-9]+(?:-[A-Z0-9]+)*-[0-9]{3}"
    """A regular expression for the id of a claim, matched against whole words."""
    exclude: tuple[str, ...] = ()
    """Globs of files and folders that are not searched, and ids that are examples."""


@dataclass(frozen=True)
class Project:
    """The folders of a project: its contracts, its evidence and the import roots of its code."""

    root: Path
    contracts: Path
    evidence: Path
    search: tuple[Path, ...]
    mentions: Mentions = Mentions()
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By rule, globs of the claims for which lint ignores the rule's warnings."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """By glob of claims, the value of `--subject`. Its paths are relative to the root."""

    @classmethod
    def find(cls, start: Path | None = None) -> Project:
        """Return the project of a folder; by default, of the current folder.

        Raises:
            ProjectError: no pyproject.toml with `[tool.harness]` in the folder or above it, or an invalid setting.
        """
        here = Path(os.path.realpath(start or Path.cwd()))
        project = cls.around(here)
        if project is None:
            raise ProjectError(f"no pyproject.toml with [tool.harness] in {here} or above it; `harness init` makes one")
        return project

    @classmethod
    def around(cls, start: Path | None = None) -> Project | None:
        """Like `find`, but return None if there is no project.

        Raises:
            ProjectError: a setting is invalid.
        """
        here = Path(os.path.realpath(start or Path.cwd()))
        for folder in (here, *here.parents):
            settings = _settings(folder / "pyproject.toml")
            if settings is not None:
                return cls._of(folder, settings)
        if claims_roots():  # with installed claims, a repository without settings is a project too
            for folder in (here, *here.parents):
                if any((folder / name).exists() for name in _MARKS):
                    return cls._of(folder, {})
        return None

    @classmethod
    def _of(cls, folder: Path, settings: dict[str, Any]) -> Project:
        return cls(
            root=folder,
            contracts=_inside(folder, settings.get("contracts", "contracts"), "contracts"),
            evidence=_inside(folder, settings.get("evidence", "evidence"), "evidence"),
            search=tuple(_inside(folder, entry, "pythonpath") for entry in settings.get("pythonpath", ["."])),
            mentions=_mentions(folder, settings.get("mentions", {})),
            ignored=_ignored(folder, settings.get("lint", {})),
            subjects=_subjects(folder, settings.get("subjects", {})),
        )

    def subject_of(self, claim: str) -> str:
        """Return the value of `--subject` that the settings name for a claim; empty for the contract's own subject.

        The claim's id outranks a pattern, and an earlier pattern a later one.
        """
        if claim in self.subjects:
            return self.subjects[claim]
        return next((subject for pattern, subject in self.subjects.items() if fnmatchcase(claim, pattern)), "")

    @property
    def schemas(self) -> Path:
        """The folder with copies of the schemas."""
        return self.contracts / _SCHEMAS

    def files(self, within: Path | None = None) -> list[Path]:
        """Return the contract files below a folder, sorted by claim; by default, all of the project.

        They include JSON files of unknown names, so that the loader refuses them.
        """
        paths = [
            path
            for path in _below(within or self.contracts)
            if path.parent.name != _SCHEMAS and path.name not in _NO_CONTRACTS and not path.name.endswith(_OLD_NAMES)
        ]
        return sorted(paths, key=lambda path: (claim_of(path), path))

    def known(self, own: Iterable[Path] | None = None) -> list[Path]:
        """Return the contract files of the project, and those of installed claims with other ids.

        Args:
            own: the result of `files`, if known.
        """
        own = self.files() if own is None else own
        names = {claim_of(path) for path in own}
        others: dict[str, Path] = {}
        for root in claims_roots():
            for path in self.files(root / "contracts"):
                if claim_of(path) not in names and not path.is_relative_to(self.contracts):
                    others.setdefault(claim_of(path), path)
        return sorted([*own, *others.values()], key=lambda path: (claim_of(path), path))

    def search_of(self, contract: Path | None) -> tuple[Path, ...]:
        """Return the import roots of a claim's code: those of the project that its contract belongs to."""
        root = None if contract is None else root_of(contract)
        return self.search if root is None else (root,)

    def others_of(self, contract: Path | None) -> tuple[Path, ...]:
        """Return the import roots of this project if the claim belongs to another one; else an empty tuple."""
        return () if self.search_of(contract) == self.search else self.search

    def name_of(self, file: Path) -> str:
        """Return the name of a source file in evidence; see `harness.contract.installed.source_name`."""
        return source_name(file, self.root)

    def named(self, name: str) -> Path:
        """Return the file of a name in evidence; see `harness.contract.installed.source_file`."""
        return source_file(name, self.root)

    def load(self, path: Path) -> Contract:
        """Load one contract file. Raises ContractError if it is refused."""
        from harness.contract import load  # `harness list` needs no loader

        return load(path, self.search_of(path))

    def load_all(self, paths: Iterable[Path] | None = None) -> tuple[list[Contract], list[ContractError]]:
        """Load contract files; by default, all. Returns the refusals too. A second file with one id is refused."""
        from harness.contract import ContractError

        contracts: dict[str, Contract] = {}
        refused: list[ContractError] = []
        for path in self.files() if paths is None else paths:
            try:
                contract = self.load(path)
            except ContractError as error:
                refused.append(error)
                continue
            if contract.id in contracts:
                problem = Problem(
                    "/id", f"{contract.id} is also in {contracts[contract.id].path}", "give each claim one contract"
                )
                refused.append(ContractError(path, [problem]))
            contracts.setdefault(contract.id, contract)
        return list(contracts.values()), refused

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """Expand shell patterns (`*`, `?`, `[`) to claim ids, in order, each once. A plain id is returned unchanged.

        Raises:
            ProjectError: no claim matches a pattern.
        """
        names = [claim_of(path) for path in self.known()]
        chosen: dict[str, None] = {}
        for pattern in patterns:
            matches = [name for name in names if fnmatchcase(name, pattern)] if set(pattern) & set("*?[") else [pattern]
            if not matches:
                raise ProjectError(f"no claim matches {pattern!r} under {self.contracts}; `harness list` shows them")
            chosen.update(dict.fromkeys(matches))
        return list(chosen)

    def contract(self, identifier: str) -> Contract:
        """Load the contract of a claim.

        Raises:
            ProjectError: there is no such claim. The message suggests one with a similar id.
            ContractError: the contract is refused.
        """
        known = self.known()
        matches = [path for path in known if claim_of(path) == identifier]
        if not matches:
            hint = near.hint(identifier, map(claim_of, known), "`harness list` shows them", cutoff=0.75)
            raise ProjectError(f"no claim {identifier!r} under {self.contracts}; {hint}")
        if len(matches) > 1:
            raise ProjectError(f"{identifier} has {len(matches)} contracts: {', '.join(map(str, matches))}; keep one")
        return self.load(matches[0])


def _below(folder: Path) -> Iterator[Path]:
    """Yield all paths that end in .json, at any depth. Links to folders are not followed."""
    pending = [folder]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:  # a missing or unreadable folder, or a path that is too long
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            if entry.name.endswith(".json"):
                yield Path(entry.path)


def _settings(path: Path) -> dict[str, Any] | None:
    try:
        document = toml.load(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ProjectError(f"{path} cannot be read: {error}") from error
    tool = document.get("tool", {})
    settings = tool.get("harness") if isinstance(tool, dict) else tool
    if settings is not None and not isinstance(settings, dict):
        raise ProjectError(f"{path}: tool.harness must be a table")
    return settings


def _subjects(root: Path, settings: object) -> dict[str, str]:
    if not isinstance(settings, dict) or not all(
        isinstance(subject, str) and ":" in subject for subject in settings.values()
    ):
        raise _wrong(root, 'subjects must name the subject of each claim: "F-MINE-*" = "command:engine.toml"')
    return settings


def _mentions(root: Path, settings: object) -> Mentions:
    if not isinstance(settings, dict) or not set(settings) <= {"pattern", "exclude"}:
        raise _wrong(root, "mentions must be a table with 'pattern' and 'exclude', or one of them")
    pattern, exclude = settings.get("pattern", Mentions.pattern), settings.get("exclude", [])
    if not _are_texts(exclude):
        raise _wrong(root, "mentions.exclude must be a list of files, folders and ids")
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise _wrong(root, f"mentions.pattern is not a regular expression: {error}") from error
    return Mentions(pattern, tuple(exclude))


def _ignored(root: Path, settings: object) -> dict[str, tuple[str, ...]]:
    ignored = settings.get("ignore", {}) if isinstance(settings, dict) and set(settings) <= {"ignore"} else None
    if not isinstance(ignored, dict) or not all(map(_are_texts, ignored.values())):
        raise _wrong(root, "lint must be a table with 'ignore': a list of claims by the rule of a warning")
    return {rule: tuple(claims) for rule, claims in ignored.items()}


def _inside(root: Path, entry: object, key: str) -> Path:
    path = Path(os.path.realpath(root / str(entry)))
    if not isinstance(entry, str) or not path.is_relative_to(root):
        raise _wrong(root, f"{key} must name a folder inside the project, not {entry!r}")
    return path


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _wrong(root: Path, what: str) -> ProjectError:
    return ProjectError(f"{root / 'pyproject.toml'}: tool.harness.{what}")
