"""The subjects that a project's settings name for its claims, as evidence names them: `[tool.harness.subjects]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.contract import Contract
from harness.contract.choice import Kind
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.installed import claims_roots, or_installed, root_of
from harness.contract.project import Project, ProjectError
from harness.judging.record import examined
from harness.tools.trainer.function_parameters import own_parameters
from harness.tools.trainer.trainer_file import TrainerError, load

__all__ = ["default_subjects"]


def default_subjects(project: Project, claims: Iterable[Contract]) -> dict[str, str]:
    """Return the subject of each claim for which the settings name one, in the form of `Entry.examined`.

    Raises:
        ProjectError: a subject that they name cannot be read.
    """
    named = [(claim, text) for claim in claims if (text := project.subject_of(claim.id))]
    try:
        return {claim.id: _examined(project, text, claim) for claim, text in named}
    except (TrainerError, EntryPointError, OSError, SyntaxError, ValueError) as error:
        raise ProjectError(f"{project.root / 'pyproject.toml'}: tool.harness.subjects: {error}") from error


def _examined(project: Project, text: str, claim: Contract) -> str:
    kind, _, name = text.partition(":")
    if kind not in set(Kind):
        return text
    defaults: Mapping[str, Any] = {}
    if kind == Kind.HF:
        defaults = own_parameters(locate(name, (*project.search, *claims_roots())), name.partition(":")[2])
    else:
        path = Path(name) if Path(name).exists() else or_installed(Path(name))
        defaults = {} if kind == Kind.FILE else load(path).parameters
        name = str(path) if root_of(path) else path.relative_to(project.root).as_posix()
    claims = {name for profile in claim.profiles.values() for name in profile.parameters}
    own = {name: value for name, value in defaults.items() if name not in claims}
    return examined(f":{kind}", {"trainer": name, **own})
