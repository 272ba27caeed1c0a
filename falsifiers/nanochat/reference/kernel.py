"""A Triton kernel for both a GPU and a CPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


class Kernel:
    """A kernel that is compiled on CUDA and runs in Triton's interpreter on a CPU."""

    def __init__(self, function: Any, varying: Sequence[str] = ()) -> None:
        """Args:
        varying: integer arguments that do not trigger recompilation, because they vary often.
        """
        self._compiled = JITFunction(function, do_not_specialize=varying)
        self._interpreted = InterpretedFunction(function)

    def launch(self, grid: tuple[int, ...], on: Tensor, *arguments: Any, **constants: Any) -> None:
        """Run a grid of programs on the device of the tensor `on`."""
        if not on.is_cuda:
            constants.pop("num_warps", None)
            self._interpreted[grid](*arguments, **constants)
            return
        with torch.cuda.device_of(on):
            self._compiled[grid](*arguments, **constants)
