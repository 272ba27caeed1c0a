"""Device classes: which devices count as the same when evidence is compared.

Two GPUs are of one class where the driver gives them one name and one compute capability; processors are told apart
by their architecture alone, since no claim speaks of a particular one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

__all__ = ["DeviceClass", "hardware"]

_KINDS = {"cpu": "any CPU", "cuda": "any CUDA GPU"}


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
    def of(cls, device: Mapping[str, Any]) -> DeviceClass:
        """The class of a device as records and observations name it."""
        return cls(str(device["type"]), str(device["name"]), str(device.get("compute_capability") or ""))

    def __str__(self) -> str:
        """As people read it: CPU x86_64, or NVIDIA H200 (9.0)."""
        if self.type == "cpu":
            return f"CPU {self.name}"
        return f"{self.name} ({self.compute_capability})" if self.compute_capability else self.name

    def meets(self, target: Mapping[str, Any]) -> bool:
        """Whether it is hardware that a contract's `target` speaks of. A claim that names none is met nowhere."""
        met = (
            target.get("type", self.type) == self.type,
            target.get("device", self.name) in self.name,
            target.get("compute_capability", self.compute_capability) == self.compute_capability,
        )
        return bool(target) and all(met)


def hardware(target: Mapping[str, Any]) -> str:
    """The hardware that a contract's `target` speaks of, in words; empty where it names none."""
    capability = target.get("compute_capability")
    parts = [
        target.get("device") or _KINDS.get(target.get("type", ""), ""),
        f"compute capability {capability}" if capability else "",
    ]
    return ", ".join(filter(None, parts))
