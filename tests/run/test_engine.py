"""The engine with an executor that only pretends: settlements, races, failures and interruptions."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from harness.base.vocabulary import Fate, Phase, Verdict
from harness.contract import Contract, Mutant
from harness.contract.project import Project
from harness.evidence.bundle_layout import UNFINISHED
from harness.evidence.seal import ClaimResult, Sealer
from harness.execution.executor import StepListener, TrialRequest, TrialResult
from harness.execution.lease import CPU, LeaseUnavailable, lease
from harness.execution.logs import Log
from harness.execution.messages import Imports
from harness.execution.steps import Steps
from harness.judging.observation import Ending, EndingKind, Observation
from harness.judging.record import Record
from harness.machine.host import Gpu, probe
from harness.machine.telemetry import COLUMNS, DriverResidency, Telemetry
from harness.run import events
from harness.run.engine import Engine
from harness.run.interruption import Interruption
from harness.run.request import RunRequest
from tests.contracts import contract_of, document, healthy

HEALTHY, BROKEN = healthy(), healthy(returned=2)
Behaviour = Callable[[TrialRequest], Mapping[str, Any] | Ending]


def ctrl_c() -> None:
    """What a user does at a terminal."""
    os.kill(os.getpid(), signal.SIGINT)


@dataclass
class Pretender:
    """An executor whose trials measure what `behave` says."""

    behave: Behaviour
    importing: Callable[[], None] = lambda: None
    interrupted: threading.Event = field(default_factory=threading.Event)
    started: list[str] = field(default_factory=list)
    closed: bool = False

    def __enter__(self) -> Pretender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.closed = True

    def imports(self) -> Imports:
        self.importing()
        return Imports({}, {"demo.py": "0" * 64})

    def interrupt(self) -> None:
        self.interrupted.set()

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        self.started.append(request.subject)
        said = self.behave(request)
        measured, ending = ({}, said) if isinstance(said, Ending) else (said, Ending(EndingKind.COMPLETED))
        observation = Observation(
            request.subject,
            request.profile,
            request.parameters,
            request.device,
            measured,
            {"device": "cpu", "steps": request.parameters["steps"]},
            ending=ending,
            seed=request.seed,
        )
        silent = Telemetry(COLUMNS, (), {}, DriverResidency(None, None, "pretended"))
        empty = Log("", 0, sha256(b"").hexdigest())
        return TrialResult(observation, Steps(), silent, empty, empty, None, 0.0)


@dataclass
class Bench:
    """An engine with everything around it."""

    engine: Engine
    contract: Contract
    executor: Pretender
    heard: list[events.Event]
    sealed: list[ClaimResult]

    def run(self, *contracts: Contract, **options: Any) -> events.RunFinished:
        """Run the claim, or others."""
        return self.engine.run(RunRequest(contracts or (self.contract,), **options))


@pytest.fixture
def bench(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """What makes a bench of a behaviour."""
    monkeypatch.setenv("HARNESS_LEASE_DIR", str(tmp_path / "leases"))

    def make(behave: Behaviour, sealing: Callable[[], None] = lambda: None, **executor: Any) -> Bench:
        pretender, heard, sealed = Pretender(behave, **executor), list[events.Event](), list[ClaimResult]()

        def seal(result: ClaimResult) -> Path:
            sealing()
            sealed.append(result)
            return tmp_path / "bundle"

        def factory(contract: Contract, gpu: Gpu | None) -> Pretender:
            return pretender

        engine = Engine(project, probe(project.root), factory, seal, heard.append, "harness run")
        return Bench(engine, project.contract("F-DEMO-SORT-001"), pretender, heard, sealed)

    return make


def honest(request: TrialRequest) -> Mapping[str, Any]:
    """The subject is healthy, mutants are not."""
    return HEALTHY if request.subject.endswith(":Sorter") else BROKEN


def only(finished: events.RunFinished) -> Record:
    """The record of the only claim."""
    (record,) = finished.records
    return record


def test_a_claim_that_holds(bench: Callable[..., Bench]) -> None:
    """PASS, proven, sealed, and everything closed."""
    whole = bench(honest)
    record = only(whole.run())
    assert (record.verdict, record.proven, record.mutants[0].fate) == (Verdict.PASS, True, Fate.KILLED)
    assert whole.executor.closed
    assert [result.record for result in whole.sealed] == [record]
    assert isinstance(whole.heard[-1], events.RunFinished)


def test_an_executor_that_raises_loses_one_trial(bench: Callable[..., Bench]) -> None:
    """A defect of ours in a mutant's trial leaves evidence, and no PASS."""

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
    """A full or forbidden temporary folder is the machine's, and is sealed as such."""
    whole = bench(honest)

    def refuse(contract: Contract, gpu: Gpu | None) -> Pretender:
        raise error

    whole.engine._executor = refuse
    record = only(whole.run())
    assert record.verdict is Verdict.NOT_MEASURED
    assert "trials cannot be started here" in record.reason.root.text
    assert record.mutants[0].fate is Fate.NOT_RUN


