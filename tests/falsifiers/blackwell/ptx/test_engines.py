"""F-BLACKWELL-PTX-001 on a driver without a GPU: a healthy engine holds, and each mutant at its boundary dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falsifiers.blackwell.ptx import external, falsifier
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from harness.judging.judge import Judgment
from harness.judging.verdict import Fate, fate_of
from tests.falsifiers.blackwell import watched
from tests.falsifiers.blackwell.archived.engines import AnyGpu
from tests.falsifiers.blackwell.watched import PROJECT, failed

CONTRACT = PROJECT.contract("F-BLACKWELL-PTX-001")
pytestmark = pytest.mark.usefixtures("fake_driver")
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n"


def judged(folder: Path, **parameters: Any) -> tuple[Judgment, str]:
    """The judgment of a trial of the fake engine, and why it ended if it did not complete."""
    options = {"planted": "", "trainer": "tests/tools/recorder/engine.toml", **parameters}
    return watched.judged(folder, CONTRACT, falsifier.falsify, external.Command, options)


def test_a_healthy_engine_passes_as_a_whole(tmp_path: Path) -> None:
    """Every clause, those on the device and on its memory too, which only the driver's recorder shows."""
    judgment, reason = judged(tmp_path)
    assert [clause for clause in judgment.clauses if clause.outcome is not Outcome.PASS] == [], reason
    assert {"resolved.device", "residency.allocator", "ptx_loads.maxItems"} <= {
        clause.id for clause in judgment.clauses
    }


@pytest.mark.parametrize("mutant", CONTRACT.mutants, ids=lambda mutant: mutant.id)
def test_each_mutant_at_the_boundary_dies(tmp_path: Path, mutant: Mutant) -> None:
    """The program is the same healthy one, and knows nothing of the defect."""
    judgment, reason = judged(tmp_path, **mutant.parameters)
    assert fate_of(mutant, judgment).fate is Fate.KILLED, (reason, failed(judgment))


def test_an_engine_with_ptx_of_its_own_fails(tmp_path: Path) -> None:
    """It ends at the refusal, and what it handed to the driver is known all the same."""
    image = tmp_path / "kernels.ptx"
    image.write_bytes(PTX)
    judgment, _ = judged(tmp_path, arguments="--image", value=str(image))
    refused = {"subject.completes", "ptx_loads.maxItems", "refused_loads.maxItems", "cache_files.maxItems"}
    assert failed(judgment) == refused
    assert {clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)} >= {
        "out_of_memory.maxItems",
        "launches.minimum",
    }


def test_a_trainers_file_can_let_the_driver_compile(tmp_path: Path) -> None:
    """Then the engine goes on, and the compilation shows, in the driver's own word and in the cache."""
    image = tmp_path / "kernels.ptx"
    image.write_bytes(PTX)
    judgment, _ = judged(tmp_path, arguments="--image", value=str(image), allowed="0")
    assert failed(judgment) == {"ptx_loads.maxItems", "compilations.maxItems", "cache_files.maxItems"}


def test_an_engine_that_leaves_the_driver_alone_fails_only_where_nothing_else_used_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No launch is a violation, unless NVML saw a process that was not recorded."""
    monkeypatch.setattr(AnyGpu, "users", 0)
    judgment, _ = judged(tmp_path, arguments="--end", value="nothing")
    assert "launches.minimum" in failed(judgment)
    monkeypatch.setattr(AnyGpu, "users", 1)
    (tmp_path / "again").mkdir()
    judgment, _ = judged(tmp_path / "again", arguments="--end", value="nothing")
    assert "launches.minimum" not in failed(judgment)


def test_one_of_two_processes_without_the_recorder_leaves_the_rest_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded process that launches a kernel says nothing of another one that does the work."""
    monkeypatch.setattr(AnyGpu, "users", 2)
    judgment, _ = judged(tmp_path)
    assert failed(judgment) == set()
    assert {clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)} >= {
        "ptx_loads.maxItems",
        "launches.minimum",
    }


def test_a_worker_that_is_killed_leaves_the_rest_unknown(tmp_path: Path) -> None:
    """Its last events may have reached no file, so an empty list shows nothing; its launches count."""
    judgment, _ = judged(tmp_path, arguments="--end", value="worker-killed")
    assert failed(judgment) == set()
    missing = {clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)}
    assert "compilations.maxItems" in missing
    assert "launches.minimum" not in missing


def test_where_the_recorder_does_not_work_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another profiler holds CUPTI: the machine is in the way, and the reason says so."""
    monkeypatch.setenv("FAKE_SUBSCRIBED", "1")
    judgment, reason = judged(tmp_path)
    assert judgment.outcome is Outcome.NOT_MEASURED
    assert "cuptiSubscribe answered 39" in reason


def test_without_a_driver_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    judgment, reason = judged(tmp_path)
    assert judgment.outcome is Outcome.NOT_MEASURED
    assert "no CUDA driver" in reason
