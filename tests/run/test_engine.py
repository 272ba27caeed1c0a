"""The engine with a simulated executor: results, races and failures."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Fate, Verdict
from harness.contract import Mutant
from harness.contract.project import Project
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import UNFINISHED
from harness.evidence.rejudge import rejudge
from harness.evidence.seal import Sealer
from harness.execution.executor import TrialRequest
from harness.execution.lease import CPU, LeaseUnavailable, lease
from harness.judging.observation import Observation
from harness.machine.host import Gpu
from harness.running import events
from tests.contracts import contract_of, document, timed
from tests.run.pretending import BROKEN, HEALTHY, Bench, Pretender, Pretenders, honest, only


def test_a_claim_that_holds(bench: Callable[..., Bench]) -> None:
    """The claim is PASS, proven and sealed, and every resource is closed before the next claim needs one."""
    whole = bench(honest)

    def listen(event: events.Event) -> None:
        whole.heard.append(event)
        assert whole.executor.closed == isinstance(event, (events.ClaimFinished, events.RunFinished))

    whole.engine._emit = listen
    record = only(whole.run())
    assert (record.verdict, record.proven, record.mutants[0].fate) == (Verdict.PASS, True, Fate.KILLED)
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


def test_a_scaffold_leaves_no_bundle(bench: Callable[..., Bench]) -> None:
    """A scaffold runs and is judged, but leaves no bundle."""
    whole = bench(honest)
    whole.run(replace(whole.contract, document={**whole.contract.document, "claim": "TODO: the claim"}))
    (done,) = [event for event in whole.heard if isinstance(event, events.ClaimFinished)]
    assert (done.record.verdict, done.bundle, whole.sealed) == (Verdict.PASS, None, [])
    assert "/claim" in done.unsealed


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "no")])
def test_an_executor_that_cannot_start(project: Project, bench: Callable[..., Bench], error: OSError) -> None:
    """A full or forbidden temporary folder is the machine's fault. The result is sealed."""
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


