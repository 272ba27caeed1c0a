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
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from harness.contract.entry_point import resolve
from tests.falsifiers.in_process import PROJECT, judged

PTX, KEYS = "F-BLACKWELL-ARCHIVE-001", "F-BLACKWELL-PREWARM-KEYS-001"
TINY = {"model": "qwen2-tiny", "vocabulary": 64, "batch": 1, "sequence": 8}
SMALLER = {PTX: {**TINY, "targets": [120, 121], "steps": 2}, KEYS: {"cases": 10}}
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


def outcomes(claim: str, folder: Path, cache: Path, mutant: Mutant | None = None, **more: Any) -> dict[str, Outcome]:
    """Every clause of the reduced profile with its outcome, for the reference or a mutant."""
    contract = PROJECT.contract(claim)
    subject = (mutant or contract).subject
    judgment = judged(contract, subject, folder, mutant, cache, ends=True, **{**SMALLER[claim], **more})
    return {clause.id: clause.outcome for clause in judgment.clauses}


def engine(cache: Path) -> Any:
    """The subject of the PTX claim, with its files in `cache`."""
    contract = PROJECT.contract(PTX)
    parameters = {**contract.profiles["reduced"].parameters, **SMALLER[PTX]}
    return resolve(contract.subject)(Setting(parameters, "cpu", 1, cache, cache))


@pytest.mark.parametrize("claim", [PTX, KEYS])
def test_the_reference_passes(claim: str, tmp_path: Path, kept: Path) -> None:
    found = outcomes(claim, tmp_path, kept, **FEWER.get(claim, {}))
    assert {clause for clause, outcome in found.items() if outcome is not Outcome.PASS} == set()


@pytest.mark.parametrize(("claim", "mutant"), HERE, ids=[mutant.id for _, mutant in HERE])
def test_every_mutant_falls_on_the_clauses_it_was_made_for(
    claim: str, mutant: Mutant, tmp_path: Path, kept: Path
) -> None:
    found = outcomes(claim, tmp_path, kept, mutant)
    assert set(mutant.violates) <= {clause for clause, outcome in found.items() if outcome is Outcome.FAIL}


def test_a_machine_without_a_compiler_of_its_own_is_not_the_subjects_fault(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the kernels' text needs a compiler. The archive is judged first, and no clause fails."""
    shutil.copytree(kept, tmp_path / "cache", ignore=shutil.ignore_patterns("host-kernels"))
    monkeypatch.setattr("falsifiers.blackwell.reference.host_device.shutil.which", lambda name: None)
    found = outcomes(PTX, tmp_path, tmp_path / "cache", rebuilt_targets=0)
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
