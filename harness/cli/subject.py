"""The option `--subject`: an entry point of the project, an external trainer with its parameters, or a file."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from harness.base import regular_file
from harness.cli.options import value_of
from harness.cli.parameter_options import overrides, parameter_texts
from harness.contract import Contract
from harness.contract.choice import External, Kind
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.installed import claims_roots, or_installed, root_of
from harness.contract.project import Project
from harness.tools.trainer.function_parameters import own_parameters
from harness.tools.trainer.trainer_file import GIVEN, Trainer, TrainerError, load, unknown

__all__ = ["Chosen", "checked_subject", "choose", "defaults", "takes"]

_FOLDER = "trainers"
"""The folder of a project's trainers. The name of a trainer may be omitted if there is only one."""
_MOST_FILES = 2000
"""More files of a folder are refused: the record names each with its digest."""
_OF_RECORDED = ("dir", "device")
"""Parameters of a finished run: its folder, and the device that was requested."""


@dataclass(frozen=True)
class Chosen:
    """The subject of a run, and its parameters."""

    subject: str | None = None
    """The entry point; None for the contract's own subject and for a trainer."""
    external: External | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Overrides of the claim's parameters. They hold for the mutants too."""


def choose(text: str | None, settings: Sequence[str], contracts: Sequence[Contract], project: Project) -> Chosen:
    """Return the subject and the parameters that --subject and -P name.

    Raises:
        click.BadParameter: an option is refused. The text has the remedy.
    """
    given = parameter_texts(settings)
    kind, _, file = (text or "").partition(":")
    if kind not in set(Kind):
        if kind.lower() in set(Kind):
            raise _refused(f"did you mean {kind.lower()}:{file}?")
        return Chosen(checked_subject(text, project), None, overrides(given, contracts))
    if kind == Kind.HF:
        return _in_process(file, given, contracts, project)
    if kind == Kind.FILE:
        return _judged_file(file, given, contracts, project)

    path = _file(Kind(kind), file, project)
    try:
        trainer = load(path)
    except TrainerError as error:
        raise _refused(str(error)) from error
    further = _OF_RECORDED if kind == Kind.RECORDED else ()
    own, others = _split(given, {*trainer.parameters, *further}, contracts, trainer.name)
    changed = overrides(others, contracts)
    claims = _of_claims(contracts)
    mine: dict[str, Any] = {"trainer": str(path) if root_of(path) else path.relative_to(project.root).as_posix()}
    mine |= {name: value for name, value in trainer.parameters.items() if name not in claims}
    mine |= _own(own, trainer.parameters, trainer.path.name)
    if kind == Kind.RECORDED:
        mine, changed = {**changed, **_directory(mine), "device": mine.get("device") or trainer.ran_on}, {}
        if mine["device"] not in ("cpu", "cuda", None):
            raise _refused(f"device is cpu or cuda, not {mine['device']}", "-P")
        mine = {name: value for name, value in mine.items() if name != "device" or value is not None}
    external = External(
        Kind(kind), mine["trainer"], mine, _sources(trainer, path, project), trainer.seconds, trainer.admits
    )
    _refuse_others(contracts, external, project)
    for contract in contracts:
        _check(external, trainer, contract, changed)
    return Chosen(None, external, changed)


def defaults(
    settings: Sequence[str], contracts: Sequence[Contract], project: Project
) -> tuple[Chosen, dict[str, External | str]]:
    """Return the subject of all claims and the parameters, or the subjects by claim, without --subject.

    Raises:
        click.BadParameter: the project's settings name a subject that is refused, or several, and -P would be of one.
    """
    named = {contract.id: text for contract in contracts if (text := project.subject_of(contract.id))}
    if settings:
        if len({project.subject_of(contract.id) for contract in contracts}) > 1:
            raise _refused("[tool.harness.subjects] names other subjects for some of the claims; run them apart", "-P")
        return choose(next(iter(named.values()), None), settings, contracts, project), {}
    found = {}
    for contract in contracts:
        if contract.id in named:
            one = choose(named[contract.id], (), [contract], project)
            found[contract.id] = one.external or one.subject or ""
    return Chosen(), found


