"""The project: the nearest folder, from the current one upwards, whose pyproject.toml has `[tool.harness]`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import toml
from harness.base.schemas import Problem
from harness.contract.claim_folder import CALIBRATION, EQUIVALENT, claim_of
from harness.contract.contract_annotations import FIGURES
from harness.contract.installed import claims_roots, root_of, source_file, source_name

if TYPE_CHECKING:
    from harness.contract import Contract, ContractError

__all__ = ["Mentions", "Project", "ProjectError"]

_SCHEMAS = "schema"
"""The folder of contracts/ that holds copies of the harness's schemas for editors."""
_NO_CONTRACTS = frozenset({FIGURES, CALIBRATION, EQUIVALENT})
_OLD_NAMES = (".calibration.json", ".equivalent.json", "planting.json")
"""How files beside a contract were named before claims had folders; `harness fmt` moves them."""


class ProjectError(ValueError):
    """There is no project, its configuration is wrong, or it has no such claim."""


_MARKS = ("pyproject.toml", ".git")
"""What marks the root of a repository without settings for the harness."""


@dataclass(frozen=True)
class Mentions:
    """How to find the claims that a project's files name."""

    pattern: str = r"F-[A-Z0-9]+(?:-[A-Z0-9]+)*-[0-9]{3}"
    """A regular expression for the id of a claim, matched against whole words."""
    exclude: tuple[str, ...] = ()
    """Files and folders that are not searched, with `*` for any text, and ids that are only examples."""


@dataclass(frozen=True)
class Project:
    """The folders of a project: its contracts, its evidence and the import roots of its code."""

    root: Path
    contracts: Path
    evidence: Path
    search: tuple[Path, ...]
    mentions: Mentions = Mentions()
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Claims, with `*` for any text, for which lint does not show a warning, by the rule of the warning."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Claims, with `*` for any text, and the subject of each, as `--subject` takes it; files from the root."""

    @classmethod
    def find(cls, start: Path | None = None) -> Project:
        """The project of a folder; by default, of the current folder.

        Raises:
            ProjectError: no pyproject.toml with `[tool.harness]` in the folder or above it, or a wrong setting.
        """
        here = Path(os.path.realpath(start or Path.cwd()))
        project = cls.around(here)
        if project is None:
            raise ProjectError(f"no pyproject.toml with [tool.harness] in {here} or above it; `harness init` makes one")
        return project

    @classmethod
    def around(cls, start: Path | None = None) -> Project | None:
        """Like `find`, but None if there is no project.

        Raises:
            ProjectError: a setting is wrong.
        """
        here = Path(os.path.realpath(start or Path.cwd()))
        for folder in (here, *here.parents):
            settings = _settings(folder / "pyproject.toml")
            if settings is not None:
                return cls._of(folder, settings)
        if (
            claims_roots()
        ):  # then a repository needs no settings: it has claims to run, and only its evidence is its own
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
        """The subject that the settings name for a claim, as `--subject` takes it; empty for the contract's own.

        The claim's own id counts before a pattern, and the first pattern before later ones.
        """
        patterns = [claim, *self.subjects]
        return next(
            (
                self.subjects[pattern]
                for pattern in patterns
                if pattern in self.subjects and fnmatchcase(claim, pattern)
            ),
            "",
        )

    @property
    def schemas(self) -> Path:
        """The folder of the copies of the harness's schemas."""
        return self.contracts / _SCHEMAS

    def files(self, within: Path | None = None) -> list[Path]:
        """The contract files below a folder, sorted by claim; by default, all of the project's.

        A JSON file of another name is one of them, unless it is a calibration or the like, so that it is refused.
        """
        paths = [
            path
            for path in _below(within or self.contracts)
            if path.parent.name != _SCHEMAS and path.name not in _NO_CONTRACTS and not path.name.endswith(_OLD_NAMES)
        ]
        return sorted(paths, key=lambda path: (claim_of(path), path))

    def known(self, own: Iterable[Path] | None = None) -> list[Path]:
        """The contract files of the project, and those of installed claims whose ids it has no contract for.

        Args:
            own: the files of the project, if they were looked for already.
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
        """The folders from which the code of a claim is imported: those of the project that its contract belongs to."""
        root = None if contract is None else root_of(contract)
        return self.search if root is None else (root,)

    def others_of(self, contract: Path | None) -> tuple[Path, ...]:
        """The folders of the project's own code, which a claim of another project can be given as its subject."""
        return () if self.search_of(contract) == self.search else self.search

    def name_of(self, file: Path) -> str:
        """The name of a source file in evidence: see `harness.contract.installed.source_name`."""
        return source_name(file, self.root)

    def named(self, name: str) -> Path:
        """The file of a name in evidence, which need not exist. Raises ValueError if it leads out of the project."""
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
        """The ids that the patterns name, in their order, each once. `*`, `?` and `[` mean what they do in a shell.

        Raises:
            ProjectError: no claim has a name like a pattern. An id without such a sign is returned as it is.
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
        """The contract of a claim.

        Raises:
            ProjectError: no such claim; the message names one that is spelt almost like it.
            ContractError: the contract is refused.
        """
        known = self.known()
        matches = [path for path in known if claim_of(path) == identifier]
        if not matches:
            import difflib

            names = {claim_of(path).upper(): claim_of(path) for path in known}
            near = difflib.get_close_matches(identifier.upper(), names, n=1, cutoff=0.75)
            hint = f"did you mean {names[near[0]]}?" if near else "`harness list` shows them"
            raise ProjectError(f"no claim {identifier!r} under {self.contracts}; {hint}")
        if len(matches) > 1:
            raise ProjectError(f"{identifier} has {len(matches)} contracts: {', '.join(map(str, matches))}; keep one")
        return self.load(matches[0])


def _below(folder: Path) -> Iterator[Path]:
    """Everything that is named like a JSON file, at any depth that a path can name. No link to a folder is followed."""
    pending = [folder]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:  # no such folder, a closed one, or one whose path is too long
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
