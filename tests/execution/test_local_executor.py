"""Trials in real processes: each way to end is distinguished, and no process is left."""

from __future__ import annotations

import copy
import errno
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.base.vocabulary import Fate, Outcome, Phase
from harness.contract.project import Project
from harness.execution.lease import lease
from harness.execution.local_executor import LocalExecutor
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from harness.judging.verdict import fate_of
from harness.machine.host import Gpu
from tests.execution.misbehaving import MODULE
from tests.execution.projects import run, run_to_limit, write_project
from tests.recorded import replay


def command_lines(processes: list[psutil.Process]) -> list[list[str]]:
    """The command lines of the processes that still run. A zombie has none."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            found.append(process.cmdline())
    return found


def test_a_healthy_trial_is_measured(executor: LocalExecutor) -> None:
    """The result has the measurements, steps, artifacts and telemetry of the trial."""
    result = run(executor, "slowly")
    assert result.observation.ending.kind is EndingKind.COMPLETED
    assert result.observation.measurements == {"inversions": 0}
    assert result.observation.resolved == {"device": "cpu"}
    assert [row["loss"] for row in result.steps.rows] == [2.0]
    assert result.artifacts is not None
    assert (result.artifacts.path / "result.txt").read_text() == "[1, 2, 3]"
    assert (result.telemetry.peak("rss_bytes") or 0) > 1 << 20
    assert 1.0 <= result.seconds <= 20.0  # the limit
    assert judge(executor._contract, result.observation).outcome is Outcome.PASS


ENDINGS = [
    ("not at all", EndingKind.COMPLETED, Phase.FALSIFIER, Outcome.FAIL),
    ("cannot be built", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("raises", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("runs out of memory", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("exits", EndingKind.DIED, Phase.SUBJECT, Outcome.FAIL),
    ("sys.exit", EndingKind.SUBJECT_FAULT, Phase.SUBJECT, Outcome.FAIL),
    ("segfaults", EndingKind.DIED, Phase.SUBJECT, Outcome.FAIL),
    ("is killed", EndingKind.KILLED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("falsifier raises", EndingKind.FALSIFIER_FAULT, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("falsifier gives up", EndingKind.NOT_MEASURED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("falsifier exits", EndingKind.DIED, Phase.FALSIFIER, Outcome.NOT_MEASURED),
    ("fills the disk", EndingKind.NOT_MEASURED, Phase.SUBJECT, Outcome.NOT_MEASURED),
    ("undeclared", EndingKind.FALSIFIER_FAULT, Phase.FALSIFIER, Outcome.NOT_MEASURED),
]


@pytest.mark.parametrize(("how", "kind", "phase", "outcome"), ENDINGS, ids=[row[0] for row in ENDINGS])
def test_endings_are_told_apart(
    executor: LocalExecutor, how: str, kind: EndingKind, phase: Phase, outcome: Outcome
) -> None:
    """A defect of the subject is FAIL. A defect of the falsifier or the machine is NOT_MEASURED. None is PASS.

    The log names the subject, its parameters and the ending. Every line has a time, and times only grow.
    """
    result = run(executor, how)
    observation = result.observation
    assert (observation.ending.kind, observation.ending.phase) == (kind, phase)
    assert judge(executor._contract, observation).outcome is outcome
    log_lines = result.log.text.splitlines()
    times = [float(line.split()[0]) for line in log_lines]
    assert times == sorted(times)
    assert "toy.sorting:Sorter" in log_lines[0]
    assert f'"how": "{how}"' in log_lines[1]
    (ended,) = [line for line in log_lines if f"ended: {kind}" in line]
    assert observation.ending.reason in ended
    assert any("the subject's code ran for" in line for line in log_lines)
    assert any("measured inversions = " in line for line in log_lines) == ("inversions" in observation.measurements)


@pytest.mark.parametrize(
    ("how", "line", "text"),
    [
        ("raises", 'raise ValueError("cannot sort")', "ValueError: cannot sort"),
        ("falsifier raises", 'raise RuntimeError("the falsifier is broken")', "RuntimeError: the falsifier is broken"),
        ("undeclared", "trial.measure(invertions=0)", "UndeclaredMeasurement: "),
    ],
)
def test_an_exception_names_its_place_in_the_project(executor: LocalExecutor, how: str, line: str, text: str) -> None:
    """The place is the innermost line of the project's own code, also if the harness raised the exception."""
    number = 1 + next(index for index, splitline in enumerate(MODULE.splitlines()) if splitline.strip() == line)
    assert run(executor, how).observation.ending.reason.startswith(f"toy/sorting.py:{number}: {text}")


