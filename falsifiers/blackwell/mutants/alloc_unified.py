"""Mutants of F-ALLOC-UNIFIED-001: rules that were written, or are easily written, instead of the right one."""

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
    "StripsBlanks",
    "TakesItForIntegrated",
    "TakesTheNextForIntegrated",
    "TooOldForManaged",
]


class ByCapability(IntegratedRule):
    """managed iff unified addressing and cc >= 100, which catches a discrete B200 and misses an integrated Orin."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        modern = device.capability >= (10, 0)
        return super().choose(Device(device.unified_addressing, modern, device.capability), override)


class TakesItForIntegrated(IntegratedRule):
    """The same rule, narrowed to sm_121 and what follows it: an integrated Orin or Thor gets plain memory."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated and device.capability >= (12, 1)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)


class IgnoresOverride(IntegratedRule):
    """MANAGED_MEMORY is checked and then forgotten."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        super().choose(device, override)
        return super().choose(device, None)


class AutoIsOn(IntegratedRule):
    """Who sets the variable at all, to auto, gets managed memory."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, "1" if override == "auto" and device.unified_addressing else override)


class OffIsAuto(IntegratedRule):
    """0 is taken for unset, as a test for truth takes it."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override == "0" else override)


class AnyNumberIsOn(IntegratedRule):
    """The variable is read as a number, and any but 0 means 1: "2", and " 1" with a blank, are not refused."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        if override in (None, "auto"):
            return super().choose(device, override)
        return super().choose(device, "1" if int(str(override)) else "0")


class AnythingIsOn(IntegratedRule):
    """Whatever the variable holds beside 0 and auto means 1."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        known = override in (None, "0", "auto")
        return super().choose(device, override if known or not device.unified_addressing else "1")


class IgnoresIntegrated(IntegratedRule):
    """Unified addressing is taken for shared memory; every CUDA GPU on 64-bit Linux has it."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(Device(device.unified_addressing, True, device.capability), override)


class ForgetsUnifiedAddressing(IntegratedRule):
    """The integrated flag alone decides."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        if override in (None, "auto"):
            return Allocator.MANAGED if device.integrated else Allocator.PLAIN
        return super().choose(device, override)


class OnWithoutAddressing(IntegratedRule):
    """1 is obeyed where it cannot work."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return Allocator.MANAGED if override == "1" else super().choose(device, override)


class NeverManaged(IntegratedRule):
    """As before PMAT-701: cuMemAlloc for all, which ended near 30 GB on GB10."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        super().choose(device, override)
        return Allocator.PLAIN


class CutsAllocation(IntegratedRule):
    """What is above the ceiling of 30 GB, or of three quarters of a smaller size, is cut off without a word."""

    def allocate(self, size: int) -> Tensor:
        return super().allocate(min(30 * 2**30, size * 3 // 4))


class MisreadsDevice(IntegratedRule):
    """Attributes 16 and 18 are mixed up: the number of multiprocessors is taken for the integrated flag."""

    def device(self) -> Device:
        described = super().device()
        return Device(described.unified_addressing, not described.integrated, described.capability)


class AgainstTheRule(IntegratedRule):
    """The rule is right, and the allocation goes the other way; a part is enough where plain memory may end early."""

    def allocate(self, size: int) -> Tensor:
        if self.choose(self.device(), None) is Allocator.PLAIN:
            torch.cuda.init()
            return managed(size)
        return torch.empty(min(size, 8 * 2**30), dtype=torch.uint8, device=self._device)


class ReadsWords(IntegratedRule):
    """The variable is a switch as others are, and has their words: true and on, false and off."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        words = {"true": "1", "on": "1", "false": "0", "off": "0"}
        return super().choose(device, None if override is None else words.get(override, override))


class ReadsAnyCase(IntegratedRule):
    """AUTO is taken for auto."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override is None else override.lower())


class StripsBlanks(IntegratedRule):
    """What a shell script left behind the value is cut off: "1 " and "0 " are not refused."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        return super().choose(device, None if override is None else override.rstrip())


class TooOldForManaged(IntegratedRule):
    """The flag counts from sm_75 on: a Tegra X1 or Xavier shares its memory as well."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated and device.capability >= (7, 5)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)


class TakesTheNextForIntegrated(IntegratedRule):
    """What comes after GB10 is taken to be like it."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        integrated = device.integrated or device.capability > (12, 1)
        return super().choose(Device(device.unified_addressing, integrated, device.capability), override)
