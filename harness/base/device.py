"""Devices, and device classes: which devices count as the same when evidence is compared.

Two GPUs are of one class if the driver gives them one name and one compute capability. Processors differ only by their
architecture, because no claim is about one particular processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypedDict, final

from harness.base.json_dataclass import JsonDataclass

__all__ = ["Device", "DeviceClass", "Target", "hardware"]

_KINDS = {"cpu": "any CPU", "cuda": "any CUDA GPU"}


class Target(TypedDict, total=False):
    """The hardware that a claim speaks of; empty if it names none."""

    type: str
    """"cpu" or "cuda"."""
    device: str
    """A part of the GPU's name."""
    compute_capability: str


@final
@dataclass(frozen=True, slots=True)
class Device(JsonDataclass):
    """The device of a trial, as the driver and the system describe it. What could not be read is None."""

    LEFT_OUT: ClassVar = (None,)

    type: str
    """"cpu" or "cuda"."""
    name: str
    """The GPU's name as the driver has it; of a CPU the architecture, such as "x86_64"."""
    compute_capability: str | None = None
    """Such as "9.0"; None for a CPU."""
    memory_bytes: int | None = None
    """The GPU's memory; for a CPU, the system's."""
    memory_source: str | None = None
    """Where `memory_bytes` was read, or why it could not be."""
    unified: bool | None = None
    """Whether the GPU shares the memory of the system; None for a CPU."""
    uuid: str | None = None
    """Names this one GPU; None for a CPU."""

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.type == "cuda"


@final
@dataclass(frozen=True, order=True, slots=True)
class DeviceClass:
    """A kind of device that evidence speaks of."""

    type: str
    """"cpu" or "cuda"."""
    name: str
    """The GPU's name as the driver has it; of a CPU the architecture, such as "x86_64"."""
    compute_capability: str = ""
    """Such as "9.0"; empty for a CPU, and where it could not be read."""

    @classmethod
    def of(cls, device: Device) -> DeviceClass:
        """The class of a device."""
        return cls(device.type, device.name, device.compute_capability or "")

    def __str__(self) -> str:
        """The name in reports: CPU x86_64, or NVIDIA H200 (9.0)."""
        if self.type == "cpu":
            return f"CPU {self.name}"
        return f"{self.name} ({self.compute_capability})" if self.compute_capability else self.name

    def meets(self, target: Target) -> bool:
        """Whether it is hardware that a contract's `target` names. If the target names none, no device meets it."""
        met = (
            target.get("type", self.type) == self.type,
            target.get("device", self.name) in self.name,
            target.get("compute_capability", self.compute_capability) == self.compute_capability,
        )
        return bool(target) and all(met)


def hardware(target: Target) -> str:
    """The hardware that a contract's `target` speaks of, in words; empty where it names none."""
    capability = target.get("compute_capability")
    parts = [
        target.get("device") or _KINDS.get(target.get("type", ""), ""),
        f"compute capability {capability}" if capability else "",
    ]
    return ", ".join(filter(None, parts))
