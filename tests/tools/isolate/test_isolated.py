"""A subject in its own process can send wrong values, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract.project import Project
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.local_executor import LocalExecutor
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from harness.tools.isolate.isolable import obstacles
from harness.tools.isolate.subject_process import _lines_of
from tests.contracts import put
from tests.execution.projects import run_to_limit
from tests.tools.isolate.isolated import CONTRACT, FALSIFIER, PROTOCOL, SUBJECTS


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project."""
    root = tmp_path_factory.mktemp("apart")
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "apart").mkdir()
    files = {"__init__": "", "protocol": PROTOCOL, "halving": FALSIFIER, "subjects": SUBJECTS, "late": ""}
    for name, text in files.items():
        (root / "apart" / f"{name}.py").write_text(text)
    (root / "contracts").mkdir()
    put(root / "contracts" / CONTRACT["id"] / "contract.json", json.dumps(CONTRACT))
    return Project.find(root)


def executor_of(project: Project, cache: Path, isolated: bool) -> Iterator[LocalExecutor]:
    with LocalExecutor(project, project.contract("F-TOY-APART-001"), cache, isolated=isolated) as executor:
        executor.imports()
        yield executor


@pytest.fixture(scope="module")
def apart(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    """An executor that isolates subjects."""
    yield from executor_of(project, tmp_path_factory.mktemp("cache"), True)


@pytest.fixture(scope="module")
def shared(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    """An executor that does not isolate subjects."""
    yield from executor_of(project, tmp_path_factory.mktemp("cache"), False)


def run(executor: LocalExecutor, how: str, seconds: float = 30.0) -> TrialResult:
    contract = executor._contract
    request = TrialRequest(contract, contract.subject, "reduced", {"how": how}, Device("cpu", "x"), 0, seconds, 1)
    return executor.run(request, lambda step, values, memory: None)


def test_the_subject_has_a_process_of_its_own(apart: LocalExecutor, shared: LocalExecutor) -> None:
    """Only that process imports the subject's module, which is still a source of the evidence.

    In a call it has the falsifier's working directory and environment variables.
    """
    results = {executor: run(executor, "well") for executor in (apart, shared)}
    for executor, result in results.items():
        observation = result.observation
        assert judge(executor._contract, observation).outcome is Outcome.PASS, observation.ending
        assert observation.measurements["refused"] is True
        assert observation.measurements["imported"] is (executor is shared)
    assert "apart/subjects.py" in results[apart].sources
    assert "apart/late.py" in run(apart, "imports late").sources
    assert "from the subject" in run(apart, "prints").stdout.text


FORGERIES = ["replaces the harness", "replaces a function of Python", "searches the memory", "lies in its methods"]


@pytest.mark.parametrize("how", FORGERIES)
def test_what_passes_in_a_shared_process_fails_apart(apart: LocalExecutor, shared: LocalExecutor, how: str) -> None:
    """The forgery is possible in a shared process, as documented, and fails in an isolated one."""
    assert judge(shared._contract, run(shared, how).observation).outcome is Outcome.PASS
    observation = run(apart, how).observation
    assert judge(apart._contract, observation).outcome is Outcome.FAIL
    assert observation.measurements["error"] >= 1.5


ENDINGS = [
    ("not at all", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.FAIL),
    ("cannot be built", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("returns another type", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("raises", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("raises not measured", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("finds the disk full", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("exits", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("segfaults", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("is killed", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("leaves a child and exits", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("writes everywhere", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("returns from a fork", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.PASS),
    ("is asked for more", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("is built again", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("gets what cannot be carried", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
]


@pytest.mark.parametrize(("how", "kind", "phase", "outcome"), ENDINGS, ids=[row[0] for row in ENDINGS])
def test_defects_are_blamed_on_their_owner(
    apart: LocalExecutor, how: str, kind: EndingKind, phase: Phase, outcome: Outcome
) -> None:
    """The blame is as in a shared process, even if the subject's process has died."""
    observation = run(apart, how).observation
    assert (observation.ending.kind, observation.ending.phase) == (kind, phase), observation.ending
    assert judge(apart._contract, observation).outcome is outcome


def test_an_exception_is_told_as_it_was_raised(apart: LocalExecutor) -> None:
    """The exception has its class, its text and its traceback, and the place in the subject's own code."""
    ending = run(apart, "raises").observation.ending
    assert re.fullmatch(r"apart/subjects\.py:\d+: Stranger: cannot halve", ending.reason)
    assert "apart/subjects.py" in (ending.traceback or "")


def test_a_hang_ends_with_the_trial(apart: LocalExecutor) -> None:
    """The subject is blamed, and its stack is shown."""
    result = run_to_limit(apart, "hangs")
    observation = result.observation
    assert "subjects.py" in result.stderr.text
    assert (observation.ending.kind, observation.ending.phase) == (EndingKind.TIMED_OUT, Phase.SUBJECT)


@pytest.mark.parametrize("line", ["import os; os._exit(7)", "import nonexistent", "raise SystemExit(3)"])
def test_a_subject_that_cannot_be_loaded_is_not_measured(project: Project, tmp_path: Path, line: str) -> None:
    """Such a subject refutes nothing, and the falsifier is not blamed."""
    module = project.root / "apart" / "subjects.py"
    module.write_text(f"{line}\n{SUBJECTS}")
    try:
        for executor in executor_of(project, tmp_path, True):
            ending = run(executor, "well").observation.ending
    finally:
        module.write_text(SUBJECTS)
    assert (ending.kind, ending.phase) == (EndingKind.NOT_MEASURED, Phase.START), ending


def test_a_falsifier_that_imports_the_subject_is_refused(project: Project, tmp_path: Path) -> None:
    """The falsifier's process would run the subject's code, so isolation is refused."""
    contract = project.contract("F-TOY-APART-001")
    assert obstacles(project, [contract]) == {contract.id: ""}
    module = project.root / "apart" / "halving.py"
    module.write_text(f"import apart.subjects\n{FALSIFIER}")
    try:
        assert "apart.subjects" in obstacles(project, [contract])[contract.id]
        with LocalExecutor(project, contract, tmp_path, isolated=True) as executor:
            ending = run(executor, "well").observation.ending
        assert ending.kind is EndingKind.NOT_MEASURED
    finally:
        module.write_text(FALSIFIER)


def test_the_log_has_what_an_isolated_subject_built_and_read(apart: LocalExecutor, shared: LocalExecutor) -> None:
    """In its own process, the lines say that they come from there. Models are told, and files that Rust opens."""
    pytest.importorskip("safetensors")
    for executor, beginning in ((apart, "in the subject's process: "), (shared, "")):
        result = run(executor, "builds a model and loads it")
        assert judge(executor._contract, result.observation).outcome is Outcome.PASS, result.observation.ending
        printed = [line[12:] for line in result.log.text.splitlines()]
        assert any(line.startswith(f"{beginning}built Linear: 6 parameters, 24 bytes") for line in printed), printed
        assert any(line.startswith(f"{beginning}read workspace/weights.safetensors, ") for line in printed), printed


@pytest.mark.parametrize("told", [7, [7], [["a"]], [[1, 2]], [["a", "b", "c"]], ["abc"], [[["a"], "b"]]])
def test_lines_of_another_form_are_no_answer(told: Any) -> None:
    """The subject's process can send anything in the place of lines for the log."""
    with pytest.raises((TypeError, ValueError)):
        _lines_of(told)
