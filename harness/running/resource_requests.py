"""Computes the resources that trials need and that this machine has, for the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from harness.base.strictjson import JsonObject
from harness.contract import Mutant
from harness.execution.lease import Memory, other_processes
from harness.machine.health import Health
from harness.machine.host import Gpu, Host
from harness.running.plan import Plan
from harness.running.scheduler import Amounts

__all__ = ["MOST_PARALLEL", "Failure", "ResourceRequests"]

Failure = tuple[Gpu, str]
"""A GPU that is no longer used, and why."""

MOST_PARALLEL = 4
"""Maximum parallel trials on a device. More gain little and slow each other down."""
_SLOTS, _QUIET, _MEMORY, _DISK = "slots", "quiet", "memory (GiB)", "disk (GiB)"
_GIB = 2**30
_USABLE = 0.9
"""The share of memory that trials may reserve. The rest is for drivers and other processes."""


@final
class ResourceRequests:
    """The needs of a run's trials.

    A slot is a share of the CPUs. The host's resource `quiet` has as many shares as there are slots, and each GPU
    has its part of them, so no GPU is crowded beside an idle one. A trial that measures time takes all shares of its
    device, with their slots.
    """

    def __init__(self, host: Host, plans: Sequence[Plan], jobs: int | None) -> None:
        """Args:
        jobs: the number of parallel trials; None for a default of the machine.
        """
        self._gpus = {_key(gpu): gpu for plan in plans for gpu in plan.gpus}
        self._health = {key: Health(gpu) for key, gpu in self._gpus.items()}
        self._withdrawn: dict[str, str] = {}
        trials = sum(1 + sum(obstacle is None for _, obstacle in plan.mutants) for plan in plans)
        most = min(trials, MOST_PARALLEL * max(1, len(self._gpus)), host.cpu_count)
        self._slots = max(1, most) if jobs is None else jobs
        self._threads = max(1, host.cpu_count // self._slots)
        used = min(len(self._gpus), sum(bool(plan.gpus) for plan in plans))  # a claim runs on one
        self.capacity: Amounts = {
            _SLOTS: self._slots,
            _QUIET: self._slots,
            _MEMORY: _gib(host.memory_bytes, _USABLE),
            _DISK: _gib(host.disk_free_bytes, 1.0),
            **dict.fromkeys(self._gpus, -(-self._slots // max(1, used))),
            **{f"{key} {_MEMORY}": _gib(gpu.memory_bytes, _USABLE) for key, gpu in self._gpus.items()},
        }

    def ways(self, plan: Plan) -> tuple[Amounts, ...]:
        """Return the resources of a claim's trial for each working device; for every device if too few GPUs work."""
        withdrawn = self._withdrawn if self.has_enough(plan) else ()
        candidates = [gpu for gpu in plan.gpus if _key(gpu) not in withdrawn]
        others = plan.profile.requires.get("gpus", 1) - 1
        turned = [
            (gpu, (candidates[place + 1 :] + candidates[:place])[:others]) for place, gpu in enumerate(candidates)
        ]
        return tuple(self._on(plan, gpu, more) for gpu, more in turned) or (self._on(plan, None, ()),)

    def of_mutant(self, mutant: Mutant, subject: Amounts) -> Amounts:
        """Return the resources of a mutant's trial on its subject's devices.

        A mutant that states less memory has a smaller model, whose files need the same share of the disk.
        """
        gib = self.memory(subject).gib
        share = min(1.0, mutant.memory_gib / gib) if gib else 1.0
        less = {
            key: amount * share if key == _DISK or key.endswith(_MEMORY) else amount for key, amount in subject.items()
        }
        shared = {_SLOTS, _QUIET, *self._gpus}.intersection(subject) if mutant.shares else ()
        return {**less, **dict.fromkeys(shared, 1)}

    def foreseen(self, plan: Plan, amounts: Amounts, predicted: JsonObject) -> Amounts:
        """Return the resources of a trial with predicted memory. The profile's declaration outranks the prediction."""
        if "reserved" not in predicted or "memory_gib" in plan.profile.requires:
            return amounts
        return {**amounts, _memory_of(amounts): min(predicted["reserved"] / _GIB, self.memory(amounts).room_gib)}

    def has_enough(self, plan: Plan) -> bool:
        """Whether enough of a claim's GPUs work."""
        working = sum(_key(gpu) not in self._withdrawn for gpu in plan.gpus)
        return working >= plan.profile.requires.get("gpus", 1)

    def broken(self, amounts: Amounts) -> Failure | None:
        """Return the broken GPU of a trial; None if all of them work."""
        for gpu in self.gpus(amounts):
            if reason := self._withdrawn.get(_key(gpu)) or self._health[_key(gpu)].broken():
                return gpu, reason
        return None

    def crowded(self, amounts: Amounts) -> Failure | None:
        """Return the GPU of a trial on which processes without a lease leave too little memory; None for none."""
        needed = self.memory(amounts).gib
        for gpu in self.gpus(amounts):
            memory = self._health[_key(gpu)].memory_gib()
            if memory is not None and memory.free < needed:
                held = sum(process.memory_gib for process in other_processes(gpu))
                if held + needed > memory.total:
                    return gpu, f"processes without a lease hold {held:.1f} of {memory.total:.1f} GiB"
        return None

    def withdraw(self, gpu: Gpu, reason: str) -> None:
        """Remove a GPU from the available devices."""
        self._withdrawn.setdefault(_key(gpu), reason)

    def devices(self, amounts: Amounts) -> tuple[str, ...]:
        """Return the resources to lease: the GPUs of a trial, or `quiet` of the host."""
        return tuple(key for key in amounts if key in self._gpus) or (_QUIET,)

    def memory(self, amounts: Amounts) -> Memory:
        """Return the device memory of a trial."""
        name = _memory_of(amounts)
        return Memory(amounts[name], self.capacity[name])

    def gpus(self, amounts: Amounts) -> tuple[Gpu, ...]:
        """Return the GPUs of a trial. The first one is its device."""
        return tuple(self._gpus[key] for key in amounts if key in self._gpus)

    def threads(self, amounts: Amounts) -> int:
        """Return the number of CPU threads of a trial."""
        return max(1, int(amounts[_SLOTS] * self._threads))

    def _on(self, plan: Plan, gpu: Gpu | None, others: Sequence[Gpu]) -> Amounts:
        requires = plan.profile.requires
        device = _QUIET if gpu is None else _key(gpu)
        # A GPU has its part of the processors, so that trials on other GPUs do not wait for a quiet one.
        slots = self._slots // max(1, len(self._gpus)) if gpu is not None else self._slots
        memory = _MEMORY if gpu is None or gpu.unified else f"{device} {_MEMORY}"
        return {
            _SLOTS: max(1, slots) if plan.profile.exclusive else 1,
            device: self._slots if plan.profile.exclusive else 1,
            memory: requires.get("memory_gib", 0.0),
            _DISK: requires.get("disk_gib", 0.0),
            **{_key(other): self._slots if plan.profile.exclusive else 1 for other in others},
            **{f"{_key(other)} {_MEMORY}": requires.get("memory_gib", 0.0) for other in others},
        }


def _key(gpu: Gpu) -> str:
    return f"GPU {gpu.key}"


def _memory_of(amounts: Amounts) -> str:
    return next(resource for resource in amounts if resource.endswith(_MEMORY))


def _gib(size: int | None, usable: float) -> float:
    return float("inf") if size is None else usable * size / _GIB
