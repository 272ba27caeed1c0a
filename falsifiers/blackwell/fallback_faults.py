"""What F-BLACKWELL-WGPU-FALLBACK-001 inflicts on a backward, and what it watches while the subject copes."""

from __future__ import annotations

import logging
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.cuda_device import DriverError
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed
from falsifiers.blackwell.step_watch import PRODUCTS

__all__ = ["MEMORY_FAULTS", "OTHER_ERRORS", "FaultyBackend", "Raiser", "Witness", "really_out_of_memory"]

Raiser = Callable[[Tensor], BaseException]
"""Makes the error that an operation ends with, from its first tensor; what it raises itself serves as well."""

_PHRASE: Final = "CUDA backward fell through to wgpu"
_LAYER: Final = re.compile(r"\blayer\W{0,2}(\d+)", re.IGNORECASE)


def _out_of_memory(tensor: Tensor) -> BaseException:
    return torch.OutOfMemoryError(f"CUDA out of memory (injected). Tried to allocate {tensor.nbytes} bytes.")


def _driver_out_of_memory(tensor: Tensor) -> BaseException:
    return DriverError(f"loading a kernel (injected) beside {tensor.nbytes} bytes", "CUDA_ERROR_OUT_OF_MEMORY")


def _torch_out_of_memory(tensor: Tensor) -> BaseException:
    return torch.AcceleratorError(f"CUDA error: out of memory\n(injected) beside {tensor.nbytes} bytes")


