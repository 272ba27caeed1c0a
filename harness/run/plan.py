"""How a claim is run on this machine: which profile, which device, how many trials side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.base import strictjson
from harness.base.device import Device, DeviceClass
from harness.contract import Contract, Profile
from harness.external.subject import External
from harness.machine.host import Gpu, Host
from harness.machine.requirements import shortfalls, suitable

__all__ = ["Options", "Plan", "device_of", "plan"]

_GIB = 2**30
MOST_PARALLEL = 4
"""More trials than this side by side gain little and make every one of them slow."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    profile: str = "auto"
    device: str = "auto"
    """"auto", "cpu" or "cuda:N"."""
    subject: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    mutants: bool = True
    jobs: int | None = None
    seed: int = 0
    external: External | None = None
    """Somebody else's trainer in the place of `subject`."""

    def arguments(self) -> list[str]:
        """The options of `harness run` that ask for the same again; how many trials run at once is not among them."""
        words: list[str] = []
        for name, value in (("--profile", self.profile), ("--device", self.device)):
            words += [] if value == "auto" else [name, value]
        if self.subject is not None:
            words += ["--subject", self.subject]
        changed = dict(self.parameters)
        if self.external is not None:
            words += ["--subject", self.external.spelling]
            changed |= {name: value for name, value in self.external.parameters.items() if name != "trainer"}
        for name, value in changed.items():
            words += ["-P", f"{name}={_typed(value)}"]
        if not self.mutants:
            words.append("--no-mutants")
        return [*words, "--seed", str(self.seed)] if self.seed else words


@dataclass(frozen=True)
class Plan:
    """How a claim will be run; where `obstacle` is not empty it will not be, and that is why."""

    profile: Profile
    passed_over: Mapping[str, tuple[str, ...]]
    """The profiles that were wanted rather, each with what this machine lacks for it."""
    gpu: Gpu | None
    device: Device
    parameters: Mapping[str, Any]
    parallel: int
    obstacle: str = ""
    is_reading: bool = False
    """Whether the subject's trial only reads what a run left."""
    is_asked_for: bool = False
    """Whether the command line named the profile, so that none was chosen for this machine."""

    @property
    def reason(self) -> str:
        """Why this profile, in words."""
        if self.obstacle:
            return self.obstacle
        if self.is_reading:
            return "a run that is over needs no machine"
        refused = [f"not {name}: {'; '.join(lacks)}" for name, lacks in self.passed_over.items()]
        return "; ".join(refused) or ("asked for" if self.is_asked_for else f"this machine can run {self.profile.name}")


def plan(contract: Contract, host: Host, options: Options) -> Plan:
    """Choose profile and device. Without a wish: `full` where this host meets its requirements, else `reduced`."""
    names = [name for name in ("full", "reduced") if name in contract.profiles]
    passed_over: dict[str, tuple[str, ...]] = {}
    for name in names if options.profile == "auto" else [options.profile]:
        if name not in contract.profiles:
            passed_over[name] = ("the contract has no such profile",)
            continue
        profile = contract.profiles[name]
        gpus = _gpus(profile, host, options)
        lacks = shortfalls(_needed(profile, options), host)
        if options.external is not None and options.external.is_over and not lacks:
            return replace(_plan(contract, profile, passed_over, None, host, options), is_reading=True)
        wants_gpu = profile.requires["device"] == "cuda" or options.device.startswith("cuda")
        if not lacks and wants_gpu and not gpus:
            lacks = [f"--device {options.device} leaves it no GPU that it could use"]
        if not lacks and gpus:
            lacks = shortfalls({**profile.requires, "device": "cuda"}, host)
        if not lacks:
            return _plan(contract, profile, passed_over, gpus[0] if gpus else None, host, options)
        passed_over[name] = tuple(lacks)
    obstacle = "; ".join(f"{name}: {'; '.join(lacks)}" for name, lacks in passed_over.items())
    if (remedy := _remedy(contract, host, options)) is not None:
        obstacle += f"; {remedy} would run here"
    last = contract.profiles.get(list(passed_over)[-1], contract.profiles[names[0]])
    parameters = {**last.parameters, **options.parameters}
    return Plan(last, passed_over, None, device_of(None, host), parameters, 1, obstacle)


def option_for_target(contract: Contract, host: Host) -> str:
    """The `--device` with which the full profile runs on hardware that the claim speaks of, where `auto` takes other.

    Without a wish a profile that any device can run is run on the CPU; a claim that speaks of a GPU is PARTIAL then,
    also on a machine that has that GPU. Empty where there is nothing to gain.
    """
    if DeviceClass.of(plan(contract, host, Options()).device).meets(contract.target):
        return ""
    there = [gpu for gpu in host.gpus if DeviceClass.of(device_of(gpu, host)).meets(contract.target)]
    options = [Options(profile="full", device=f"cuda:{gpu.index}") for gpu in there]
    return next((f"--device {one.device}" for one in options if not plan(contract, host, one).obstacle), "")


def _needed(profile: Profile, options: Options) -> Mapping[str, Any]:
    """What a profile requires of this machine: to read what a run left, nothing but the falsifier's modules."""
    if options.external is None or not options.external.is_over:
        return profile.requires
    return {"device": "any", "modules": profile.requires.get("modules", [])}


def _remedy(contract: Contract, host: Host, options: Options) -> str | None:
    """The options of the command line with which the claim would run here after all; None where there are none."""
    for device in (options.device, "auto"):
        easier = replace(options, profile="auto", device=device)
        if easier != options and not (course := plan(contract, host, easier)).obstacle:
            found = "cpu" if course.gpu is None else f"cuda:{course.gpu.index}"
            return f"--profile {course.profile.name}{'' if device == options.device else f' --device {found}'}"
    return None


def device_of(gpu: Gpu | None, host: Host) -> Device:
    """The device of a trial that has this GPU, or that has none."""
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


def _gpus(profile: Profile, host: Host, options: Options) -> tuple[Gpu, ...]:
    if options.device == "cpu" or (options.device == "auto" and profile.requires["device"] != "cuda"):
        return ()
    found = suitable({**profile.requires, "device": "cuda"}, host)
    if options.device == "auto":
        return found
    wanted = int(options.device.partition(":")[2] or 0)
    return tuple(gpu for gpu in found if gpu.index == wanted)


def _plan(
    contract: Contract,
    profile: Profile,
    passed_over: Mapping[str, tuple[str, ...]],
    gpu: Gpu | None,
    host: Host,
    options: Options,
) -> Plan:
    trials = 1 + (len(contract.mutants) if options.mutants else 0)
    parallel = 1 if contract.exclusive else min(trials, MOST_PARALLEL, host.cpu_count)
    memory = gpu.memory_bytes if gpu is not None else host.memory_bytes
    if memory and "memory_gib" in profile.requires:
        parallel = min(parallel, int(0.9 * memory / (profile.requires["memory_gib"] * _GIB)))
    if options.jobs is not None and not contract.exclusive:
        parallel = options.jobs
    parameters = {**profile.parameters, **options.parameters}
    return Plan(
        profile, passed_over, gpu, device_of(gpu, host), parameters, max(1, parallel),
        is_asked_for=options.profile != "auto",
    )  # fmt: skip


def _typed(value: Any) -> str:
    """A parameter as one types it: a text without quotes, unless it would be read as something else."""
    if isinstance(value, str):
        try:
            strictjson.loads(value)
        except strictjson.JsonError:
            return value
    return strictjson.dumps(value)
