"""What the status of claims cannot show: what is promised, declared or planted, and never put to the test. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from harness.base.vocabulary import Verdict
from harness.contract import Contract, ContractError
from harness.evidence.index import Entry

__all__ = ["Gaps", "gaps"]


@final
@dataclass(frozen=True, slots=True)
class Gaps:
    """Where coverage ends; everything sorted by id."""

    unclaimed: Mapping[str, Sequence[str]]
    """Ids that sources or documents name and no contract has, with the places."""
    refused: Mapping[str, Sequence[str]]
    """Contracts that cannot be run at all, for want of a falsifier or of mutants or for another reason, with why."""
    never_full: tuple[str, ...]
    """Claims whose falsifier was never run in the full profile, with any subject and parameters, to a verdict."""
    never_killed: Mapping[str, Sequence[str]]
    """Of each claim that was run the mutants that no run killed: nothing shows yet that the falsifier sees them."""
    orphaned: Mapping[str, int]
    """Claims that have evidence and no contract any more, with how many bundles."""


def gaps(
    contracts: Iterable[Contract],
    refused: Iterable[ContractError],
    entries: Iterable[Entry],
    mentions: Mapping[str, Sequence[str]],
) -> Gaps:
    """Find the gaps.

    Args:
        refused: of each contract that cannot be loaded why; its file is named by the claim's id.
        entries: all evidence.
        mentions: every id that the project's files name, with the places.
    """
    loaded = {contract.id: contract for contract in contracts}
    unusable = {error.path.stem: [str(problem) for problem in error.problems] for error in refused}
    bundles: dict[str, int] = {}
    killed: dict[str, set[str]] = {}
    in_full = set()
    for entry in entries:
        bundles[entry.id] = bundles.get(entry.id, 0) + 1
        killed.setdefault(entry.id, set()).update(entry.killed)
        if entry.profile == "full" and entry.verdict is not Verdict.NOT_MEASURED:
            in_full.add(entry.id)
    alive = {
        name: [mutant.id for mutant in loaded[name].mutants if mutant.id not in killed[name]]
        for name in sorted(killed)
        if name in loaded
    }
    known = {*loaded, *unusable}
    return Gaps(
        unclaimed={name: list(mentions[name]) for name in sorted(mentions) if name not in known},
        refused=dict(sorted(unusable.items())),
        never_full=tuple(sorted(name for name in loaded if name not in in_full)),
        never_killed={name: mutants for name, mutants in alive.items() if mutants},
        orphaned={name: bundles[name] for name in sorted(bundles) if name not in known},
    )
