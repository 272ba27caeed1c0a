"""A trial of a claim in this process, without forks and logs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from harness import Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.trial import Case
from harness.base import strictjson
from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract, Mutant
from harness.contract.builtin import COMPLETES
from harness.contract.entry_point import resolve
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Observation
from harness.search.explorer import CaseSearch, Result
from tests.falsifiers.distill.trials import Heard
from tests.falsifiers.planted import planted

__all__ = ["judged"]


def judged(contract: Contract, subject: str, folder: Path, mutant: Mutant | None = None, **overrides: Any) -> Judgment:
    """Run the reduced profile on the CPU with seed 0, and judge it."""
    parameters = {
        **contract.profiles["reduced"].parameters, **(mutant.parameters if mutant else {}), **overrides
    }  # fmt: skip
    setting, recorded = Setting(parameters, "cpu", 0, folder, folder), Heard()
    given = {"type": "cpu", "name": "a CPU"}
    claim = {"contract": contract.document, "device": given, "case": None, "end": SearchEnd.TRIED, "until": math.inf}

    def search(attempt: Callable[[Case], JsonObject | SubjectFault]) -> _Enough:
        new = _Enough(claim, setting, attempt, folder)
        new.sought = frozenset(mutant.violates if mutant else ())
        return new

    run = WorkerTrial(setting, folder, contract.measurements, recorded, search)
    with planted(mutant):
        run.run(resolve(contract.falsifier), resolve(subject))
    measured = strictjson.untag_nonfinite(recorded.measurements)
    device = Device("cpu", "a CPU")
    return judge(contract, Observation(subject, "reduced", parameters, device, measured, recorded.resolved))


class _Enough(CaseSearch):
    """A search that ends when its cases violate the mutant's clauses."""

    sought: frozenset[str] = frozenset()
    """Clauses; empty to try every case."""

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> Result | None:
        for case in first:
            found = super().explore(cases, [case], 0)
            violated = frozenset[str]().union(*(result.violated for result in self.results))
            if COMPLETES in violated or (self.sought and self.sought <= violated):
                return found
        return super().explore(cases, (), examples)
