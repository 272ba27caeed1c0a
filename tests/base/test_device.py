"""Device classes and the targets of claims."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base.device import Device, DeviceClass, hardware

X86, ARM = DeviceClass("cpu", "x86_64"), DeviceClass("cpu", "aarch64")
H200, GB10 = DeviceClass("cuda", "NVIDIA H200", "9.0"), DeviceClass("cuda", "NVIDIA GB10", "12.1")
ALL = {X86, ARM, H200, GB10}


@pytest.mark.parametrize(
    ("target", "expected", "words"),
    [
        ({"type": "cpu"}, {X86, ARM}, "any CPU"),
        ({"type": "cuda"}, {H200, GB10}, "any CUDA GPU"),
        ({"device": "x86_64"}, {X86}, "x86_64"),
        ({"device": "NVIDIA GB10"}, {GB10}, "NVIDIA GB10"),
        ({"compute_capability": "9.0"}, {H200}, "compute capability 9.0"),
        ({"compute_capability": "12.1", "device": "NVIDIA GB10"}, {GB10}, "NVIDIA GB10, compute capability 12.1"),
        ({"type": "cuda", "compute_capability": "12.1"}, {GB10}, "any CUDA GPU, compute capability 12.1"),
        ({"device": "NVIDIA H200", "compute_capability": "12.1"}, set(), "NVIDIA H200, compute capability 12.1"),
        ({"type": "cpu", "device": "NVIDIA"}, set(), "NVIDIA"),
        ({}, set(), ""),
    ],
)
def test_which_devices_meet_a_target(target: dict[str, Any], expected: set[DeviceClass], words: str) -> None:
    """Every condition of the target must hold. An empty target matches no device."""
    assert {device for device in ALL if device.meets(target)} == expected
    assert hardware(target) == words


@pytest.mark.parametrize(
    ("device", "expected", "words"),
    [
        (Device("cpu", "x86_64", memory_bytes=1), X86, "CPU x86_64"),
        (Device("cuda", "NVIDIA H200", "9.0", uuid="a"), H200, "NVIDIA H200 (9.0)"),
        (Device("cuda", "RTX"), DeviceClass("cuda", "RTX"), "RTX"),
    ],
)
def test_the_class_of_a_device(device: Device, expected: DeviceClass, words: str) -> None:
    """A class has a form for records and one for people. A capability that could not be read is left out."""
    assert DeviceClass.of(device) == expected
    assert str(expected) == words


def test_a_part_of_the_name_is_enough() -> None:
    """The compute capability must be equal: 12.1 matches neither 1.0 nor 12."""
    assert GB10.meets({"device": "GB10"})
    assert not GB10.meets({"device": "GB10 Super"})
    assert not GB10.meets({"compute_capability": "12"})
    assert not DeviceClass("cuda", "NVIDIA GB10").meets({"compute_capability": "12.1"})


def test_a_type_that_nobody_knows_is_not_put_into_words() -> None:
    assert hardware({"type": "tpu"}) == ""
    assert not GB10.meets({"type": "tpu"})
