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

__all__ = ["MEMORY_FAULTS", "OTHER_ERRORS", "FaultyBackend", "Witness", "really_out_of_memory"]

Raiser = Callable[[Tensor], BaseException]
"""Makes the error that an operation ends with, from its first tensor; what it raises itself serves as well."""

_PHRASE: Final = "CUDA backward fell through to wgpu"
_LAYER: Final = re.compile(r"\blayer\W{0,2}(\d+)", re.IGNORECASE)


def _out_of_memory(tensor: Tensor) -> BaseException:
    return torch.OutOfMemoryError(f"CUDA out of memory (injected). Tried to allocate {tensor.nbytes} bytes.")


def _driver_out_of_memory(tensor: Tensor) -> BaseException:
    return DriverError(f"loading a kernel (injected) beside {tensor.nbytes} bytes", "CUDA_ERROR_OUT_OF_MEMORY")


def _no_machine_code(tensor: Tensor) -> BaseException:
    del tensor
    return CompilationFailed("NVRTC (injected): invalid value for --gpu-architecture")


def _driver_without_machine_code(tensor: Tensor) -> BaseException:
    del tensor
    return DriverError("loading a kernel (injected)", "CUDA_ERROR_INVALID_PTX")


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
)
"""What must fall through: MemoryAllocation and JitFailure, in the words of SPEC-BLACKWELL-FIX-001."""

OTHER_ERRORS: Final[tuple[BaseException, ...]] = (
    ValueError("shapes do not fit"),
    TypeError("no tensor"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
    DriverError("launching a kernel", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    NotImplementedError("no such kernel"),
    AssertionError("an invariant is broken"),
    ArithmeticError("a gradient is not finite"),
    KeyError("q.weight"),
    OSError(28, "No space left on device"),
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

    def fail(self, raiser: Raiser, after: int) -> None:
        """Fail once, instead of the operation that follows on `after` more; those are made and belong to the loss."""
        self._raiser, self._countdown = raiser, after
        self._made.clear()

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
    primary_calls: int = 0
    """Operations of the faulty backend after its fault."""
    products: int = 0
    """Matrix products that torch made after the fault."""
    warnings: int = 0
    layers_named: set[int] = field(default_factory=set)
    """The layers that the warnings name, as in "layer 3"."""
    held: int | None = None
    """Tensors of the backward that was broken off which were held when wgpu was first given work after it."""
    faulted: FaultyBackend | None = None
    adapters: dict[str, dict[str, str]] = field(default_factory=dict)
    """By name, of every launch: what wgpu says of the adapter."""

    def clear(self) -> None:
        """Count from 0; adapters are remembered."""
        self.launches = self.primary_calls = self.products = self.warnings = 0
        self.layers_named = set()
        self.held = self.faulted = None

    @contextmanager
    def watching(self) -> Iterator[Witness]:
        """Watch wgpu's launches, and everything logged at WARNING or above or given to `warnings`."""
        handler = _Listener(self)
        handler.setLevel(logging.WARNING)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            with warnings.catch_warnings(), self._counted_launches():
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
    def _counted_launches(self) -> Iterator[None]:
        """Every launch goes through one of two methods of wgpu's compute pass, whoever the subject is."""
        from wgpu.backends.wgpu_native import GPUComputePassEncoder as passes  # noqa: N813 (of classes, the class)

        names = ("dispatch_workgroups", "dispatch_workgroups_indirect")
        before = {name: getattr(passes, name) for name in names}

        def counting(original: Any) -> Any:
            def launch(encoder: Any, *arguments: Any, **options: Any) -> Any:
                self.launches += 1
                if self.held is None and self.faulted is not None:
                    self.held = self.faulted.held()
                info = encoder._device.adapter.info
                self.adapters.setdefault(info["device"], dict(info))
                return original(encoder, *arguments, **options)

            return launch

        for name, original in before.items():
            setattr(passes, name, counting(original))
        try:
            yield
        finally:
            for name, original in before.items():
                setattr(passes, name, original)

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
