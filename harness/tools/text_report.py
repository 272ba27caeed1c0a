"""Reports of bundles in one file, and the bundles as these reports take them.

REPORT = TextReport("the verdict of each bundle", render)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.contract.claim_folder import claim_of
from harness.contract.contract_annotations import Refutation
from harness.contract.project import Project
from harness.evidence.bundle import Bundle
from harness.evidence.findings import Verification
from harness.judging.record import Record
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.report.escaping import printable
from harness.report.formats import STDOUT, Evidence
from harness.report.messages import finding_text
from harness.tools.atomic_file import write_file

if TYPE_CHECKING:
    from harness.running.events import Handler

__all__ = ["BundleResult", "TextReport", "bundle_results", "contracts_of"]


@dataclass(frozen=True)
class BundleResult:
    """One bundle with what verifying it found."""

    verification: Verification
    record: Record | None
    """None if the bundle is unsound or not accepted, because its record then counts for nothing."""
    contract: ContractFile = UNKNOWN
    """The contract's file: the project's, else the bundle's own copy."""
    stands_in_for: str = ""
    """What the claim stands in for, as the project's contract says; empty if nothing or unknown."""
    refutation: Refutation | None = None
    """The refutation of the project's contract that speaks of this run."""
    sealed: Contract | None = None
    """The bundle's own contract; None without a record, and for a PASS of the project, whose clauses need no words."""

    @property
    def is_known(self) -> bool:
        """Whether it is a FAIL that the project's contract knows."""
        return self.record is not None and self.refutation is not None and self.refutation.expects(self.record.result)

    @property
    def path(self) -> Path:
        """The bundle's folder."""
        return self.verification.path

    @property
    def name(self) -> str:
        """The claim's id, or the name of the bundle's folder if the id is unknown."""
        return printable(self.verification.id or self.path.name)

    @property
    def problem(self) -> str:
        """Why the record counts for nothing."""
        standing = self.verification.standing.lower().replace("_", " ")
        return printable(f"{standing}: {_problem(self.verification)}")


def bundle_results(verifications: Iterable[Verification], project: Project | None = None) -> list[BundleResult]:
    """Return the bundles by claim, the newest first within a claim.

    Args:
        project: its contract files are named. Without it, and for claims of other projects, the bundle's copy is named.
    """
    verifications = list(verifications)
    contracts = contracts_of(verifications, project)
    files = {name: ContractFile.of(contract) for name, contract in contracts.items()}
    results = []
    for verification in verifications:
        bundle, contract = Bundle(verification.path), contracts.get(verification.id or "")
        record = bundle.record if verification.accepted else None
        sealed = None if record is None or (contract and record.verdict is Verdict.PASS) else bundle.contract
        refutation = None if contract is None or record is None else record.refutation(contract)
        stands_in_for = "" if contract is None else contract.stands_in_for
        file = files[contract.id] if contract else ContractFile.of(sealed) if sealed else UNKNOWN
        results.append(BundleResult(verification, record, file, stands_in_for, refutation, sealed))
    results.sort(key=lambda result: result.record.started if result.record else "", reverse=True)
    return sorted(results, key=lambda result: result.name)


def contracts_of(verifications: Iterable[Verification], project: Project | None) -> dict[str, Contract]:
    """Return the project's valid contracts of the claims that these bundles name, by id."""
    if project is None:
        return {}
    named = {verification.id for verification in verifications}
    contracts, _ = project.load_all(path for path in project.files() if claim_of(path) in named)
    return {contract.id: contract for contract in contracts}


@lru_cache(1)
def _results(evidence: Evidence) -> list[BundleResult]:
    return bundle_results(evidence.verifications, evidence.project)


@dataclass(frozen=True)
class TextReport:
    """A report in one file, or on standard output."""

    about: str
    render: Callable[[Sequence[BundleResult]], str]
    """Returns the text. The same bundles give the same text."""
    handler: Callable[[Path], Handler] | None = None
    """Keeps the file current while `harness run` lasts."""

    def check(self, target: Path) -> None:
        """Refuse a folder."""
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder; name a file")

    def write(self, evidence: Evidence, target: Path) -> Path:
        """Write the text."""
        text = self.render(_results(evidence))
        if target == STDOUT:
            click.echo(text, nl=False)
        else:
            write_file(target, text)
        return target


def _problem(verification: Verification) -> str:
    """Return the first objection to a bundle, and the number of further ones; empty if there is none."""
    if not verification.objections:
        return ""
    first, *others = verification.objections
    return finding_text.line(first) + (f", and {len(others)} more" if others else "")
