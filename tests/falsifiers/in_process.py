"""Trials of a claim in this process, without forks and logs; and those of a family, on less work than a run does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness import NotMeasured, Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.trial import Case
from harness.base import strictjson
from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Outcome, Phase, SearchEnd
from harness.contract import Contract, Mutant
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind, Observation
from harness.judging.verdict import fate_of
from harness.tools.search.cases import CaseSearch
from tests.falsifiers.distill.trials import Heard
from tests.falsifiers.planted import planted

__all__ = ["CONTRACTS", "PROJECT", "Claims", "judged"]

CONTRACTS = Path(__file__).parents[2] / "contracts"
PROJECT = Project.find(CONTRACTS)


def judged(
    contract: Contract, subject: str, folder: Path, mutant: Mutant | None = None, cache: Path | None = None,
    *, ends: bool = False, **overrides: Any,
) -> Judgment:  # fmt: skip
    """Run the reduced profile on the CPU with seed 0, and judge it.

    Args:
        ends: whether NotMeasured ends the trial; otherwise it is raised.
    """
    parameters = {
        **contract.profiles["reduced"].parameters, **(mutant.parameters if mutant else {}), **overrides
    }  # fmt: skip
    setting, recorded = Setting(parameters, "cpu", 0, folder, cache or folder), Heard()
    given = {"type": "cpu", "name": "a CPU"}
    claim = {
        "contract": contract.document, "device": given, "case": None, "end": SearchEnd.TRIED,
        "until_violated": mutant.violates if mutant else (), "until": math.inf,
    }  # fmt: skip

    def search(attempt: Callable[[Case], JsonObject | SubjectFault]) -> CaseSearch:
        return CaseSearch(claim, setting, attempt, folder)

    run = WorkerTrial(setting, folder, contract.measurements, recorded, search)
    ending = Ending(EndingKind.COMPLETED)
    with planted(mutant):
        try:
            run.run(resolve(contract.falsifier), resolve(subject))
        except SubjectFault as fault:
            ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, str(fault))
        except NotMeasured as why:
            if not ends:
                raise
            ending = Ending(EndingKind.NOT_MEASURED, Phase.FALSIFIER, str(why))
    measured = strictjson.untag_nonfinite(recorded.measurements)
    device, resolved = Device("cpu", "a CPU"), recorded.resolved
    return judge(contract, Observation(subject, "reduced", parameters, device, measured, resolved, ending=ending))


@dataclass(frozen=True)
class Claims:
    """Claims of a family: what passes of each, and whether its mutants die."""

    contracts: Mapping[str, Contract]
    fewer: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters for less work, by claim: fewer cases of a search, which are its first ones."""
    false: Mapping[str, set[str]] = field(default_factory=dict)
    """The clauses that fail because the source states them falsely, by claim."""

    @classmethod
    def of(cls, family: str, *without: str, **known: Any) -> Claims:
        """Those with a reduced profile, without ids in which one of these texts stands."""
        found = (PROJECT.contract(path.parent.name) for path in sorted((CONTRACTS / family).glob("*/contract.json")))
        return cls(
            {
                contract.id: contract
                for contract in found
                if "reduced" in contract.profiles and not any(part in contract.id for part in without)
            },
            **known,
        )

    def mutants(self, every: int = 1) -> list[Any]:
        """Every so many mutants of each claim that any machine can run. A run of a claim has all."""
        pairs = [(contract, mutant) for contract in self.contracts.values() for mutant in contract.mutants[::every]]
        return [
            pytest.param(contract.id, mutant, id=f"{contract.id}-{mutant.id}")
            for contract, mutant in pairs
            if not mutant.requires
        ]

    def judged(self, claim: str, folder: Path, mutant: Mutant | None = None, subject: str = "") -> Judgment:
        """The judgment of the claim's subject, of a mutant, or of another subject."""
        contract = self.contracts[claim]
        subject = subject or (mutant or contract).subject
        return judged(contract, subject, folder, mutant, **self.fewer.get(claim, {}))

    def holds(self, claim: str, folder: Path) -> None:
        """Check that every clause of the reference passes, except those that the source states falsely."""
        judgment = self.judged(claim, folder)
        assert {clause.id for clause in judgment.with_outcome(Outcome.FAIL)} == self.false.get(claim, set())
        assert not judgment.with_outcome(Outcome.NOT_MEASURED)

    def dies(self, claim: str, mutant: Mutant, folder: Path) -> None:
        """Check that a mutant fails on the clauses that its contract names."""
        fate = fate_of(mutant, self.judged(claim, folder, mutant))
        assert fate.fate is Fate.KILLED, fate.reason