def checked_subject(text: str | None, project: Project) -> str | None:
    """Return an entry point. Raise BadParameter if the project does not define it."""
    if text is not None:
        if text.partition(":")[0] in set(Kind):
            raise _refused(f"only `harness run` takes {text}; name a subject of this project, as module:Name")
        if text.endswith(".toml"):
            raise _refused(f"command:{text} runs that trainer, recorded:{text} judges a run of it that is over; which?")
        try:
            locate(text, project.search)
        except EntryPointError as error:
            raise _refused(f"{error}; {error.remedy}") from error
    return text


def _file(kind: Kind, file: str, project: Project) -> Path:
    if file:
        path = Path(os.path.abspath(file))
        if not path.exists() and (ready := or_installed(Path(file))).exists():
            return ready
    else:
        found = sorted((project.root / _FOLDER).glob("*.toml"))
        if len(found) != 1:
            there = ", ".join(f"{_FOLDER}/{one.name}" for one in found) or f"nothing in {project.root / _FOLDER}"
            raise _refused(f"name the trainer's file: --subject {kind}:TRAINER.toml; there is {there}")
        path = found[0]
    inside = path.is_relative_to(project.root) and Path(os.path.realpath(path)).is_relative_to(project.root)
    if path.exists() and not inside:
        raise _refused(f"{path} is outside the project {project.root}, where no evidence could name it; copy it there")
    return path


def _in_process(entry_point: str, given: Mapping[str, str], contracts: Sequence[Contract], project: Project) -> Chosen:
    """Return a function that builds a Trainer, and the parameters. Nothing is imported."""
    module, _, name = entry_point.partition(":")
    if not (module and name):
        raise _refused(f"name the function that returns a Trainer: --subject {Kind.HF}:{Kind.HF.value_named}")
    try:
        path = locate(entry_point, (*project.search, *claims_roots()))
        defaults = own_parameters(path, name)
    except EntryPointError as error:
        raise _refused(f"{error}; {error.remedy}") from error
    claims = _of_claims(contracts)
    defaults = {name: value for name, value in defaults.items() if name not in claims}
    own, others = _split(given, set(defaults), contracts, name)
    changed = overrides(others, contracts)
    mine = {"trainer": entry_point, **defaults, **_own(own, defaults, path.name)}
    external = External(
        Kind.HF, entry_point, mine, {project.name_of(path): hashlib.sha256(regular_file.read(path)).hexdigest()}
    )
    _refuse_others(contracts, external, project)
    return Chosen(None, external, changed)


def _judged_file(file: str, given: Mapping[str, str], contracts: Sequence[Contract], project: Project) -> Chosen:
    """Return a file or a folder as the subject. The parameter `trainer` has its path from the project's root."""
    path = Path(os.path.abspath(file))
    if not file or not path.exists():
        raise _refused(f"name a file or a folder that exists: --subject {Kind.FILE}:{Kind.FILE.value_named}")
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project.root)):
        raise _refused(f"{path} is outside the project {project.root}, where no evidence could name it; copy it there")
    files = [path] if path.is_file() else sorted(filter(Path.is_file, _shown(path)))
    if not 0 < len(files) <= _MOST_FILES:
        raise _refused(f"{path} has {len(files)} files, and 1 to {_MOST_FILES} can be named; name a smaller folder")
    name = path.relative_to(project.root).as_posix()
    digests = {one.relative_to(project.root).as_posix(): regular_file.sha256(one) for one in files}
    external = External(Kind.FILE, name, {"trainer": name}, digests)
    _refuse_others(contracts, external, project)
    return Chosen(None, external, overrides(given, contracts))


def _shown(folder: Path) -> Iterable[Path]:
    """Return what is in a folder at any depth, without hidden files and Python's caches."""
    for one in folder.rglob("*"):
        if not any(part.startswith(".") or part == "__pycache__" for part in one.relative_to(folder).parts):
            yield one


