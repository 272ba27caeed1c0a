"""The subjects that a project's settings name for its claims, as evidence names them: `[tool.harness.subjects]`."""

from __future__ import annotations

from collections.abc import Iterable

from harness.base.plugins import PluginError
from harness.contract import Contract
from harness.contract.other_subject import NamedSubject, SubjectRefused, named
from harness.contract.project import Project, ProjectError
from harness.judging.record import examined

__all__ = ["default_subjects"]


def default_subjects(project: Project, claims: Iterable[Contract]) -> dict[str, str]:
    """Return the subject of each claim for which the settings name one, in the form of `Entry.examined`.

    Raises:
        ProjectError: a subject that they name cannot be read.
    """
    found: dict[str, NamedSubject | None] = {}
    subjects: dict[str, str] = {}
    for claim in claims:
        if text := project.subject_of(claim.id):
            try:
                one = found[text] if text in found else named(text, project, is_default=True)
            except (SubjectRefused, PluginError) as error:
                raise ProjectError(f"{project.root / 'pyproject.toml'}: tool.harness.subjects: {error}") from error
            found[text] = one
            subjects[claim.id] = text if one is None else examined(one.entry_point(claim.falsifier), one.own(claim))
    return subjects
