"""Mutants of F-BLACKWELL-WGPU-FALLBACK-001 that fall through on too many errors, or on too few."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.blackwell.reference.block import Saved
from falsifiers.blackwell.reference.cuda_device import DriverError
from falsifiers.blackwell.reference.fallback import Fallback, FallbackBlock
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed

__all__ = [
    "ForgetsJitFailures",
    "ForgetsMissingBinaries",
    "KnowsOneException",
    "RaisesAnother",
    "SwallowsDriverErrors",
    "SwallowsEveryError",
    "SwallowsHostMemory",
    "SwallowsRuntimeErrors",
    "SwallowsValueErrors",
]

Gradients = tuple[Tensor, dict[str, Tensor]]


class SwallowsEveryError(Fallback):
    """`except Exception`: an illegal memory access yields gradients."""

    class make_block(FallbackBlock):  # noqa: N801 (overrides an attribute)
        """Falls through on every error."""

        def _falls_through(self, error: Exception) -> bool:
            return True


class SwallowsRuntimeErrors(Fallback):
    """Falls through on RuntimeError, which includes device assertions and illegal memory accesses."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on the base class."""

        def _falls_through(self, error: Exception) -> bool:
            return isinstance(error, RuntimeError)


class SwallowsDriverErrors(Fallback):
    """Takes every error of the CUDA driver for a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Ignores the driver's error code."""

        def _falls_through(self, error: Exception) -> bool:
            return super()._falls_through(error) or isinstance(error, DriverError)


class SwallowsValueErrors(Fallback):
    """Takes a programming error for a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on one error too many."""

        def _falls_through(self, error: Exception) -> bool:
            return super()._falls_through(error) or isinstance(error, ValueError)


class ForgetsJitFailures(Fallback):
    """Falls through only on out-of-memory; a kernel that cannot be compiled ends the run."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on one error too few."""

        def _falls_through(self, error: Exception) -> bool:
            return isinstance(error, torch.OutOfMemoryError)


class RaisesAnother(Fallback):
    """Wraps other errors, so `except ValueError` no longer catches them."""

    class make_block(FallbackBlock):  # noqa: N801
        """Wraps errors in RuntimeError."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            try:
                return super().backward(saved, weights, gradient)
            except Exception as error:
                raise RuntimeError(f"the backward of layer {self.layer} failed: {error}") from error


class KnowsOneException(Fallback):
    """Knows only torch's OutOfMemoryError, not the errors for missing memory in the CUDA runtime or cuBLAS."""

    class make_block(FallbackBlock):  # noqa: N801
        """Checks classes, and not the text of the runtime."""

        def _falls_through(self, error: Exception) -> bool:
            known = isinstance(error, (torch.OutOfMemoryError, CompilationFailed, DriverError))
            return known and super()._falls_through(error)


class ForgetsMissingBinaries(Fallback):
    """Knows refused PTX, but not machine code for another GPU, as sm_120's on sm_121."""

    class make_block(FallbackBlock):  # noqa: N801
        """Knows two of the driver's answers."""

        def _falls_through(self, error: Exception) -> bool:
            if isinstance(error, DriverError):
                return error.name in ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_PTX")
            return super()._falls_through(error)


class SwallowsHostMemory(Fallback):
    """Falls through when the host lacks memory, which wgpu needs as well."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on Python's MemoryError and torch's error of its CPU allocator."""

        def _falls_through(self, error: Exception) -> bool:
            host = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
            return host or super()._falls_through(error)
