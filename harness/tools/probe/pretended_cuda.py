"""Replaces `torch.cuda` for code on fake tensors. It reports the values of the assumed device, and uses no GPU."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import torch
from torch._subclasses import fake_tensor
from torch.optim import optimizer
from torch.utils import _foreach_utils

from harness.tools.probe.device_table import Device

__all__ = ["pretended_cuda"]


class Meter(Protocol):
    """Reports allocated memory, and handles the emptying of the cache."""

    stream: int

    @property
    def live(self) -> int: ...

    @property
    def peak(self) -> int: ...

    def empty_cache(self) -> None: ...


class _Stream:
    """A stream: a number, by which the allocator keeps the blocks of streams apart. The default stream is 0."""

    device_index = 0
    device_type = 1
    device = torch.device("cuda", 0)

    def __init__(self, number: int) -> None:
        self.cuda_stream = self.stream_id = number

    def query(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id

    def __getattr__(self, _name: str) -> Any:
        return _nothing


class _Event(_Stream):
    def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
        super().__init__(0)

    def record(self, *_arguments: Any) -> None: ...

    def elapsed_time(self, _end: Any) -> float:
        return 1.0


class _Anywhere(nullcontext[None]):
    """Selects a device. There is only one."""

    idx = 0

    def __init__(self, *_arguments: Any) -> None:
        super().__init__()


def _nothing(*_arguments: Any, **_keywords: Any) -> None:
    return None


def _statistics(meter: Meter) -> dict[str, int]:
    """The allocator's statistics that are known; 0 for the others."""
    held = {"current": meter.live, "peak": meter.peak}
    names = itertools.product(("allocated_bytes", "active_bytes", "reserved_bytes"), held)
    return defaultdict(int, {f"{name}.all.{which}": held[which] for name, which in names})


@contextmanager
def pretended_cuda(meter: Meter, device: Device) -> Iterator[None]:
    """Replace the functions of `torch.cuda` that code of a training step calls."""
    properties = SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.total,
        multi_processor_count=device.multiprocessors,
        warp_size=32,
        L2_cache_size=50 * 1024**2,
        gcnArchName="",
    )
    streams = itertools.count(1)

    class NewStream(_Stream):
        def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
            super().__init__(next(streams))

    @contextmanager
    def running_on(stream: _Stream | None) -> Iterator[None]:
        before = meter.stream
        meter.stream = before if stream is None else stream.stream_id
        try:
            yield
        finally:
            meter.stream = before

    def set_stream(stream: _Stream) -> None:
        meter.stream = stream.stream_id

    generator_state = torch.zeros(16, dtype=torch.uint8)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "_lazy_init": _nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing,
        "device": _Anywhere,
        "device_of": _Anywhere,
        "get_device_properties": lambda *_, **__: properties,
        "get_device_capability": lambda *_, **__: device.capability,
        "get_device_name": lambda *_, **__: device.name,
        "is_bf16_supported": lambda *_, **__: device.capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "synchronize": _nothing,
        "ipc_collect": _nothing,
        "empty_cache": meter.empty_cache,
        "memory_allocated": lambda *_, **__: meter.live,
        "max_memory_allocated": lambda *_, **__: meter.peak,
        "memory_reserved": lambda *_, **__: meter.live,
        "max_memory_reserved": lambda *_, **__: meter.peak,
        "memory_stats": lambda *_, **__: _statistics(meter),
        "memory_summary": lambda *_, **__: "",
        "reset_peak_memory_stats": _nothing,
        "reset_max_memory_allocated": _nothing,
        "reset_accumulated_memory_stats": _nothing,
        "mem_get_info": lambda *_, **__: (device.total - device.context - meter.live, device.total),
        "manual_seed": _nothing,
        "manual_seed_all": _nothing,
        "seed": _nothing,
        "get_rng_state": lambda *_, **__: generator_state.clone(),
        "get_rng_state_all": lambda: [generator_state.clone()],
        "set_rng_state": _nothing,
        "set_rng_state_all": _nothing,
        "Stream": NewStream,
        "Event": _Event,
        "current_stream": lambda *_, **__: _Stream(meter.stream),
        "default_stream": lambda *_, **__: _Stream(0),
        "set_stream": set_stream,
        "stream": running_on,
        "can_device_access_peer": lambda *_, **__: True,
    }
    with ExitStack() as stack:
        for module, (name, answer) in itertools.product((torch.cuda, torch.cuda.memory), answers.items()):
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, answer))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(mock.patch.object(torch.cuda.nvtx, name, _nothing))
        stack.enter_context(mock.patch.object(torch.nn.RNNBase, "flatten_parameters", _nothing))
        stack.enter_context(mock.patch.object(fake_tensor, "init_gpu_context", _nothing))
        # Optimizers and clip_grad_norm_ choose their foreach code by the exact type of the tensors.
        for module in (optimizer, _foreach_utils):
            types = [*module._foreach_supported_types, fake_tensor.FakeTensor]
            stack.enter_context(mock.patch.object(module, "_foreach_supported_types", types))
        # Module.to swaps fake tensors and refuses those with weak references. Their mode holds one to each.
        no_references = SimpleNamespace(getweakrefs=lambda _: ())
        stack.enter_context(mock.patch.object(torch.utils, "weakref", no_references))
        yield
