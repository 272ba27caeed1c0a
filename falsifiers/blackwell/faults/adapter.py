"""A Vulkan adapter that describes itself as smaller than it is, or as a GPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def described(limits: Mapping[str, int], *, as_gpu: bool) -> Iterator[None]:
    """While the block runs, adapters report these limits; a subject that opens one then cuts its work to fit.

    Args:
        as_gpu: a software adapter calls itself a discrete GPU, so that it gets the kernels of one.
    """
    from wgpu import GPUAdapter

    names = ("limits", "info")
    before = {name: getattr(GPUAdapter, name) for name in names}

    def reported(adapter: Any) -> dict[str, Any]:
        real = before["limits"].fget(adapter)
        return {**real, **{name: min(value, real[name]) for name, value in limits.items()}}

    def told(adapter: Any) -> dict[str, Any]:
        real = before["info"].fget(adapter)
        return {**real, "adapter_type": "DiscreteGPU"} if as_gpu and real["adapter_type"] == "CPU" else real

    try:
        GPUAdapter.limits, GPUAdapter.info = property(reported), property(told)
        yield
    finally:
        GPUAdapter.limits, GPUAdapter.info = before["limits"], before["info"]
