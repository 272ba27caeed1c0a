"""The wgpu backend for tests, on any Vulkan adapter. Without an adapter the test is skipped."""

from __future__ import annotations

import pytest

__all__ = ["any_backend"]


def any_backend(binding_bytes: int | None = None):  # type: ignore[no-untyped-def]
    """A backend on a new device, so that tests do not share compiled pipelines or counters."""
    pytest.importorskip("wgpu", reason="the package wgpu is not installed (extra wgpu)")
    from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend
    from falsifiers.blackwell.reference.wgpu_device import Device, NoAdapter, choose_adapter

    try:
        return WgpuBackend(device=Device(choose_adapter("any"), binding_bytes=binding_bytes))
    except NoAdapter as error:
        pytest.skip(str(error))
