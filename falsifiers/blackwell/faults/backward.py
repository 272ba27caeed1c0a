"""Errors that F-BLACKWELL-WGPU-FALLBACK-001 injects into a backward, and the backend that raises them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.cuda_device import DriverError
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed

if TYPE_CHECKING:
    from falsifiers.blackwell.watching.fallback import Witness

Raiser = Callable[[Tensor], BaseException]
"""Returns the error that an operation ends with, given the operation's first tensor. It may also raise the error."""


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


def _driver_error(status: str) -> Raiser:
    """The driver refuses a kernel with this status."""
    return lambda tensor: DriverError("loading a kernel (injected)", status)


def _torch_without_binary(tensor: Tensor) -> BaseException:
    del tensor
    return torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device\n(injected)")


def really_out_of_memory(tensor: Tensor) -> BaseException:
    """A real error of torch's allocator, caused by a memory limit that is lifted again before this returns."""
    torch.cuda.set_per_process_memory_fraction(1e-6, tensor.device)
    try:
        torch.empty(2**30, dtype=torch.uint8, device=tensor.device)
    except torch.OutOfMemoryError as error:
        return error
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, tensor.device)
    raise RuntimeError("torch's allocator handed out 1 GiB beyond its limit; the out-of-memory fault cannot be made")


MEMORY_FAULTS: Final[tuple[Raiser, ...]] = (
    _out_of_memory,
    _no_machine_code,
    _driver_out_of_memory,
    _driver_error("CUDA_ERROR_INVALID_PTX"),
    _driver_error("CUDA_ERROR_NO_BINARY_FOR_GPU"),
    _torch_out_of_memory,
    _torch_without_binary,
    _cublas_out_of_memory,
    _driver_error("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    _driver_error("CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
    _driver_error("CUDA_ERROR_JIT_COMPILATION_DISABLED"),
)
"""Errors that must fall through to wgpu: MemoryAllocation and JitFailure of SPEC-BLACKWELL-FIX-001.

torch's allocator raises OutOfMemoryError. If the CUDA runtime or cuBLAS lacks memory, for a kernel's first launch or
for a handle, torch raises AcceleratorError or RuntimeError with the text of that library.
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
"""Errors that must reach the caller unchanged. Some mention memory or CUDA, but none is an out-of-memory of the GPU."""


class FaultyBackend:
    """A healthy backend that fails once at a chosen operation, and counts its operations."""

    def __init__(self, healthy: Backend, witness: Witness) -> None:
        """Wrap `healthy`; report the fault and later calls to `witness`."""
        self._healthy = healthy
        self._witness = witness
        self._countdown: int | None = None
        self._raiser: Raiser | None = None
        self._made: list[weakref.ref[Tensor]] = []
        self.calls = 0
        self.launches = 0
        """Dispatches to wgpu after this backend's fault, until another backend fails or `fail` is called again."""
        self.held_then: int | None = None
        """The value of `held` at the first call of wgpu after the fault; None before that call."""

    def fail(self, raiser: Raiser, after: int) -> None:
        """Fail once: run `after` more operations, then raise in place of the next one."""
        self._raiser, self._countdown = raiser, after
        self._made.clear()
        self.launches, self.held_then = 0, None

    def held(self) -> int:
        """The number of tensors made between `fail` and the fault that are still alive."""
        return sum(tensor() is not None for tensor in self._made)

    def relent(self) -> None:
        """Cancel a fault that has not been raised, so that it cannot hit the next forward pass."""
        self._raiser = None

    def __getattr__(self, name: str) -> Any:
        """The healthy backend's attribute; an operation is wrapped so that it counts and can fail."""
        attribute = getattr(self._healthy, name)
        if not callable(attribute):
            return attribute

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
            answer = attribute(*arguments, **options)
            if self._raiser is not None:
                parts = answer if isinstance(answer, tuple) else (answer,)
                self._made += [weakref.ref(part) for part in parts if isinstance(part, Tensor)]
            return answer

        return operation
