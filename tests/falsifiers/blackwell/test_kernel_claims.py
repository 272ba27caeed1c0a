"""Small runs of F-BLACKWELL-ARCHIVE-001 and -PREWARM-KEYS-001 without a GPU: references pass, mutants are killed."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falsifiers.blackwell.archived import archive_check
from falsifiers.blackwell.reference.kernels.catalogue import add
from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel
from falsifiers.blackwell.watching.compilations import watching
from harness import NotMeasured, Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.recorder import Recorder
from harness.authoring.reports import Measured, Resolved, TrialReport
from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract, Mutant
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind, Observation
from tests.falsifiers.known_cases import KnownCases
from tests.falsifiers.planted import planted

PROJECT = Project.find(Path(__file__).parent)
PTX, KEYS = "F-BLACKWELL-ARCHIVE-001", "F-BLACKWELL-PREWARM-KEYS-001"
TINY = {"model": "qwen2-tiny", "vocabulary": 64, "batch": 1, "sequence": 8}
SMALLER = {PTX: {**TINY, "targets": [120, 121], "steps": 2}, KEYS: {"cases": 3}}
FEWER = {PTX: {"rebuilt_targets": 1}}
"""For the reference. A mutant needs more of them."""
HERE = [
    (claim, mutant)
    for claim in (PTX, KEYS)
    for mutant in PROJECT.contract(claim).mutants
    if mutant.requires.get("device") != "cuda"
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, host_kernels: Path) -> Path:
    """The cache that trials share, with the archive built once."""
    pytest.importorskip("cuda.bindings")
    cache = tmp_path_factory.mktemp("cache")
    archive = engine(cache).archive()
    (archive.parent / "host-kernels").symlink_to(host_kernels)
    return cache


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Let the falsifier compile each kernel once for all trials, for the comparison with archives.

    Archives compile their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_check, "compile_kernel", functools.cache(compile_kernel))
        yield


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore variables that the falsifier sets in this process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def outcomes(
    claim: str, contract: Contract, subject: type, folder: Path, cache: Path, **more: Any
) -> dict[str, Outcome]:
    """Every clause of the reduced profile with its outcome."""
    parameters = {**contract.profiles["reduced"].parameters, **SMALLER[claim], **more}
    seen: dict[type, dict[str, Any]] = {Measured: {}, Resolved: {}}
    declared = frozenset(contract.document["observation"]["properties"])

    def report(said: TrialReport) -> None:
        seen.setdefault(type(said), {}).update(getattr(said, "values", {}))

    setting, recorder = Setting(parameters, "cpu", 1, folder, cache), Recorder(declared, report)
    ending = Ending(EndingKind.COMPLETED)
    try:
        with recorder.subject_fault():
            built = subject(setting)
        resolve(contract.falsifier)(KnownCases(built, setting, folder, recorder))
    except SubjectFault as fault:
        ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, str(fault))
    except NotMeasured as why:
        ending = Ending(EndingKind.NOT_MEASURED, Phase.FALSIFIER, str(why))
    observation = Observation(
        subject=contract.subject,
        profile="reduced",
        parameters=parameters,
        device=Device("cpu", "a CPU"),
        measurements=seen[Measured],
        resolved=seen[Resolved],
        ending=ending,
    )
    return {clause.id: clause.outcome for clause in judge(contract, observation).clauses}


def engine(cache: Path) -> Any:
    """The subject of the PTX claim, with its files in `cache`."""
    contract = PROJECT.contract(PTX)
    parameters = {**contract.profiles["reduced"].parameters, **SMALLER[PTX]}
    return resolve(contract.subject)(Setting(parameters, "cpu", 1, cache, cache))


@pytest.mark.parametrize("claim", [PTX, KEYS])
def test_the_reference_passes(claim: str, tmp_path: Path, kept: Path) -> None:
    contract = PROJECT.contract(claim)
    found = outcomes(claim, contract, resolve(contract.subject), tmp_path, kept, **FEWER.get(claim, {}))
    assert {clause for clause, outcome in found.items() if outcome is not Outcome.PASS} == set()


@pytest.mark.parametrize(("claim", "mutant"), HERE, ids=[mutant.id for _, mutant in HERE])
def test_every_mutant_falls_on_the_clauses_it_was_made_for(
    claim: str, mutant: Mutant, tmp_path: Path, kept: Path
) -> None:
    parameters = {**mutant.parameters, **SMALLER[claim]}
    with planted(mutant):
        found = outcomes(claim, PROJECT.contract(claim), resolve(mutant.subject), tmp_path, kept, **parameters)
    failed = {clause for clause, outcome in found.items() if outcome is Outcome.FAIL}
    assert set(mutant.violates) <= failed


def test_a_machine_without_a_compiler_of_its_own_is_not_the_subjects_fault(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the kernels' text needs a compiler. The archive is judged first, and no clause fails."""
    contract = PROJECT.contract(PTX)
    shutil.copytree(kept, tmp_path / "cache", ignore=shutil.ignore_patterns("host-kernels"))
    monkeypatch.setattr("falsifiers.blackwell.reference.host_device.shutil.which", lambda name: None)
    found = outcomes(PTX, contract, resolve(contract.subject), tmp_path, tmp_path / "cache", rebuilt_targets=0)
    assert (found["subject.completes"], found["absent.maxItems"]) == (Outcome.NOT_MEASURED, Outcome.PASS)
    assert Outcome.FAIL not in found.values()
    with pytest.raises(NotMeasured, match=r"g\+\+"):
        engine(tmp_path / "cache").start()


def test_the_watch_sees_a_compilation_and_puts_everything_back() -> None:
    pytest.importorskip("cuda.bindings")
    from cuda.bindings import nvrtc

    before = nvrtc.nvrtcCompileProgram
    with watching() as seen:
        compile_kernel(add(), 90)
    assert (seen.nvrtc, seen.refused) == (1, 0)
    assert nvrtc.nvrtcCompileProgram is before
