"""Devices and device classes. Evidence from devices of one class is comparable.

GPUs of one class have the same name and compute capability, according to the driver. CPUs of one class have the same
architecture, because no claim is about a particular CPU.
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
    """A substring of the GPU's name."""
    compute_capability: str


@final
@dataclass(frozen=True, slots=True)
class Device(JsonDataclass):
    """The device of a trial, as reported by driver and system. Unknown values are None."""

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
    """The source of `memory_bytes`, or why it could not be read."""
    unified: bool | None = None
    """Whether the GPU has unified memory; None for a CPU."""
    uuid: str | None = None
    """The GPU's unique id; None for a CPU."""

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.type == "cuda"


@final
@dataclass(frozen=True, order=True, slots=True)
class DeviceClass:
    """The devices that share name and compute capability."""

    type: str
    """"cpu" or "cuda"."""
    name: str
    """The GPU's name as the driver has it; of a CPU the architecture, such as "x86_64"."""
    compute_capability: str = ""
    """Such as "9.0"; empty for a CPU, and if unknown."""

    @classmethod
    def of(cls, device: Device) -> DeviceClass:
        """Return the class of a device."""
        return cls(device.type, device.name, device.compute_capability or "")

    def __str__(self) -> str:
        """Return the name for reports: CPU x86_64, or NVIDIA H200 (9.0)."""
        if self.type == "cpu":
            return f"CPU {self.name}"
        return f"{self.name} ({self.compute_capability})" if self.compute_capability else self.name

    def meets(self, target: Target) -> bool:
        """Whether the class matches a contract's `target`. No class matches an empty target."""
        met = (
            target.get("type", self.type) == self.type,
            target.get("device", self.name) in self.name,
            target.get("compute_capability", self.compute_capability) == self.compute_capability,
        )
        return bool(target) and all(met)


def hardware(target: Target) -> str:
    """Describe the hardware of a contract's `target`; empty for an empty target."""
    capability = target.get("compute_capability")
    parts = [
        target.get("device") or _KINDS.get(target.get("type", ""), ""),
        f"compute capability {capability}" if capability else "",
    ]
    return ", ".join(filter(None, parts))
