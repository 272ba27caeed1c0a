"""Determines, before a run, which claims can run with isolated subjects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from harness.base import strictjson
from harness.contract import Contract
from harness.contract.project import Project
from harness.execution.fork_server import IMPORT_SECONDS, PYTHON, server_environment
from harness.execution.isolation import Isolation
from harness.machine.limited_process import Stopped, completed

__all__ = ["ISOLATION", "obstacles"]


def obstacles(project: Project, contracts: Sequence[Contract]) -> dict[str, str]:
    """Why the subjects of each claim cannot be isolated, by claim id; empty if they can.

    A helper process imports the falsifiers, but no subject.
    """

    def folders(contract: Contract) -> tuple[Path, ...]:
        return project.search_of(contract.path)

    timed = "it measures time, and the way to another process would be measured too"
    reasons: dict[str, str] = {}
    for search, group in groupby(sorted(contracts, key=folders), key=folders):
        claims = list(group)
        for contract, why in zip(claims, _obstacles(project, claims, search), strict=True):
            reasons[contract.id] = timed if contract.exclusive else why
    return reasons


def _obstacles(project: Project, contracts: Sequence[Contract], search: Sequence[Path]) -> list[str]:
    """The obstacles of one project's claims, in order."""
    requests = [
        [contract.falsifier, sorted({entry.partition(":")[0] for entry in contract.entry_points[1:]})]
        for contract in contracts
    ]
    command = [*PYTHON, "harness.tools.isolate.rpc", json.dumps(requests), *map(str, search)]
    environment = server_environment(project.root)
    try:
        done = completed(command, IMPORT_SECONDS, cwd=project.root, environment=environment)
        answer = strictjson.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    except (Stopped, ValueError, IndexError):
        answer = None
    if isinstance(answer, list) and len(answer) == len(contracts):  # the project's code may also print
        return [str(reason) for reason in answer]
    return ["the falsifier cannot be imported"] * len(contracts)


ISOLATION = Isolation("harness.tools.isolate.subject_process:SubjectProcess", obstacles)
"""The entry point of the group `harness.isolation`."""
