"""A survey of a project: its claims, its evidence, and what the one says of the other as the project is now.

survey = Survey.of(Project.find())
for claim in survey.claims:
    print(claim.id, claim.status)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from harness.contract import Contract, ContractError
from harness.contract.project import Project
from harness.evidence.index import Contents, Entry, Watch, read
from harness.evidence.staleness import ProjectState, changes
from harness.evidence.status import ClaimStatus, statuses
from harness.machine.paths import cache_folder

__all__ = ["Staleness", "Survey"]


@final
class Staleness:
    """Why bundles no longer cover a project as it is now; each set of circumstances is looked into once."""

    def __init__(self, project: Project) -> None:
        self._state = ProjectState(project)
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def __call__(self, entry: Entry) -> tuple[str, ...]:
        """The reasons; empty where the bundle covers the project."""
        sources = tuple(sorted(entry.sources.items()))
        key = (entry.id, entry.verdict, entry.contract_digest, entry.falsifier, entry.subject, sources)
        if key not in self._known:
            self._known[key] = tuple(
                dict.fromkeys(finding.message for finding in changes(entry, self._state))  # one file may be of both
            )
        return self._known[key]


@final
@dataclass(frozen=True)
class Survey:
    """What is known of a project's claims."""

    contracts: tuple[Contract, ...]
    refused: tuple[ContractError, ...]
    """Contracts that cannot be loaded; their claims have no status."""
    contents: Contents
    """All evidence, in the order of the paths."""
    claims: tuple[ClaimStatus, ...]
    """The status of every claim whose contract was loaded, by id."""
    stale: Staleness

    @classmethod
    def of(cls, project: Project, evidence: Path | None = None, device: str = "", watch: Watch | None = None) -> Survey:
        """Look at a project.

        Args:
            evidence: where the bundles are, if not in the project's own evidence folder.
            device: leaves only evidence from classes of device whose name contains this.
            watch: see `harness.evidence.index.read`.
        """
        contracts, refused = project.load_all()
        contents = read(evidence or project.evidence, cache=cache_folder(), watch=watch)
        if device:
            here = tuple(entry for entry in contents.entries if device in str(entry.device_class))
            contents = replace(contents, entries=here)
        stale = Staleness(project)
        claims = statuses(contracts, contents.entries, stale, datetime.now(UTC))
        return cls(tuple(contracts), tuple(refused), contents, claims, stale)