def test_a_mutant_ends_once_it_has_violated_what_the_contract_names(executor: LocalExecutor) -> None:
    """Not before, and with the measurements until then. The same subject runs to its end without `until_violated`."""
    (mutant,) = executor._contract.mutants
    for until_violated, kind in ((mutant.violates, EndingKind.REFUTED), (("subject.completes",), EndingKind.COMPLETED)):
        result = run(executor, "not at all", until_violated=until_violated)
        assert result.observation.ending.kind is kind
        assert result.observation.measurements == {"inversions": 1}
        assert fate_of(mutant, judge(executor._contract, result.observation)).fate is Fate.KILLED
    assert run(executor, "well", until_violated=mutant.violates).observation.ending.kind is EndingKind.COMPLETED


def test_what_was_measured_before_a_crash_is_kept(executor: LocalExecutor) -> None:
    """A segmentation fault loses no earlier measurement."""
    result = run(executor, "segfaults")
    assert result.observation.measurements == {"inversions": 0}
    assert result.observation.ending.signal == "SIGSEGV"
    assert "Segmentation fault" in result.stderr.text


@pytest.mark.parametrize("how", ["hangs", "hangs in a signal-proof way"])
def test_a_hang_is_ended_at_its_limit(executor: LocalExecutor, how: str) -> None:
    """The limit holds even if the subject blocks signals. stderr ends with the stack."""
    result = run_to_limit(executor, how)
    observation = result.observation
    assert (observation.ending.kind, observation.ending.phase) == (EndingKind.TIMED_OUT, Phase.SUBJECT)
    assert f"ended: {EndingKind.TIMED_OUT}" in result.log.text
    assert judge(executor._contract, observation).outcome is Outcome.FAIL
    assert how != "hangs" or "in sort" in result.stderr.text


def test_a_subject_that_makes_progress_is_slow_and_not_refuted(executor: LocalExecutor) -> None:
    """It ends at its limit, also if it reports steps for ever. Its measurements are provisional."""
    result = run(executor, "trains for ever", seconds=3.0)
    assert result.observation.ending.kind is EndingKind.SLOW
    assert "3 s" in result.observation.ending.reason
    assert result.seconds < 2 * 3.0
    judgment = judge(executor._contract, result.observation)
    assert {clause.id: clause.outcome for clause in judgment.clauses if clause.outcome is not Outcome.PASS} == {
        "subject.completes": Outcome.NOT_MEASURED,
        "inversions.maximum": Outcome.NOT_MEASURED,
        "resolved.device": Outcome.NOT_MEASURED,
    }


def test_a_subject_that_stands_still_after_some_steps_is_refuted(executor: LocalExecutor) -> None:
    result = run(executor, "trains, then hangs", seconds=3.0)
    assert (result.observation.ending.kind, result.steps.count) == (EndingKind.TIMED_OUT, 3)
    assert 3.0 < result.seconds < 2 * 3.0 + 1
    assert judge(executor._contract, result.observation).clauses[0].outcome is Outcome.FAIL


def test_a_limit_that_is_claimed_refutes_what_is_slow(tmp_path: Path) -> None:
    """The contract says that the limit is part of the claim."""
    project = write_project(tmp_path / "toy", claimed=True)
    contract = project.contract("F-TOY-SORT-001")
    with LocalExecutor(project, contract, tmp_path / "cache") as executor:
        observation = run(executor, "trains for ever", seconds=3.0).observation
    assert observation.ending.kind is EndingKind.TIMED_OUT
    assert judge(contract, observation).clauses[0].outcome is Outcome.FAIL


@pytest.mark.parametrize("how", ["leaves a child", "leaves a daemon"])
def test_nothing_outlives_a_trial(executor: LocalExecutor, how: str) -> None:
    """No child is alive when the result arrives, even if it has left the trial's session."""
    result = run(executor, how)
    assert result.observation.ending.kind is EndingKind.COMPLETED
    sleeping = [
        line for line in command_lines(psutil.Process().children(recursive=True)) if line[:2] == ["sleep", "1000"]
    ]
    assert sleeping == []


def test_a_flood_is_bounded_and_counted(executor: LocalExecutor) -> None:
    """A gigabyte on standard output neither fills memory nor stops the trial."""
    before = psutil.Process().memory_info().rss
    result = run(executor, "floods", seconds=60)
    assert result.observation.ending.kind is EndingKind.COMPLETED
    assert result.stdout.size == 1_000_000_000
    assert len(result.stdout.text) < 100_000
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_the_workspace_is_removed_with_the_trial(executor: LocalExecutor) -> None:
    """The checkpoints of a trial do not stay while the next ones run."""
    result = run(executor, "leaves a file")
    assert result.artifacts is not None
    assert [path.name for path in result.artifacts.path.parent.iterdir()] == ["artifacts"]


def test_secrets_are_masked(executor: LocalExecutor) -> None:
    """A token that the subject prints does not reach the log."""
    text = run(executor, "leaks").stdout.text
    assert "hf_" not in text
    assert "[masked]" in text


