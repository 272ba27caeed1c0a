"""Fallbacks that fall for too much, or for too little: mutants of F-BLACKWELL-WGPU-FALLBACK-001."""

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
    """`except Exception`: an illegal memory access is answered with gradients."""

    class make_block(FallbackBlock):  # noqa: N801 (overrides an attribute)
        """Falls through on everything."""

        def _falls_through(self, error: Exception) -> bool:
            return True


class SwallowsRuntimeErrors(Fallback):
    """torch's out-of-memory is a RuntimeError, and so are an assertion on the device and an illegal memory access."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on the base class."""

        def _falls_through(self, error: Exception) -> bool:
            return isinstance(error, RuntimeError)


class SwallowsDriverErrors(Fallback):
    """Whatever the CUDA driver refuses counts as a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Does not ask what the driver said."""

        def _falls_through(self, error: Exception) -> bool:
            return super()._falls_through(error) or isinstance(error, DriverError)


class SwallowsValueErrors(Fallback):
    """A mistake of the program counts as a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on one error too many."""

        def _falls_through(self, error: Exception) -> bool:
            return super()._falls_through(error) or isinstance(error, ValueError)


class ForgetsJitFailures(Fallback):
    """Only the out-of-memory falls through; a kernel that cannot be compiled ends the run."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on one error too few."""

        def _falls_through(self, error: Exception) -> bool:
            return isinstance(error, torch.OutOfMemoryError)


class RaisesAnother(Fallback):
    """Other errors come out wrapped: who catches ValueError does not catch this."""

    class make_block(FallbackBlock):  # noqa: N801
        """Wraps."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            try:
                return super().backward(saved, weights, gradient)
            except Exception as error:
                raise RuntimeError(f"the backward of layer {self.layer} failed: {error}") from error


class KnowsOneException(Fallback):
    """torch's OutOfMemoryError; where the CUDA runtime or cuBLAS has no memory, torch raises something else."""

    class make_block(FallbackBlock):  # noqa: N801
        """Looks at classes, and not at what the runtime said."""

        def _falls_through(self, error: Exception) -> bool:
            known = isinstance(error, (torch.OutOfMemoryError, CompilationFailed, DriverError))
            return known and super()._falls_through(error)


class ForgetsMissingBinaries(Fallback):
    """PTX that the driver refuses is known; machine code for another GPU, as sm_120's on sm_121, is not."""

    class make_block(FallbackBlock):  # noqa: N801
        """Knows two of the driver's answers."""

        def _falls_through(self, error: Exception) -> bool:
            if isinstance(error, DriverError):
                return error.name in ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_PTX")
            return super()._falls_through(error)


class SwallowsHostMemory(Fallback):
    """A lack of memory is one, wherever: also the host's, which wgpu's journey needs as well."""

    class make_block(FallbackBlock):  # noqa: N801
        """Falls through on Python's MemoryError and on what torch says of its allocator on the CPU."""

        def _falls_through(self, error: Exception) -> bool:
            host = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
            return host or super()._falls_through(error)
