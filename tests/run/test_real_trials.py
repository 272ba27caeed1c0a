"""The engine with real processes: the blame for exhausted GPU memory, and the number of cases that a search tries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Outcome, SearchEnd, Verdict
from harness.contract.other_subject import Subject
from harness.contract.project import Project
from harness.evidence.seal import ClaimResult
from harness.execution.executor import TrialRequest
from harness.execution.local_executor import LocalExecutor, LocalExecutors
from harness.judging.counterexample import COUNTEREXAMPLE
from harness.judging.observation import EndingKind
from harness.machine.host import probe
from harness.running.engine import Engine
from harness.running.request import RunRequest
from tests.execution.projects import write_project
from tests.searching import CLAIM, write_searching_project

GIB = 1 << 30
Run = Callable[..., ClaimResult]

WITHOUT_GPU_MEMORY = """
import sys
from types import SimpleNamespace


class Greedy:
    '''Exhausts the memory of a GPU that a stand-in for torch describes.'''

    def __init__(self, setting):
        self.free, self.reserved = setting.parameters["free"], setting.parameters["reserved"]

    def sort(self, items):
        class OutOfMemoryError(RuntimeError):
            pass

        cuda = SimpleNamespace(
            is_initialized=lambda: True,
            mem_get_info=lambda: (self.free, 1 << 37),
            memory_reserved=lambda: self.reserved,
            device_count=lambda: 0,
        )
        sys.modules["torch"] = SimpleNamespace(OutOfMemoryError=OutOfMemoryError, cuda=cuda)
        try:
            raise OutOfMemoryError("CUDA out of memory")
        except OutOfMemoryError as error:
            raise RuntimeError("the step failed") from error
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a claim of the project in `tmp_path` without mutants, and return the result."""
    monkeypatch.setenv("HARNESS_LEASE_DIR", str(tmp_path / "leases"))

    def ran(claim: str, **options: Any) -> ClaimResult:
        project, sealed = Project.find(tmp_path), list[ClaimResult]()

        def seal(result: ClaimResult) -> Path:
            sealed.append(result)
            return tmp_path

        engine = Engine(
            project,
            probe(project.root),
            lambda: LocalExecutors(project, [project.contract(claim)], tmp_path / "cache"),
            seal,
            lambda event: None,
            "harness run",
        )
        engine.run(RunRequest((project.contract(claim),), mutants=False, **options))
        return sealed[0]

    return ran


@pytest.mark.parametrize(
    ("free", "reserved", "kind", "verdict"),
    [
        (GIB // 2, 0, EndingKind.NOT_MEASURED, Verdict.NOT_MEASURED),
        (GIB // 4, GIB // 4, EndingKind.NOT_MEASURED, Verdict.NOT_MEASURED),
        (GIB, 0, EndingKind.SUBJECT_FAULT, Verdict.FAIL),
        (0, 2 * GIB, EndingKind.SUBJECT_FAULT, Verdict.FAIL),
    ],
)
def test_exhausted_gpu_memory_is_the_subjects_fault_unless_others_took_it(
    run: Run, tmp_path: Path, free: int, reserved: int, kind: EndingKind, verdict: Verdict
) -> None:
    """The profile asks for 1 GiB. The subject had that much if it is free, or if the subject itself holds it."""
    write_project(tmp_path, requires={"device": "any", "memory_gib": 1})
    (tmp_path / "toy" / "greedy.py").write_text(WITHOUT_GPU_MEMORY)
    result = run(
        "F-TOY-SORT-001", subject=Subject.at("toy.greedy:Greedy"), parameters={"free": free, "reserved": reserved}
    )
    assert (result.subject.observation.ending.kind, result.record.verdict) == (kind, verdict)


def test_a_search_counts_the_cases_that_it_tried(run: Run, tmp_path: Path) -> None:
    """Two numbers of 0 or 1 make four cases, not the requested sixty. The claim's rule notices that."""
    write_searching_project(tmp_path)
    result = run(CLAIM, subject=Subject.at("toy.adding:StillWrong"), parameters={"largest": 1})
    measured = result.subject.observation.measurements
    assert (measured["cases"], measured["errors"]) == (4, [1, 1, 1, 1])
    outcomes = {clause.id: clause.outcome for clause in result.record.clauses}
    assert outcomes["every-case-tried"] is Outcome.FAIL


@pytest.mark.parametrize(("how", "refuted"), [("overflows", True), ("well", False)])
def test_a_search_for_a_verdict_alone_ends_at_the_first_refutation(tmp_path: Path, how: str, refuted: bool) -> None:
    """The search looks for no simpler case. Without a refutation, it tries every case."""
    project = Project.find(write_searching_project(tmp_path))
    contract = project.contract(CLAIM)
    parameters = {**contract.profiles["reduced"].parameters, "how": how}
    request = TrialRequest(
        contract, contract.subject, "reduced", parameters, Device("cpu", "x"), 0, 20.0, 1, search_end=SearchEnd.REFUTED
    )
    with LocalExecutor(project, contract, tmp_path / "cache") as executor:
        result = executor.run(request, lambda step, values, memory: None)
    errors = result.observation.measurements["errors"]
    assert [error > 0.5 for error in errors] == [False] * (len(errors) - refuted) + [True] * refuted
    assert (len(errors) < 60) is refuted
    assert (result.observation.ending.kind is EndingKind.REFUTED) is refuted
    assert result.artifacts is not None
    assert not (result.artifacts / COUNTEREXAMPLE).path.exists()