def test_secrets_in_the_names_of_a_step_are_masked(executor: LocalExecutor) -> None:
    """A name would become the head of a column in every report."""
    assert [set(row) - {"step", "seconds"} for row in run(executor, "leaks in a name").steps.rows] == [
        {"[masked]"},
        {"loss"},
    ]


def test_a_step_s_own_seconds_stand_beside_ours(executor: LocalExecutor) -> None:
    """A log line may have the seconds of its step. They are kept beside the time of the report."""
    first, _ = run(executor, "tells its own time").steps.rows
    assert first["seconds"] > 0.0
    assert {name: value for name, value in first.items() if name != "seconds"} == {"step": 0, "own_seconds": -7.0}


def test_the_environment_is_scrubbed(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial has only the variables that decide how code runs. What it compiles goes into the cache folder."""
    monkeypatch.setenv("DEPLOY_TOKEN", "do-not-show")
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen by the user")
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path) as executor:
        text = run(executor, "prints its environment").stdout.text
    assert "'PATH'" in text
    assert "DEPLOY_TOKEN" not in text
    assert "SOMETHING_ELSE" not in text
    assert f"{tmp_path / 'inductor'} /chosen by the user" in text


def test_a_project_may_have_a_package_of_our_name(tmp_path: Path) -> None:
    """A package `harness` at the project's root does not replace ours."""
    project = write_project(tmp_path)
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        assert run(executor, "well").observation.ending.kind is EndingKind.COMPLETED


def test_a_dead_fork_server_loses_the_trial_not_the_harness(executor: LocalExecutor) -> None:
    """The trial is NOT_MEASURED with the reason."""
    executor._server._process.kill()
    executor._server._process.wait()
    observation = run(executor, "well").observation
    assert observation.ending.kind is EndingKind.LOST
    assert judge(executor._contract, observation).outcome is Outcome.NOT_MEASURED


def test_a_full_temporary_folder_is_named_with_its_remedy(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a nightly run, the log is all that its operator has."""

    def full(document: Any, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.execution.local_executor.strictjson.dump", full)
    ending = run(executor, "well").observation.ending
    assert ending.kind is EndingKind.LOST
    assert ending.reason.startswith(str(executor._server.folder))
    assert ending.reason.endswith("No space left on device; free some space there, or set TMPDIR to another folder")


@pytest.mark.parametrize("how", ["imports late", "imports late and dies"])
def test_what_a_trial_imports_while_it_runs_is_known(executor: LocalExecutor, project: Project, how: str) -> None:
    """The evidence has every imported file of the project, even if the trial then dies."""
    assert "toy/late.py" not in executor.imports().sources
    digest = hashlib.sha256((project.root / "toy" / "late.py").read_bytes()).hexdigest()
    assert run(executor, how).sources == {"toy/late.py": digest}
    assert run(executor, "well").sources == {}


@pytest.mark.parametrize("how", ["reads tables", "reads tables and dies"])
def test_what_a_trial_reads_beside_its_modules_is_a_source(executor: LocalExecutor, project: Project, how: str) -> None:
    """The text of a kernel is code under test.

    A data set elsewhere, a checkpoint and the trial's own files are not sources.
    """
    code = {"toy/kernels/add.cu": b"__global__", "toy/table.bin": b"\x00\xff"}
    others = {"data/corpus.txt": b"words", "toy/checkpoint.bin": bytes(2 << 20), "toy/unread.cu": b"nobody's"}
    for name, content in {**code, **others}.items():
        path = project.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert sorted(executor.imports().sources) == ["toy/__init__.py", "toy/sorting.py"]
    assert run(executor, how).sources == {name: hashlib.sha256(content).hexdigest() for name, content in code.items()}
    assert run(executor, "well").sources == {}


def test_lease_trial_telemetry_and_residency_are_of_one_gpu(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The GPU is the second of the host. Its UUID identifies it, because CUDA and NVML can count differently."""
    driver = replay("h200", monkeypatch, tmp_path)
    (first,) = driver.RECORDING["devices"]
    listed = {"nvmlDeviceGetComputeRunningProcesses": {"value": []}}
    memory = {"nvmlDeviceGetMemoryInfo": {"value": {"total": 140 << 30, "free": 0, "used": 7 << 30}}}
    second = {**copy.deepcopy(first), **memory, **listed, "nvmlDeviceGetUUID": {"value": "GPU-second"}}
    monkeypatch.setitem(driver.RECORDING, "devices", [first, second])
    gpu = Gpu(1, "GPU-second", "NVIDIA H200", "9.0", 140 << 30, "NVML", False)
    with lease(gpu, mode="shared", holder="F-TOY-SORT-001", wait_seconds=0, directory=tmp_path / "leases"):
        result = run(executor, "prints its environment", gpu=gpu)
    assert f"CUDA_VISIBLE_DEVICES={gpu.uuid}" in result.stdout.text
    assert result.telemetry.peak("gpu_memory_used_bytes") == 7 << 30
    assert result.observation.residency.driver_seen is False
