"""The plan of a claim on this machine: profile, device, and the mutants that can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from harness.base.device import Device, DeviceClass
from harness.base.plugins import plugins
from harness.base.redaction import redactor
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract, Mutant, Profile
from harness.contract.other_subject import Subject
from harness.contract.reasons import Reason, ReasonCode
from harness.execution.executor import TrialRequest
from harness.execution.lease import CPU
from harness.machine.host import Gpu, Host
from harness.machine.requirements import Fit, fit, shortfalls
from harness.running.request import RunRequest

__all__ = ["Plan", "device_of", "make_plan", "option_for_target", "with_subject"]


@dataclass(frozen=True)
class Plan:
    """The decisions on how a claim runs on this machine."""

    request: RunRequest
    contract: Contract
    """The contract with the requested subject."""
    profile: Profile
    passed_over: Mapping[str, tuple[str, ...]]
    """Profiles that this machine cannot run, each with the reasons."""
    gpu: Gpu | None
    """The GPU of the trials; None for the CPU."""
    gpus: tuple[Gpu, ...]
    """The GPUs on which the claim can run, including `gpu`."""
    others: tuple[Gpu, ...]
    """Further GPUs of the trials, if the profile requires several."""
    device: Device
    mutants: tuple[tuple[Mutant, Reason | None], ...]
    """All mutants, each with the reason why it cannot run; None if it can."""
    obstacle: str = ""
    """Why the claim cannot run; empty if it can."""
    pace: float = 1.0
    """The factor of the contract's limit, because this GPU is slower than the reference."""

    @property
    def seconds(self) -> float:
        """The time limit of a trial, at least that of the contract."""
        return self.profile.seconds * self.pace

    @property
    def devices(self) -> dict[str, Gpu | str]:
        """The devices to lease, by key. The keys are sorted, which prevents deadlocks between processes."""
        gpus = (self.gpu, *self.others) if self.gpu else ()
        return {gpu.key: gpu for gpu in sorted(gpus, key=lambda gpu: gpu.key)} or {CPU: CPU}

    @property
    def parameters(self) -> JsonObject:
        """The parameters of every trial."""
        return {**self.profile.parameters, **self.request.parameters}

    def trial(self, threads: int = 1) -> TrialRequest:
        """Return the request of the subject's trial."""
        subject = self.request.subject
        return TrialRequest(
            contract=self.contract,
            subject=self.contract.subject,
            profile=self.profile.name,
            parameters={**self.parameters, **(subject.parameters if subject is not None else {})},
            device=self.device,
            seed=self.request.seed,
            seconds=(subject and subject.seconds) or self.seconds,
            threads=threads,
            gpu=self.gpu,
            others=self.others,
            search_end=self.request.search_end,
        )

    def mutant_trial(self, mutant: Mutant, threads: int = 1) -> TrialRequest:
        """Return the request of a mutant's trial."""
        return replace(
            self.trial(threads),
            subject=mutant.subject,
            patches=mutant.patches,
            parameters={**self.parameters, **mutant.parameters},
            seconds=self.trial(threads).seconds if mutant.of_any_subject else self.seconds,
            search_end=SearchEnd.TRIED,
            until_violated=mutant.violates,
        )

    @property
    def reason(self) -> str:
        """Why this profile was chosen, as text."""
        if self.obstacle:
            return self.obstacle
        if self.request.is_reading:
            return "a run that is over needs no machine"
        refused = [f"not {name}: {'; '.join(lacks)}" for name, lacks in self.passed_over.items()]
        is_asked_for = self.request.profile != "auto"
        return "; ".join(refused) or ("asked for" if is_asked_for else f"this machine can run {self.profile.name}")


def make_plan(contract: Contract, host: Host, request: RunRequest) -> Plan:
    """Choose profile and device. If none is asked for: `full` if this host meets its requirements, else `reduced`."""
    request = request.of(contract)
    contract = with_subject(contract, request)
    names = [name for name in ("full", "reduced") if name in contract.profiles]
    passed_over: dict[str, tuple[str, ...]] = {}
    for name in names if request.profile == "auto" else [request.profile]:
        if name not in contract.profiles:
            passed_over[name] = ("the contract has no such profile",)
            continue
        fitted = _fit(contract.profiles[name], host, request)
        if not fitted.lacks:
            return _plan(contract, contract.profiles[name], passed_over, fitted.gpus, host, request)
        passed_over[name] = fitted.lacks
    obstacle = "; ".join(f"{name}: {'; '.join(lacks)}" for name, lacks in passed_over.items())
    if (remedy := _remedy(contract, host, request)) is not None:
        obstacle += f"; {remedy} would run here"
    last = contract.profiles.get(list(passed_over)[-1], contract.profiles[names[0]])
    return replace(_plan(contract, last, passed_over, (), host, request), obstacle=obstacle)


