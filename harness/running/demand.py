"""The resources that trials need, and those that this machine has, for the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from harness.base.strictjson import JsonObject
from harness.contract import Mutant
from harness.execution.lease import Memory, strangers
from harness.machine.health import Health
from harness.machine.host import Gpu, Host
from harness.running.plan import Plan
from harness.running.scheduler import Amounts

__all__ = ["MOST_PARALLEL", "Demand"]

MOST_PARALLEL = 4
"""Most parallel trials on a device. More of them gain little and make each one slow."""
_SLOTS, _QUIET, _MEMORY, _DISK = "slots", "quiet", "memory (GiB)", "disk (GiB)"
_GIB = 2**30
_USABLE = 0.9
"""The share of a memory that trials may plan with. The rest is for drivers and other processes."""


@final
class Demand:
    """The needs of a run's trials.

    A slot is a share of the processors. The quiet of the host has as many shares as there are slots, and each GPU its
    part of them, so that no GPU is crowded beside an idle one. A trial that measures time takes all shares of its
    device, and the slots that go with them.
    """

    def __init__(self, host: Host, plans: Sequence[Plan], jobs: int | None) -> None:
        """Args:
        jobs: how many trials run in parallel; None for a number that suits the machine.
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
        """The needs of a claim's trial on each device that works; on every device if all of its GPUs failed."""
        found = [gpu for gpu in plan.gpus if _key(gpu) not in self._withdrawn] or list(plan.gpus)
        others = plan.profile.requires.get("gpus", 1) - 1
        turned = [(gpu, (found[place + 1 :] + found[:place])[:others]) for place, gpu in enumerate(found)]
        return tuple(self._on(plan, gpu, more) for gpu, more in turned) or (self._on(plan, None, ()),)

    def of_mutant(self, mutant: Mutant, subject: Amounts) -> Amounts:
        """The needs of a mutant's trial on the devices of its subject, from those of the subject's trial."""
        less = {key: min(one, mutant.memory_gib) if key.endswith(_MEMORY) else one for key, one in subject.items()}
        shared = {_SLOTS, _QUIET, *self._gpus}.intersection(subject) if mutant.shares else ()
        return {**less, **dict.fromkeys(shared, 1)}

    def foreseen(self, plan: Plan, amounts: Amounts, predicted: JsonObject) -> Amounts:
        """The needs of a trial whose memory was predicted. A declaration of the profile outranks the prediction."""
        if "reserved" not in predicted or "memory_gib" in plan.profile.requires:
            return amounts
        return {**amounts, _memory_of(amounts): min(predicted["reserved"] / _GIB, self.memory(amounts).room_gib)}

    def has_another(self, plan: Plan, amounts: Amounts) -> bool:
        """Whether a claim can run on another device than that of these amounts."""
        return any(_key(gpu) not in {self.device(amounts), *self._withdrawn} for gpu in plan.gpus)

    def broken(self, amounts: Amounts) -> str:
        """Why the GPU of a trial is no longer used; empty if it works or there is none."""
        key = self.device(amounts)
        return self._withdrawn.get(key) or (self._health[key].broken() if key in self._health else "")

    def crowded(self, amounts: Amounts) -> str:
        """Why processes without a lease leave a trial too little GPU memory; empty if they leave enough."""
        key, needed = self.device(amounts), self.memory(amounts).gib
        if key not in self._health or (memory := self._health[key].memory_gib()) is None or memory.free >= needed:
            return ""
        held = sum(one.memory_gib for one in strangers(self._gpus[key]))
        total = memory.total
        return f"processes without a lease hold {held:.1f} of {total:.1f} GiB" if held + needed > total else ""

    def withdraw(self, amounts: Amounts, reason: str) -> None:
        """Take the GPU of a trial out of the pool."""
        self._withdrawn.setdefault(self.device(amounts), reason)

    def device(self, amounts: Amounts) -> str:
        """The resource that a lease is for: a GPU or the quiet of the host."""
        return next((key for key in amounts if key in self._gpus), _QUIET)

    def memory(self, amounts: Amounts) -> Memory:
        """The memory of its device that a trial uses."""
        name = _memory_of(amounts)
        return Memory(amounts[name], self.capacity[name])

    def gpu(self, amounts: Amounts) -> Gpu | None:
        """The GPU of a trial; None if it has none."""
        return self._gpus.get(self.device(amounts))

    def others(self, amounts: Amounts) -> tuple[Gpu, ...]:
        """The GPUs that a trial gets besides that one."""
        return tuple(self._gpus[key] for key in amounts if key in self._gpus)[1:]

    def threads(self, amounts: Amounts) -> int:
        """How many CPU threads a trial may use."""
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
            **{_key(one): self._slots if plan.profile.exclusive else 1 for one in others},
            **{f"{_key(one)} {_MEMORY}": requires.get("memory_gib", 0.0) for one in others},
        }


def _key(gpu: Gpu) -> str:
    return f"GPU {gpu.key}"


def _memory_of(amounts: Amounts) -> str:
    return next(one for one in amounts if one.endswith(_MEMORY))


def _gib(size: int | None, usable: float) -> float:
    return float("inf") if size is None else usable * size / _GIB
