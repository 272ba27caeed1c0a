"""The kinds of subject of this tool: a trainer to run, a finished run, a Trainer in process, and a file."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.installed import claims_roots, or_installed, root_of
from harness.contract.other_subject import NamedSubject, SubjectRefused
from harness.contract.project import Project
from harness.tools.trainer.trainer_file import GIVEN, TrainerError, load, unknown

__all__ = ["HF", "Command", "File", "Recorded", "own_parameters"]

_FOLDER = "trainers"
"""The folder of a project's trainers. The name of a trainer may be omitted if there is only one."""
_SET_BY_THE_ADAPTER = frozenset({"setting", "seed", "device", "output_dir", "trainer", "self"})
"""Arguments of a function that returns a Trainer. No option sets them."""
_MOST_FILES = 2000
"""Maximum files of a folder, because the record names each with its digest."""


class Command(NamedSubject):
    """A trainer that is run. A TOML file describes it."""

    value = "TRAINER.toml"
    adapter = "external:Command"
    why_not_isolated = "an external trainer runs in a process of its own already"

    def __init__(self, value: str, folder: Path, project: Project) -> None:
        self._project, self._path = project, self._file(value, folder, project)
        try:
            self.trainer = load(self._path)
        except TrainerError as error:
            raise SubjectRefused(str(error)) from error
        installed = root_of(self._path)
        self.name = str(self._path) if installed else self._path.relative_to(project.root).as_posix()
        self.parameters, self.seconds, self.admits = self.trainer.parameters, self.trainer.seconds, self.trainer.admits

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The TOML file, and the files that it names."""
        files, root = [self._path], root_of(self._path) or self._project.root
        for pattern in self.trainer.sources:
            matching = sorted(file for file in root.glob(pattern) if file.is_file())
            if not matching:
                raise SubjectRefused(f"{self._path}: /sources: {pattern!r} names no file under {root}")
            files += matching
        digests = {}
        for file in files:
            if not Path(os.path.realpath(file)).is_relative_to(root):
                raise SubjectRefused(f"{self._path}: /sources: {file} is outside the project; copy it there")
            digests[self._project.name_of(file)] = regular_file.sha256(file)
        return digests

    def checked(self, contract: Contract, own: JsonObject, overrides: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Refuse a placeholder that is unknown or has no value."""
        for profile in contract.profiles.values():
            known = {**profile.parameters, **overrides, **own}
            if why := unknown(self.trainer, set(known)):
                raise SubjectRefused(why)
            known |= dict.fromkeys(GIVEN, "given")
            if missing := [name for name in sorted(self.needed()) if self.trainer.value(name, known) is None]:
                options = " ".join(f"-P {name}=…" for name in missing)
                needs = f"{self.trainer.name} needs a value for {' and '.join(missing)}: {options}"
                raise SubjectRefused(needs, "-P")
        return own, overrides

    def needed(self) -> set[str]:
        """The placeholders that must have a value."""
        return self.trainer.needed()

    def _file(self, value: str, folder: Path, project: Project) -> Path:
        if value:
            path = Path(os.path.abspath(folder / value))
            if not path.exists() and (ready := or_installed(Path(value))).exists():
                return ready
        else:
            files = sorted((project.root / _FOLDER).glob("*.toml"))
            if len(files) != 1:
                there = ", ".join(f"{_FOLDER}/{file.name}" for file in files) or f"nothing in {project.root / _FOLDER}"
                wanted = f"--subject {self.kind()}:{self.value}"
                raise SubjectRefused(f"name the trainer's file: {wanted}; there is {there}")
            path = files[0]
        return _inside(path, project)


