"""What `harness lint` says of a contract's calibration."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base.strictjson import pointer
from harness.contract import Contract
from harness.contract.project import Project
from harness.contract.ratio import has_ratio
from harness.lint.linter import Finding, Severity

__all__ = ["about_calibration"]


def about_calibration(contract: Contract, _project: Project) -> Iterator[Finding]:
    """Yield every part of a contract's calibration that does not fit the contract."""
    comparable = frozenset(clause.id for clause in (*contract.clauses, *contract.rules) if has_ratio(clause))
    violated = {mutant.id: mutant.violates for mutant in contract.mutants}
    for profile, measured in contract.calibration.items():
        if profile not in contract.profiles:
            yield _outdated(pointer("profiles", profile), f"there is no profile {profile!r}")
            continue
        for mutant, ratios in measured["mutants"].items():
            if mutant not in violated:
                yield _outdated(pointer("profiles", profile, "mutants", mutant), f"there is no mutant {mutant!r}")
                continue
            for clause in ratios:
                where = pointer("profiles", profile, "mutants", mutant, clause)
                if clause in contract.unjudged(profile):
                    yield _outdated(where, f"the {profile} profile does not judge {clause!r}")
                elif clause not in violated[mutant]:
                    yield _outdated(where, f"{clause!r} is not a clause that this mutant must violate")
                elif clause not in comparable:
                    yield _outdated(where, f"{clause!r} has no threshold for a ratio")


def _outdated(where: str, message: str) -> Finding:
    remedy = "remove the calibration, and run harness calibrate ID --write"
    return Finding("calibration-outdated", Severity.ERROR, f"/calibration{where}", message, remedy)