def with_subject(contract: Contract, request: RunRequest) -> Contract:
    """The contract with the requested subject."""
    request = request.of(contract)
    if (other := request.subject) is None:
        other = Subject(contract.subject)
    mutants = tuple(mutant.of(other.entry_point, other.parameters) for mutant in contract.mutants)
    return replace(contract, subject=other.entry_point, mutants=mutants)


def _fit(profile: Profile, host: Host, request: RunRequest) -> Fit:
    """Return the fit for the subject. To read a finished run, a machine needs only the falsifier's modules."""
    if request.is_reading:
        return fit({"device": "any", "modules": profile.requires.get("modules", [])}, host)
    return fit(profile.requires, host, request.device)


def option_for_target(contract: Contract, host: Host) -> str:
    """Return the `--device` option that runs the full profile on the target, if `auto` does not; else empty.

    By default, a profile that any device can run uses the CPU. If the claim names a GPU, it is then only PARTIAL, also
    on a machine with that GPU.
    """
    if DeviceClass.of(make_plan(contract, host, RunRequest()).device).meets(contract.target):
        return ""
    there = [gpu for gpu in host.gpus if DeviceClass.of(device_of(gpu, host)).meets(contract.target)]
    requests = [RunRequest(profile="full", device=f"cuda:{gpu.index}") for gpu in there]
    return next(
        (f"--device {candidate.device}" for candidate in requests if not make_plan(contract, host, candidate).obstacle),
        "",
    )


def _remedy(contract: Contract, host: Host, request: RunRequest) -> str | None:
    """Return the command-line options with which the claim would run here; None if there are none."""
    for device in (request.device, "auto"):
        easier = replace(request, profile="auto", device=device)
        if easier != request and not (easy := make_plan(contract, host, easier)).obstacle:
            chosen_device = "cpu" if easy.gpu is None else f"cuda:{easy.gpu.index}"
            return f"--profile {easy.profile.name}{'' if device == request.device else f' --device {chosen_device}'}"
    return None


def device_of(gpu: Gpu | None, host: Host) -> Device:
    """Return the device of a trial with this GPU, or without one."""
    if gpu is None:
        return Device("cpu", host.machine, memory_bytes=host.memory_bytes, memory_source=host.memory_source)
    return Device(
        type="cuda",
        name=gpu.name,
        compute_capability=gpu.compute_capability,
        memory_bytes=gpu.memory_bytes,
        memory_source=gpu.memory_source,
        unified=gpu.unified,
        uuid=gpu.uuid,
    )


def _plan(
    contract: Contract,
    profile: Profile,
    passed_over: Mapping[str, tuple[str, ...]],
    gpus: tuple[Gpu, ...],
    host: Host,
    request: RunRequest,
) -> Plan:
    aimed = tuple(gpu for gpu in gpus if DeviceClass.of(device_of(gpu, host)).meets(contract.target))
    if len(aimed) >= profile.requires.get("gpus", 1):  # elsewhere, the claim would be PARTIAL
        gpus = aimed
    gpu, others = (gpus[0] if gpus else None), gpus[1 : profile.requires.get("gpus", 1)]
    obstacles = [
        (mutant, _mutant_obstacle(mutant, contract, profile, gpu, host, request)) for mutant in contract.mutants
    ]
    return Plan(
        request,
        contract,
        profile,
        passed_over,
        gpu,
        gpus,
        others,
        device_of(gpu, host),
        tuple(obstacles),
        pace=1.0 if gpu is None or profile.limit_is_claimed else max([1.0, *(pace(gpu.name) for pace in _paces())]),
    )


@cache
def _paces() -> list[Callable[[str], float]]:
    """Load the functions that return a GPU's slowdown relative to the reference, by its name."""
    return [plugin.load() for plugin in plugins("harness.pace").values()]


def _mutant_obstacle(
    mutant: Mutant, contract: Contract, profile: Profile, gpu: Gpu | None, host: Host, request: RunRequest
) -> Reason | None:
    """Return why a mutant cannot run; None if it can."""
    if not request.mutants:
        return Reason(ReasonCode.SKIPPED)
    lacks: Sequence[str] = shortfalls(mutant.requires, host)
    if request.is_reading and not lacks:
        lacks = fit(profile.requires, host).lacks  # a mutant runs here, also if the subject's run is finished
    if mutant.requires.get("device") == "cuda" and gpu is None and not lacks:
        lacks = ["needs a CUDA GPU; this run is on the CPU"]
    if lacks:
        return Reason(ReasonCode.REQUIREMENT, text=redactor().mask("; ".join(lacks)))
    unseen = tuple(clause for clause in mutant.violates if clause in contract.unjudged(profile.name))
    return Reason(ReasonCode.NOT_JUDGED, profile.name, clauses=unseen) if unseen else None