class Recorded(Command):
    """A finished run of such a trainer. The parameter `dir` names its folder, `device` the requested device."""

    adapter = "external:Recorded"
    is_over = True
    further = ("dir", "device")

    def needed(self) -> set[str]:
        """None: nothing is started."""
        return set()

    def checked(self, contract: Contract, own: JsonObject, overrides: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Return all parameters as the subject's, because a finished run does not determine those of the mutants."""
        if not own.get("dir"):
            raise SubjectRefused("which run? Name its directory: -P dir=RUN", "-P")
        place = Path(own["dir"]).absolute()
        if not place.is_dir():
            raise SubjectRefused(f"dir: there is no directory {place}", "-P")
        device = own.get("device") or self.trainer.ran_on
        if device not in ("cpu", "cuda", None):
            raise SubjectRefused(f"device is cpu or cuda, not {device}", "-P")
        mine = {**overrides, **own, "dir": str(place), "device": device}
        if device is None:
            del mine["device"]
        super().checked(contract, mine, {})
        return mine, {}


class HF(NamedSubject):
    """A function that returns a `transformers.Trainer`, which trains in the trial's process. Nothing is imported."""

    value = "MODULE:FUNCTION"
    adapter = "hugging_face:HF"
    why_not_isolated = "a transformers.Trainer is watched in the trial's process"

    def __init__(self, value: str, folder: Path, project: Project) -> None:
        module, _, name = value.partition(":")
        if not (module and name):
            raise SubjectRefused(f"name the function that returns a Trainer: --subject hf:{self.value}")
        try:
            self._path = locate(value, (*project.search, *claims_roots()))
            self.parameters = own_parameters(self._path, name)
        except EntryPointError as error:
            raise SubjectRefused(f"{error}; {error.remedy}") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise SubjectRefused(f"{self._path}: {error}") from error
        self.name, self._project = value, project

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The function's file."""
        return {self._project.name_of(self._path): regular_file.sha256(self._path)}


class File(NamedSubject):
    """A file to be judged, or a folder of files."""

    value = "PATH"
    adapter = ":File"
    why_not_isolated = "a file has no code that could reach the falsifier"

    def __init__(self, value: str, folder: Path, project: Project) -> None:
        self._path, self._project = Path(os.path.abspath(folder / value)), project
        if not value or not self._path.exists():
            raise SubjectRefused(f"name a file or a folder that exists: --subject file:{self.value}")
        self.name, self.parameters = _inside(self._path, project).relative_to(project.root).as_posix(), {}

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """Every file of the folder."""
        path = self._path
        files = [path] if path.is_file() else sorted(filter(Path.is_file, _shown(path)))
        if not 0 < len(files) <= _MOST_FILES:
            few = f"{path} has {len(files)} files, and 1 to {_MOST_FILES} can be named; name a smaller folder"
            raise SubjectRefused(few)
        return {file.relative_to(self._project.root).as_posix(): regular_file.sha256(file) for file in files}


def _inside(path: Path, project: Project) -> Path:
    """Return a path, which evidence can name if it is inside the project."""
    real = Path(os.path.realpath(path))
    if path.exists() and not (path.is_relative_to(project.root) and real.is_relative_to(project.root)):
        raise SubjectRefused(
            f"{path} is outside the project {project.root}, where no evidence could name it; copy it there"
        )
    return path


def _shown(folder: Path) -> Iterable[Path]:
    """Return the files of a folder at any depth, without hidden files and Python's caches."""
    for path in folder.rglob("*"):
        if not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts):
            yield path


def own_parameters(path: Path, name: str) -> dict[str, Any]:
    """Return the parameters of a function that have a literal default, such as `rows=640`, from its source text.

    Nothing is imported. The result is empty if the name is no function.

    Raises:
        OSError, SyntaxError, ValueError: the file is not readable Python.
    """
    tree = ast.parse(regular_file.read(path), str(path))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            placed = [*node.args.posonlyargs, *node.args.args]
            defaults = dict(zip(reversed(placed), reversed(node.args.defaults), strict=False))
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            defaults |= {argument: value for argument, value in named if value is not None}
            return {
                argument.arg: value.value
                for argument, value in defaults.items()
                if argument.arg not in _SET_BY_THE_ADAPTER
                and isinstance(value, ast.Constant)
                and isinstance(value.value, (str, int, float, bool))
            }
    return {}
