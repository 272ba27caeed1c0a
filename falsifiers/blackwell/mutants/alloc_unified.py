"""Mutants of F-ALLOC-UNIFIED-001: plausible wrong rules, and wrong allocations."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.blackwell.reference.allocator import IntegratedRule, managed
from falsifiers.blackwell.subjects.alloc_unified import Allocator, Device

__all__ = [
    "AgainstTheRule",
    "AnyNumberIsOn",
    "AnythingIsOn",
    "AutoIsOn",
    "ByCapability",
    "CutsAllocation",
    "ForgetsUnifiedAddressing",
    "IgnoresIntegrated",
    "IgnoresOverride",
    "MisreadsDevice",
    "NeverManaged",
    "OffIsAuto",
    "OnWithoutAddressing",
    "ReadsAnyCase",
    "ReadsWords",
    "RoundsSizes",
    "StripsBlanks",
    "TakesItForIntegrated",
    "TakesTheNextForIntegrated",
    "TooOldForManaged",
]


class ByCapability(IntegratedRule):
    """Managed memory if cc >= 100 and addressing is unified: wrong for a discrete B200 and an integrated Orin."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        modern = device.capability >= (10, 0)
        return super().choose(Device(device.unified_addressing, modern, device.capability), override)


class TakesItForIntegrated(IntegratedRule):
    """Recognises integrated GPUs only from sm_121 on: an integrated Orin or Thor gets plain memory."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated and device.capability >= (12, 1)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)


class IgnoresOverride(IntegratedRule):
    """Checks MANAGED_MEMORY and then ignores it."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        super().choose(device, override)
        return super().choose(device, None)


class AutoIsOn(IntegratedRule):
    """MANAGED_MEMORY=auto means 1."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, "1" if override == "auto" and device.unified_addressing else override)


class OffIsAuto(IntegratedRule):
    """MANAGED_MEMORY=0 means unset, as in a test for truth."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override == "0" else override)


class AnyNumberIsOn(IntegratedRule):
    """Reads the variable as a number; any but 0 means 1, so "2" and " 1" are not refused."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        if override in (None, "auto"):
            return super().choose(device, override)
        return super().choose(device, "1" if int(str(override)) else "0")


class AnythingIsOn(IntegratedRule):
    """Any value but 0 and auto means 1."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        known = override in (None, "0", "auto")
        return super().choose(device, override if known or not device.unified_addressing else "1")


class IgnoresIntegrated(IntegratedRule):
    """Takes unified addressing for shared memory; every CUDA GPU on 64-bit Linux has unified addressing."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(Device(device.unified_addressing, True, device.capability), override)


class ForgetsUnifiedAddressing(IntegratedRule):
    """Decides by the integrated flag alone."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        if override in (None, "auto"):
            return Allocator.MANAGED if device.integrated else Allocator.PLAIN
        return super().choose(device, override)


class OnWithoutAddressing(IntegratedRule):
    """Obeys 1 without unified addressing, where managed memory cannot work."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return Allocator.MANAGED if override == "1" else super().choose(device, override)


class NeverManaged(IntegratedRule):
    """Always cuMemAlloc, as before PMAT-701. On GB10 this ended near 30 GB."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        super().choose(device, override)
        return Allocator.PLAIN


class CutsAllocation(IntegratedRule):
    """Silently cuts allocations at 30 GB, or at three quarters of a smaller size."""

    def allocate(self, size: int) -> Tensor:
        return super().allocate(min(30 * 2**30, size * 3 // 4))


class RoundsSizes(IntegratedRule):
    """Rounds sizes up to 512 bytes and hands out all of them."""

    def allocate(self, size: int) -> Tensor:
        return super().allocate(-(-size // 512) * 512)


class MisreadsDevice(IntegratedRule):
    """Confuses attributes 16 and 18: reads the number of multiprocessors as the integrated flag."""

    def device(self) -> Device:
        described = super().device()
        return Device(described.unified_addressing, not described.integrated, described.capability)


class AgainstTheRule(IntegratedRule):
    """The rule is right, and the allocation uses the other allocator. Plain memory is limited to 8 GiB."""

    def allocate(self, size: int) -> Tensor:
        if self.choose(self.device(), None) is Allocator.PLAIN:
            torch.cuda.init()
            return managed(size)
        return torch.empty(min(size, 8 * 2**30), dtype=torch.uint8, device=self._device)


class ReadsWords(IntegratedRule):
    """Accepts true, on, false and off."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        words = {"true": "1", "on": "1", "false": "0", "off": "0"}
        return super().choose(device, None if override is None else words.get(override, override))


class ReadsAnyCase(IntegratedRule):
    """Accepts AUTO."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override is None else override.lower())


class StripsBlanks(IntegratedRule):
    """Strips blanks after the value, so "1 " and "0 " are not refused."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override is None else override.rstrip())


class TooOldForManaged(IntegratedRule):
    """Ignores the integrated flag below sm_75, although Tegra X1 and Xavier share their memory."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated and device.capability >= (7, 5)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)


class TakesTheNextForIntegrated(IntegratedRule):
    """Takes every GPU after GB10 for an integrated one."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated or device.capability > (12, 1)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)
