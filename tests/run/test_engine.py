"""The engine with a simulated executor: settlements, races and failures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Fate, Verdict
from harness.contract import Mutant
from harness.contract.project import Project
from harness.evidence.bundle_layout import UNFINISHED
from harness.evidence.seal import Sealer
from harness.execution.executor import TrialRequest
from harness.execution.lease import CPU, LeaseUnavailable, lease
from harness.run import events
from tests.contracts import contract_of, document
from tests.run.pretending import BROKEN, HEALTHY, Bench, Pretender, Pretenders, honest, only


def test_a_claim_that_holds(bench: Callable[..., Bench]) -> None:
    """PASS, proven, sealed, and every resource closed."""
    whole = bench(honest)
    record = only(whole.run())
    assert (record.verdict, record.proven, record.mutants[0].fate) == (Verdict.PASS, True, Fate.KILLED)
    assert whole.executor.closed
    assert [result.record for result in whole.sealed] == [record]
    assert isinstance(whole.heard[-1], events.RunFinished)


def test_an_executor_that_raises_loses_one_trial(bench: Callable[..., Bench]) -> None:
    """An error of the harness in a mutant's trial leaves evidence, and no PASS."""

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if request.subject.endswith(":Sorter"):
            return HEALTHY
        raise RecursionError("too deep")

    whole = bench(behave)
    record = only(whole.run())
    assert (record.verdict, record.mutants[0].fate) == (Verdict.NOT_MEASURED, Fate.INCONCLUSIVE)
    assert "too deep" in record.reason.root.text
    assert whole.sealed


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "no")])
def test_an_executor_that_cannot_start(project: Project, bench: Callable[..., Bench], error: OSError) -> None:
    """A full or forbidden temporary folder is the machine's fault, and is sealed so."""
    whole = bench(honest)

    def refuse() -> Pretender:
        raise error

    whole.engine._executors = lambda: Pretenders(refuse)
    record = only(whole.run())
    assert record.verdict is Verdict.NOT_MEASURED
    assert "trials cannot be started here" in record.reason.root.text
    assert record.mutants[0].fate is Fate.NOT_RUN


@pytest.mark.parametrize(
    ("subject", "verdict"), [(HEALTHY, Verdict.NOT_MEASURED), (BROKEN, Verdict.FAIL)], ids=["healthy", "broken"]
)
def test_a_verdict_without_evidence(bench: Callable[..., Bench], subject: Mapping[str, Any], verdict: Verdict) -> None:
    """If nothing can be sealed, a PASS does not count, and a FAIL does."""

    def full() -> None:
        raise OSError(28, "No space left on device")

    record = only(bench(lambda request: subject if request.subject.endswith(":Sorter") else BROKEN, full).run())
    assert (record.verdict, record.proven) == (verdict, False)


def test_a_device_that_is_never_free(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the holder; nothing ran."""

    def never(*arguments: Any, **named: Any) -> Any:
        raise LeaseUnavailable("held by F-OTHER-001")

    monkeypatch.setattr("harness.run.trials.lease", never)
    whole = bench(honest)
    record = only(whole.run())
    assert (record.verdict, record.reason.root.text.endswith("held by F-OTHER-001")) == (Verdict.NOT_MEASURED, True)
    assert whole.executor.started == []


def test_hundreds_of_mutants(bench: Callable[..., Bench]) -> None:
    """All run, a few at a time, and are listed in the contract's order."""
    whole = bench(honest)
    mutants = tuple(
        Mutant(f"m-{number:03}", "falsifiers.demo.sorting:Forgetful", ("nothing-lost",), "", {}, {})
        for number in range(300)
    )
    record = only(whole.run(replace(whole.contract, mutants=mutants)))
    assert record.verdict is Verdict.PASS
    assert [mutant.id for mutant in record.mutants] == [mutant.id for mutant in mutants]


@pytest.mark.parametrize(("mode", "is_free"), [("exclusive", False), ("shared", True)])
def test_only_a_claim_that_measures_time_has_the_device_alone(
    bench: Callable[..., Bench], mode: str, is_free: bool
) -> None:
    """No other claim gets a lease of the device meanwhile. Other claims share it."""
    free: list[bool] = []

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        try:
            with lease(CPU, mode="shared", holder="F-OTHER-001", wait_seconds=0):
                free.append(True)
        except LeaseUnavailable:
            free.append(False)
        return honest(request)

    bench(behave).run(contract_of(document(lease=mode)))
    assert free == [is_free, is_free]


def test_subject_and_mutants_share_parameters_and_seed(bench: Callable[..., Bench]) -> None:
    """Overrides reach every trial. Only a mutant's own parameters differ."""
    requests: list[TrialRequest] = []

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        requests.append(request)
        return honest(request)

    whole = bench(behave)
    (mutant,) = whole.contract.mutants
    mutants = (mutant, replace(mutant, id="of-its-own", parameters={"steps": 9}))
    whole.run(replace(whole.contract, mutants=mutants), parameters={"steps": 5}, seed=7, jobs=1)
    assert [(one.seed, one.parameters) for one in requests] == [(7, {"steps": 5}), (7, {"steps": 5}), (7, {"steps": 9})]
    ran = whole.sealed[0].mutants
    assert {trial.observation.seed for trial in ran.values()} == {7}


def test_a_bundle_is_on_the_disk_before_it_is_at_its_place(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced whole, and its folder, before the rename; the target folder after it."""
    done: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def identity(path: Path | int) -> tuple[str, int]:
        told = os.stat(path)
        return f"{told.st_ino}", told.st_size

    def syncing(descriptor: int) -> None:
        done.append(identity(descriptor))
        fsync(descriptor)

    written: list[Path] = []
    left: list[Path] = []

    def renaming(
        source: str | Path, target: str | Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        if str(source).startswith(UNFINISHED):  # not a folder of leases
            folder = Path(f"/proc/self/fd/{src_dir_fd}") / source
            written.extend((folder, *folder.rglob("*")))
            left.extend(path for path in written if identity(path) not in done)
            done.clear()
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    whole = bench(honest)
    whole.engine._recorder._seal = Sealer(tmp_path / "evidence").seal
    record = only(whole.run())
    (place,) = (tmp_path / "evidence").glob(f"*/*/{record.run}")
    assert len(written) > len(list(place.iterdir())) > 0
    assert left == []
    assert {identity(folder)[0] for folder in (place.parent, place.parents[1], place.parents[2])} <= dict(done).keys()


def test_secrets_in_variables_are_masked(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of an allowed variable can be a secret."""
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter22@example.org")
    whole = bench(honest)
    whole.run()
    assert whole.sealed[0].environment["variables"]["TORCH_MIRROR"] == "https://[masked]@example.org"
