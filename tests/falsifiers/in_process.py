"""A trial of a claim in this process, without forks and logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.trial import Case
from harness.base import strictjson
from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract, Mutant
from harness.contract.entry_point import resolve
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Observation
from harness.tools.search.cases import CaseSearch
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
    claim = {
        "contract": contract.document, "device": given, "case": None, "end": SearchEnd.TRIED,
        "sought": mutant.violates if mutant else (), "until": math.inf,
    }  # fmt: skip

    def search(attempt: Callable[[Case], JsonObject | SubjectFault]) -> CaseSearch:
        return CaseSearch(claim, setting, attempt, folder)

    run = WorkerTrial(setting, folder, contract.measurements, recorded, search)
    with planted(mutant):
        run.run(resolve(contract.falsifier), resolve(subject))
    measured = strictjson.untag_nonfinite(recorded.measurements)
    device = Device("cpu", "a CPU")
    return judge(contract, Observation(subject, "reduced", parameters, device, measured, recorded.resolved))