def test_evidence_that_cannot_be_written_is_kept_elsewhere(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is NOT_MEASURED and names a temporary folder. The bundle there has what was measured."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    whole = bench(honest)
    whole.engine._recorder._seal = Sealer(tmp_path / "file").seal
    record = only(whole.run())
    (done,) = [event for event in whole.heard if isinstance(event, events.ClaimFinished)]
    assert (record.verdict, record.proven) == (Verdict.NOT_MEASURED, False)
    assert done.bundle is not None
    assert str(done.bundle) in record.reason.root.text
    assert Bundle(done.bundle).record.verdict is Verdict.PASS


def test_a_device_that_is_never_free(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the holder, and no trial ran."""

    def never(*arguments: Any, **named: Any) -> Any:
        raise LeaseUnavailable("held by F-OTHER-001")

    monkeypatch.setattr("harness.running.claim_run.lease", never)
    whole = bench(honest)
    record = only(whole.run())
    assert (record.verdict, record.reason.root.text.endswith("held by F-OTHER-001")) == (Verdict.NOT_MEASURED, True)
    assert whole.executor.started == []


def test_thirty_mutants(bench: Callable[..., Bench]) -> None:
    """All mutants run, a few at a time. The record lists them in the contract's order."""
    whole = bench(honest)
    mutants = tuple(
        Mutant(f"m-{number:03}", "falsifiers.demo.sorting:Forgetful", ("nothing-lost",), "", {}, {})
        for number in range(30)
    )
    record = only(whole.run(replace(whole.contract, mutants=mutants)))
    assert record.verdict is Verdict.PASS
    assert [mutant.id for mutant in record.mutants] == [mutant.id for mutant in mutants]


@pytest.mark.parametrize(("mode", "is_free"), [("exclusive", False), ("shared", True)])
def test_only_a_claim_that_measures_time_has_the_device_alone(
    bench: Callable[..., Bench], mode: str, is_free: bool
) -> None:
    """No other claim gets a lease of that device meanwhile. Other claims share a device."""
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


def test_a_mutant_can_share_the_device_of_a_claim_that_measures_time(bench: Callable[..., Bench]) -> None:
    """The subject has the device alone.

    Two mutants that state a shared lease run at once, and the third one is alone again.
    """
    free: dict[str, bool] = {}
    both = threading.Barrier(2)

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        try:
            with lease(CPU, mode="shared", holder="F-OTHER-001", wait_seconds=0):
                free[str(request.parameters["name"])] = True
        except LeaseUnavailable:
            free[str(request.parameters["name"])] = False
        if request.parameters["name"] in ("one", "other"):
            both.wait(60)
        return honest(request)

    whole = bench(behave)
    (mutant,) = whole.contract.mutants
    mutants = tuple(
        replace(mutant, id=name, parameters={"name": name}, shares=name != "timed")
        for name in ("one", "other", "timed")
    )
    whole.run(replace(timed(whole.contract), mutants=mutants), parameters={"name": "subject"}, jobs=2)
    assert free == {"subject": False, "one": True, "other": True, "timed": False}


def test_a_mutant_that_uses_less_memory_leaves_room_for_others(bench: Callable[..., Bench]) -> None:
    """Two small mutants run at once, although the profile fills the GPU."""
    whole = bench(honest)
    gpu = Gpu(0, "GPU-0", "NVIDIA Test", "9.0", 80 << 30, "NVML", False)
    whole.engine._host = replace(whole.engine._host, gpus=(gpu,), cpu_count=8, disk_free_bytes=70 << 30)
    both = threading.Barrier(2)

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if not request.subject.endswith(":Sorter"):
            both.wait(60)
        return honest(request)

    whole.executor.behave = behave
    (mutant,) = whole.contract.mutants
    on_gpu = replace(whole.contract.profiles["reduced"], requires={"device": "cuda", "memory_gib": 60, "disk_gib": 60})
    mutants = tuple(replace(mutant, id=name, memory_gib=20) for name in ("one", "other"))
    small = replace(whole.contract, profiles={"reduced": on_gpu}, mutants=mutants)
    record = only(whole.run(small, profile="reduced", jobs=2))
    assert [mutant.fate for mutant in record.mutants] == [Fate.KILLED] * 2


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
    assert [(request.seed, request.parameters) for request in requests] == [
        (7, {"steps": 5}),
        (7, {"steps": 5}),
        (7, {"steps": 9}),
    ]
    ran = whole.sealed[0].mutants
    assert {trial.observation.seed for trial in ran.values()} == {7}


def test_a_bundle_is_on_the_disk_before_it_is_at_its_place(
    bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced whole, and its folder, before the rename; the target folder after it."""
    done: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def identity(path: Path | int) -> tuple[str, int]:
        stat = os.stat(path)
        return f"{stat.st_ino}", stat.st_size

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
    """The value of a variable that trials get can be a secret."""
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter22@example.org")
    whole = bench(honest)
    whole.run()
    assert whole.sealed[0].environment["variables"]["TORCH_MIRROR"] == "https://[masked]@example.org"


@pytest.mark.parametrize(("options", "fate"), [({}, Fate.NOT_RUN), ({"all_mutants": True}, Fate.KILLED)])
def test_the_mutants_of_a_subject_that_fails(bench: Callable[..., Bench], options: dict[str, bool], fate: Fate) -> None:
    """No verdict depends on these mutants, so they run only with --all-mutants."""
    whole = bench(lambda request: BROKEN)
    record = only(whole.run(**options))
    assert (record.verdict, [mutant.fate for mutant in record.mutants]) == (Verdict.FAIL, [fate])
    assert rejudge(record, whole.contract, *_observed(whole)).findings == ()


def _observed(whole: Bench) -> tuple[Observation, dict[str, Observation]]:
    (result,) = whole.sealed
    return result.subject.observation, {name: mutant.observation for name, mutant in result.mutants.items()}