def _cublas_out_of_memory(tensor: Tensor) -> BaseException:
    del tensor
    return RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)` (injected)")


def _no_machine_code(tensor: Tensor) -> BaseException:
    del tensor
    return CompilationFailed("NVRTC (injected): invalid value for --gpu-architecture")


def _driver_without_machine_code(tensor: Tensor) -> BaseException:
    del tensor
    return DriverError("loading a kernel (injected)", "CUDA_ERROR_INVALID_PTX")


def _driver_without_binary(tensor: Tensor) -> BaseException:
    del tensor
    return DriverError("loading a kernel (injected)", "CUDA_ERROR_NO_BINARY_FOR_GPU")


def _torch_without_binary(tensor: Tensor) -> BaseException:
    del tensor
    return torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device\n(injected)")


def really_out_of_memory(tensor: Tensor) -> BaseException:
    """The error of torch's own allocator, which for a moment is denied any more memory than it holds."""
    torch.cuda.set_per_process_memory_fraction(1e-6, tensor.device)
    try:
        torch.empty(2**30, dtype=torch.uint8, device=tensor.device)
    except torch.OutOfMemoryError as error:
        return error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, tensor.device)
    raise RuntimeError("torch's allocator gave 1 GiB beyond the limit that it was set")


MEMORY_FAULTS: Final[tuple[Raiser, ...]] = (
    _out_of_memory,
    _no_machine_code,
    _driver_out_of_memory,
    _driver_without_machine_code,
    _driver_without_binary,
    _torch_out_of_memory,
    _torch_without_binary,
    _cublas_out_of_memory,
)
"""What must fall through: MemoryAllocation and JitFailure, in the words of SPEC-BLACKWELL-FIX-001, whoever tells it.

torch's own allocator raises OutOfMemoryError; where the CUDA runtime or cuBLAS has no memory, as for loading a kernel
at its first use or for a handle, torch raises an AcceleratorError or a RuntimeError with the words of either.
"""

OTHER_ERRORS: Final[tuple[BaseException, ...]] = (
    ValueError("shapes do not fit"),
    TypeError("no tensor"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes."),
    torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    DriverError("launching a kernel", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    DriverError("launching a kernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    MemoryError("out of memory: the host has no 16 GiB for an array"),
    NotImplementedError("no such kernel"),
    AssertionError("an invariant is broken"),
    ArithmeticError("a gradient is not finite"),
    KeyError("q.weight"),
    OSError(28, "No space left on device"),
    SystemExit("told to stop"),
    KeyboardInterrupt(),
)
"""What must come out as it went in. Some speak of memory or of CUDA, and are no out-of-memory all the same."""


class FaultyBackend:
    """A healthy backend that can be told to fail once, at one operation; it counts its operations."""

    def __init__(self, healthy: Backend, witness: Witness) -> None:
        """Stand for `healthy`, and report to the witness."""
        self._healthy = healthy
        self._witness = witness
        self._countdown: int | None = None
        self._raiser: Raiser | None = None
        self._made: list[weakref.ref[Tensor]] = []
        self.calls = 0
        self.launches = 0
        """Dispatches that wgpu was given since the fault, until another backend's or the next `fail`."""
        self.held_then: int | None = None
        """What `held` was when wgpu was first given anything after the fault; None before that."""

    def fail(self, raiser: Raiser, after: int) -> None:
        """Fail once, instead of the operation that follows on `after` more; those are made and belong to the loss."""
        self._raiser, self._countdown = raiser, after
        self._made.clear()
        self.launches, self.held_then = 0, None

    def held(self) -> int:
        """How many of the tensors are still held that were made between `fail` and the fault."""
        return sum(made() is not None for made in self._made)

    def relent(self) -> None:
        """Do not fail any more: a subject that never asked must not meet the fault in its next forward pass."""
        self._raiser = None

    def __getattr__(self, name: str) -> Any:
        """The healthy backend's operation, or its name."""
        found = getattr(self._healthy, name)
        if not callable(found):
            return found

        def operation(*arguments: Any, **options: Any) -> Any:
            if self._raiser is not None and self._countdown == 0:
                raiser, self._raiser = self._raiser, None
                self._witness.faulted = self
                tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
                raise raiser(tensors[0])
            if self._countdown:
                self._countdown -= 1
            self.calls += 1
            if self._witness.faulted is self:
                self._witness.primary_calls += 1
            answer = found(*arguments, **options)
            if self._raiser is not None:
                parts = answer if isinstance(answer, tuple) else (answer,)
                self._made += [weakref.ref(part) for part in parts if isinstance(part, Tensor)]
            return answer

        return operation


@dataclass
class Witness:
    """What was seen of wgpu, torch and the log; `clear` begins again."""

    launches: int = 0
    """Workgroup dispatches given to wgpu, by whomever."""
    uploaded_bytes: int = 0
    """Bytes that were written into wgpu's buffers."""
    primary_calls: int = 0
    """Operations of the faulty backend after its fault."""
    products: int = 0
    """Matrix products that torch made after the fault."""
    warnings: int = 0
    layers_named: set[int] = field(default_factory=set)
    """The layers that the warnings name, as in "layer 3"."""
    faulted: FaultyBackend | None = None
    """The backend whose fault was the last."""
    adapters: dict[str, dict[str, str]] = field(default_factory=dict)
    """By name, of every launch: what wgpu says of the adapter."""
    _buffers: list[tuple[weakref.ref[Any], int]] = field(default_factory=list)
    """Every buffer of wgpu that was made and is not known to be gone, and its bytes."""

    def clear(self) -> None:
        """Count from 0; adapters and buffers are remembered."""
        self.launches = self.uploaded_bytes = self.primary_calls = self.products = self.warnings = 0
        self.layers_named = set()
        self.faulted = None

    def live_bytes(self) -> int:
        """Of the buffers that wgpu was asked for since the watch began and that somebody still has."""
        self._buffers = [(buffer, size) for buffer, size in self._buffers if buffer() is not None]
        return sum(size for _, size in self._buffers)

    @contextmanager
    def watching(self) -> Iterator[Witness]:
        """Watch what wgpu is given, and everything logged at WARNING or above or given to `warnings`."""
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
        """Count the products that torch makes after a fault in this thread."""
        with _Products(self):
            yield

    @contextmanager
    def _counting_in_wgpu(self) -> Iterator[None]:
        """Launches, writes and new buffers each go through few methods of wgpu's classes, whoever the subject is."""
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
        """A method of wgpu's; what is still held of a backward that was broken off is noted before the first call."""

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

    def _created(self, made: Any, device: Any, **options: Any) -> None:
        self._buffers.append((weakref.ref(made), int(options["size"])))

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
