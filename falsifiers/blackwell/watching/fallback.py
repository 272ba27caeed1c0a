"""What wgpu, torch and the log show while a subject falls back to wgpu."""

from __future__ import annotations

import logging
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.blackwell.faults.backward import FaultyBackend
from falsifiers.blackwell.watching.steps import PRODUCTS

_PHRASE: Final = "CUDA backward fell through to wgpu"
_LAYER: Final = re.compile(r"\blayer\W{0,2}(\d+)", re.IGNORECASE)


@dataclass
class Witness:
    """Counts of launches, uploads, torch products and warnings; `clear` resets them."""

    launches: int = 0
    """Workgroup dispatches to wgpu, by any code of the process."""
    uploaded_bytes: int = 0
    """Bytes written into wgpu's buffers."""
    primary_calls: int = 0
    """Operations of the faulty backend after its fault."""
    products: int = 0
    """Matrix products of torch after the fault."""
    warnings: int = 0
    layers_named: set[int] = field(default_factory=set)
    """The layers that the warnings name, as in "layer 3"."""
    faulted: FaultyBackend | None = None
    """The backend that raised the latest fault."""
    adapters: dict[str, dict[str, str]] = field(default_factory=dict)
    """wgpu's description of every adapter that had a launch, by the adapter's name."""
    _buffers: list[tuple[weakref.ref[Any], int]] = field(default_factory=list)
    """Weak references to wgpu's buffers, each with its size in bytes."""

    def clear(self) -> None:
        """Set all counts to 0; keep adapters and buffers."""
        self.launches = self.uploaded_bytes = self.primary_calls = self.products = self.warnings = 0
        self.layers_named = set()
        self.faulted = None

    def live_bytes(self) -> int:
        """Bytes of the buffers that were created since the watch began and are still referenced."""
        self._buffers = [(buffer, size) for buffer, size in self._buffers if buffer() is not None]
        return sum(size for _, size in self._buffers)

    @contextmanager
    def watching(self) -> Iterator[Witness]:
        """Watch calls of wgpu, log records of level WARNING or above, and Python warnings."""
        handler = _Listener(self)
        handler.setLevel(logging.WARNING)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            with warnings.catch_warnings(), self._counting_in_wgpu():
                warnings.simplefilter("always")
                warnings.showwarning = lambda message, *rest, **options: self._heard(str(message))
                yield self
        finally:
            root.removeHandler(handler)

    @contextmanager
    def products_counted(self) -> Iterator[None]:
        """Count torch's matrix products in this thread after a fault."""
        with _Products(self):
            yield

    @contextmanager
    def _counting_in_wgpu(self) -> Iterator[None]:
        """Replace the methods of wgpu's classes that every launch, write and new buffer goes through."""
        from wgpu.backends.wgpu_native import GPUComputePassEncoder, GPUDevice, GPUQueue

        watched = (
            (GPUComputePassEncoder, "dispatch_workgroups", self._launched),
            (GPUComputePassEncoder, "dispatch_workgroups_indirect", self._launched),
            (GPUQueue, "write_buffer", self._written),
            (GPUDevice, "create_buffer", self._created),
        )
        before = [getattr(owner, name) for owner, name, _ in watched]
        for (owner, name, look), original in zip(watched, before, strict=True):
            setattr(owner, name, self._looked_at(original, look))
        try:
            yield
        finally:
            for (owner, name, _), original in zip(watched, before, strict=True):
                setattr(owner, name, original)

    def _looked_at(self, original: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
        """A method of wgpu that calls `look` with its answer.

        Before the first call after a fault it notes how many tensors of the interrupted backward are still alive.
        """

        def method(*arguments: Any, **options: Any) -> Any:
            if self.faulted is not None and self.faulted.held_then is None:
                self.faulted.held_then = self.faulted.held()
            answer = original(*arguments, **options)
            look(answer, *arguments, **options)
            return answer

        return method

    def _launched(self, _: None, encoder: Any, *arguments: Any, **options: Any) -> None:
        self.launches += 1
        if self.faulted is not None:
            self.faulted.launches += 1
        info = encoder._device.adapter.info
        self.adapters.setdefault(info["device"], dict(info))

    def _written(
        self, _: None, queue: Any, buffer: Any, buffer_offset: int, data: Any, *rest: Any, **more: Any
    ) -> None:
        self.uploaded_bytes += memoryview(data).nbytes

    def _created(self, buffer: Any, device: Any, **options: Any) -> None:
        self._buffers.append((weakref.ref(buffer), int(options["size"])))

    def _heard(self, text: str) -> None:
        if _PHRASE in text:
            self.warnings += 1
            self.layers_named.update(map(int, _LAYER.findall(text)))


class _Listener(logging.Handler):
    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self._witness = witness

    def emit(self, record: logging.LogRecord) -> None:
        self._witness._heard(record.getMessage())


class _Products(TorchDispatchMode):
    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self._witness = witness

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._witness.faulted is not None and func in PRODUCTS:
            self._witness.products += 1
        return func(*args, **(kwargs or {}))