@pytest.mark.parametrize(
    ("subject", "verdict"), [(HEALTHY, Verdict.NOT_MEASURED), (BROKEN, Verdict.FAIL)], ids=["healthy", "broken"]
)
def test_a_verdict_without_evidence(bench: Callable[..., Bench], subject: Mapping[str, Any], verdict: Verdict) -> None:
    """Where nothing can be sealed, a PASS is none, and a FAIL remains one."""

    def full() -> None:
        raise OSError(28, "No space left on device")

    record = only(bench(lambda request: subject if request.subject.endswith(":Sorter") else BROKEN, full).run())
    assert (record.verdict, record.proven) == (verdict, False)


def test_a_device_that_is_never_free(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder's name is in the reason; nothing ran."""

    def never(*arguments: Any, **named: Any) -> Any:
        raise LeaseUnavailable("held by F-OTHER-001")

    monkeypatch.setattr("harness.run.engine.lease", never)
    whole = bench(honest)
    record = only(whole.run())
    assert (record.verdict, record.reason.root.text.endswith("held by F-OTHER-001")) == (Verdict.NOT_MEASURED, True)
    assert whole.executor.started == []


def test_hundreds_of_mutants(bench: Callable[..., Bench]) -> None:
    """All are run, a few at a time, and listed in the contract's order, whichever ends first."""
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
    """While its trials run, no other claim gets a lease of the device; other claims share it."""
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
    """What the command line changes reaches every trial; only a mutant's own parameters differ."""
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
    """Every file is synced with its whole content, and its folder, before the rename; the place's folder after it."""
    done: list[tuple[str, int]] = []
    fsync, rename = os.fsync, Path.rename

    def identity(path: Path | int) -> tuple[str, int]:
        told = os.stat(path)
        return f"{told.st_ino}", told.st_size

    def syncing(descriptor: int) -> None:
        done.append(identity(descriptor))
        fsync(descriptor)

    left: list[Path] = []

    def renaming(self: Path, target: Path) -> Path:
        if self.name.startswith(UNFINISHED):  # not a folder of leases
            left.extend(path for path in (self, *self.rglob("*")) if identity(path) not in done)
            done.clear()
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    whole = bench(honest)
    whole.engine._seal = Sealer(tmp_path / "evidence").seal
    record = only(whole.run())
    (place,) = (tmp_path / "evidence").glob(f"*/*/{record.run}")
    assert left == []
    assert identity(place.parent)[0] in dict(done)


def hanging(bench: Bench) -> Behaviour:
    """Trials that run until they are interrupted."""

    def behave(request: TrialRequest) -> Ending:
        assert bench.executor.interrupted.wait(10)
        return Ending(EndingKind.INTERRUPTED, Phase.SUBJECT, "the run was interrupted")

    return behave


def test_ctrl_c_while_trials_run(bench: Callable[..., Bench]) -> None:
    """What runs is ended, what waits is not started, and the evidence is sealed."""
    whole = bench(honest)
    whole.executor.behave = hanging(whole)
    threading.Timer(0.3, ctrl_c).start()
    finished = whole.run(jobs=1)
    assert finished.interrupted
    record = only(finished)
    assert record.verdict is Verdict.NOT_MEASURED
    assert {mutant.fate for mutant in record.mutants} == {Fate.INTERRUPTED}
    assert len(whole.executor.started) == 1
    assert len(whole.sealed) == 1


def test_ctrl_c_as_the_last_trial_that_runs_ends(bench: Callable[..., Bench]) -> None:
    """All that ran came out well, and it is no PASS: a mutant that waited was not run, which a record tells."""
    whole = bench(honest)

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if request.subject.endswith(":Sorter"):
            return HEALTHY
        ctrl_c()
        assert whole.executor.interrupted.wait(10)
        return BROKEN

    whole.executor.behave = behave
    (mutant,) = whole.contract.mutants
    record = only(whole.run(replace(whole.contract, mutants=(mutant, replace(mutant, id="waits"))), jobs=1))
    assert [mutant.fate for mutant in record.mutants] == [Fate.KILLED, Fate.INTERRUPTED]
    assert (record.verdict, record.proven) == (Verdict.NOT_MEASURED, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_sealing(bench: Callable[..., Bench], number: signal.Signals) -> None:
    """The bundle is finished, the next claim is not begun, and the caller's handlers are back."""
    before = signal.getsignal(number)
    whole = bench(honest, lambda: os.kill(os.getpid(), number))
    finished = whole.run(whole.contract, whole.contract)
    assert finished.interrupted
    assert only(finished).verdict is Verdict.PASS
    assert len(whole.sealed) == 1
    assert signal.getsignal(number) is before


def test_ctrl_c_while_importing(bench: Callable[..., Bench]) -> None:
    """Nothing was measured, so nothing is sealed; the run ends at once and says so."""

    def importing() -> None:
        ctrl_c()
        time.sleep(10)

    whole = bench(honest, importing=importing)
    began = time.monotonic()
    finished = whole.run()
    assert time.monotonic() - began < 5
    assert (finished.interrupted, finished.records, whole.sealed) == (True, (), [])
    assert whole.executor.closed


def test_ctrl_c_while_waiting_for_the_device(bench: Callable[..., Bench]) -> None:
    """Ctrl-C ends a wait of ten minutes, and the event names the holder."""
    whole = bench(honest)

    def listen(event: events.Event) -> None:
        whole.heard.append(event)
        if isinstance(event, events.ClaimWaiting):
            ctrl_c()

    whole.engine._emit = listen
    began = time.monotonic()
    with lease(CPU, mode="exclusive", holder="F-OTHER-001", wait_seconds=0):
        finished = whole.run()
    assert time.monotonic() - began < 30
    assert (finished.interrupted, finished.records, whole.sealed) == (True, (), [])
    (waited,) = (event for event in whole.heard if isinstance(event, events.ClaimWaiting))
    assert finished.awaited == waited.holders[0]
    assert finished.awaited.startswith("F-OTHER-001 (pid ")
    assert whole.executor.started == []
    assert whole.executor.closed


def test_the_third_ctrl_c_is_heeded_at_once() -> None:
    """The third signal interrupts at any point."""
    with Interruption() as interruption:
        ctrl_c()
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert interruption.requested


def test_ignored_signals_stay_ignored() -> None:
    """A run under nohup survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
        assert not interruption.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_secrets_in_variables_are_masked(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of an allowed variable can be a secret."""
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter22@example.org")
    whole = bench(honest)
    whole.run()
    assert whole.sealed[0].environment["variables"]["TORCH_MIRROR"] == "https://[masked]@example.org"
