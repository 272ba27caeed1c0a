"""The checks of `harness lint` for files of equivalent defects."""

from __future__ import annotations

from collections.abc import Iterator

from harness.contract import Contract, ContractError
from harness.contract.claim_folder import EQUIVALENT
from harness.contract.project import Project
from harness.lint.linter import Finding, Severity
from harness.tools.planting.defects import Subjects
from harness.tools.planting.equivalent import equivalents

__all__ = ["about_equivalents"]


def about_equivalents(contract: Contract, project: Project) -> Iterator[Finding]:
    """Yield the problems of the file of equivalent defects that `harness plant` would refuse or report."""
    try:
        entries = equivalents(contract.path)
    except ContractError as refused:
        for problem in refused.problems:
            message = f"{refused.path.name}: {problem.message}"
            yield Finding("equivalents-refused", Severity.ERROR, problem.pointer, message, problem.remedy)
        return
    if not entries:
        return
    subjects = Subjects(project.root)
    for entry in entries:
        if not subjects.is_matched(entry):
            message = f"{EQUIVALENT}: the entry {entry.after!r} for {entry.file} matches no source line"
            yield Finding("equivalent-unmatched", Severity.WARNING, "", message, "remove it")
