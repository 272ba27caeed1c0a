"""Write the project of defective subjects, and run its trials."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.base.device import Device
from harness.base.vocabulary import Phase
from harness.contract.project import Project
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.local_executor import LocalExecutor
from harness.machine.host import Gpu
from tests.contracts import put
from tests.execution.misbehaving import CONTRACT, MODULE


def write_project(root: Path, requires: Mapping[str, Any] | None = None, claimed: bool = False) -> Project:
    """A project with one healthy claim, and one whose falsifier cannot be imported.

    Args:
        requires: what the profile requires; by default, any device.
        claimed: whether the time limit is part of the claim.
    """
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "toy").mkdir()
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "sorting.py").write_text(MODULE)
    (root / "toy" / "late.py").write_text("LATE = True\n")
    (root / "toy" / "broken.py").write_text("falsify = None\nraise ImportError('no such library')\n")
    (root / "contracts").mkdir()
    healthy: dict[str, Any] = copy.deepcopy(CONTRACT)
    healthy["profiles"]["reduced"]["requires"] = requires or {"device": "any"}
    healthy["profiles"]["reduced"]["limits"]["claimed"] = claimed
    broken = {**healthy, "id": "F-TOY-BROKEN-001", "falsifier": "toy.broken:falsify"}
    for contract in (healthy, broken):
        put(root / "contracts" / contract["id"] / "contract.json", json.dumps(contract))
    return Project.find(root)


def run(
    executor: LocalExecutor,
    how: str,
    seconds: float = 20.0,
    gpu: Gpu | None = None,
    until_violated: tuple[str, ...] = (),
) -> TrialResult:
    """Run the subject with this behaviour. It computes on the CPU, even if it gets a GPU."""
    contract = executor._contract
    request = TrialRequest(
        contract=contract,
        subject=contract.subject,
        profile="reduced",
        parameters={"items": 3, "how": how},
        device=Device("cpu", "test"),
        seed=0,
        seconds=seconds,
        threads=1,
        gpu=gpu,
        until_violated=until_violated,
    )
    return executor.run(request, lambda step, values, memory: None)


def run_to_limit(executor: LocalExecutor, how: str) -> TrialResult:
    """Run a subject that reaches its limit. The limit is longer if the machine is too busy to reach the subject."""
    for seconds in (1.0, 10.0, 100.0):
        result = run(executor, how, seconds)
        if result.observation.ending.phase is Phase.SUBJECT:
            break
    return result
