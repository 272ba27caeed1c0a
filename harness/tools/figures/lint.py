"""What `harness lint` says of the figures that a contract names."""

from __future__ import annotations

from collections.abc import Iterator

from harness.contract import Contract, ContractError
from harness.contract.claim_folder import family_of
from harness.contract.project import Project
from harness.lint.linter import Finding, Severity
from harness.tools.figures.bounds import about_figures
from harness.tools.figures.figures import figures_of

__all__ = ["about_bounds"]


def about_bounds(contract: Contract, _project: Project) -> Iterator[Finding]:
    """Yield the bounds that are not those of their figures; or why figures.json of the contract's family is refused."""
    try:
        yield from about_figures(contract, figures_of(family_of(contract.path)))
    except ContractError as refused:
        for problem in refused.problems:
            message = f"{refused.path.name}: {problem.message}"
            yield Finding("figures-refused", Severity.ERROR, problem.pointer, message, problem.remedy)