def _split(
    given: Mapping[str, str], known: set[str], contracts: Sequence[Contract], trainer: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Split the texts of -P into those of the trainer's own parameters and the claim's."""
    claims = _of_claims(contracts)
    mine = (known - claims) | (known & set(_OF_RECORDED))
    for name in given:
        if name not in mine and name not in claims:
            near = difflib.get_close_matches(name, [*mine, *claims], n=1)
            hint = f"did you mean {near[0]}?" if near else f"the trainer has {', '.join(sorted(mine)) or 'none'}"
            raise _refused(f"neither the claim nor {trainer} has a parameter {name!r}; {hint}", "-P")
    own = {name: text for name, text in given.items() if name in mine}
    return own, {name: text for name, text in given.items() if name not in mine}


def _of_claims(contracts: Sequence[Contract]) -> set[str]:
    """Return the names of the claims' parameters. A trainer takes their values from the claim."""
    return {name for contract in contracts for profile in contract.profiles.values() for name in profile.parameters}


def _own(texts: Mapping[str, str], defaults: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the trainer's own parameters that were set, with the types of their defaults."""
    found: dict[str, Any] = {}
    for name, text in texts.items():
        default = defaults.get(name, "")
        found[name] = value = text if isinstance(default, str) else value_of(text)
        is_alike = isinstance(value, (int, float)) and isinstance(value, bool) is isinstance(default, bool)
        if not (isinstance(default, str) or is_alike):
            wanted = "true or false" if isinstance(default, bool) else "a number"
            raise _refused(f"{name} is {wanted} in {file}, not {text}", "-P")
    return found


def _directory(mine: dict[str, Any]) -> dict[str, Any]:
    """Return the trainer's parameters with the absolute directory of the run, which must exist."""
    if not mine.get("dir"):
        raise _refused("which run? Name its directory: -P dir=RUN", "-P")
    place = Path(mine["dir"]).absolute()
    if not place.is_dir():
        raise _refused(f"dir: there is no directory {place}", "-P")
    return {**mine, "dir": str(place)}


def _sources(trainer: Trainer, path: Path, project: Project) -> dict[str, str]:
    files, root = [path], root_of(path) or project.root
    for pattern in trainer.sources:
        found = sorted(file for file in root.glob(pattern) if file.is_file())
        if not found:
            raise _refused(f"{path}: /sources: {pattern!r} names no file under {root}")
        files += found
    digests = {}
    for file in files:
        if not Path(os.path.realpath(file)).is_relative_to(root):
            raise _refused(f"{path}: /sources: {file} is outside the project; copy it there")
        digests[project.name_of(file)] = regular_file.sha256(file)
    return digests


def _check(external: External, trainer: Trainer, contract: Contract, changed: dict[str, Any]) -> None:
    """Refuse a command with parameters that have no value."""
    for profile in contract.profiles.values():
        known = {**profile.parameters, **changed, **external.parameters}
        if why := unknown(trainer, set(known)):
            raise _refused(why)
        if external.is_recorded:
            continue
        given = dict.fromkeys(GIVEN, "given")
        missing = [name for name in sorted(trainer.needed()) if trainer.value(name, {**known, **given}) is None]
        if missing:
            options = " ".join(f"-P {name}=…" for name in missing)
            raise _refused(f"{trainer.name} needs a value for {' and '.join(missing)}: {options}", "-P")


def _refuse_others(contracts: Iterable[Contract], external: External, project: Project) -> None:
    """Refuse claims without an adapter for the subject."""
    for contract in contracts:
        if not takes(contract.falsifier, contract.path, external.kind, project):
            raise _refused(_no_adapter(contract, external, project))


def takes(falsifier: str, contract: Path, kind: Kind, project: Project) -> bool:
    """Return whether the spec of a claim has an adapter for such a subject.

    Args:
        falsifier: the claim's.
        contract: the claim's file.
    """
    try:
        locate(External(kind, "").entry_point(falsifier), project.search_of(contract))
    except EntryPointError:
        return False
    return True


def _no_adapter(contract: Contract, external: External, project: Project) -> str:
    """Return the refusal of a subject: what the claim takes instead, and which claims take this subject."""
    said = [f"{contract.id} takes no {external.kind} as its subject"]
    said += [
        f"it takes {kind}:{kind.value_named if {Kind.HF, Kind.FILE} & {kind, external.kind} else external.trainer}"
        for kind in Kind
        if takes(contract.falsifier, contract.path, kind, project)
    ]
    claims, _ = project.load_all(project.known())
    takers = [claim.id for claim in claims if takes(claim.falsifier, claim.path, external.kind, project)]
    said.append(f"these claims take one: {', '.join(takers)}" if takers else "no claim of this project takes one")
    return "; ".join(said)


def _refused(why: str, option: str = "--subject") -> click.BadParameter:
    return click.BadParameter(why, param_hint=option)
