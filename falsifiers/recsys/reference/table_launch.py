"""Launches of the dynamic embedding table's kernels: compiled on CUDA, interpreted on a CPU."""

from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.reference.interpreter import interpreted

ROWS = (8, 4)
"""Rows per program that reads or writes rows, and its warps, on a GPU."""
_COMPILED: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, device: torch.device, programs: int, *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """Run a kernel. The device of a CUDA table has an index.

    Triton's own launcher takes longer to find a compiled kernel than a short one runs, so the result is cached for each
    set of constants. Its key covers nothing else: `aligned` tensors are multiples of 16 bytes, and kernels fix the
    widths of numbers.
    """
    if not programs:
        return
    if device.type != "cuda":
        interpreted(kernel)[(programs,)](*arguments, **constants)
        return
    if torch.cuda.current_device() != device.index:
        with torch.cuda.device(device):
            launch(kernel, device, programs, *arguments, warps=warps, **constants)
        return
    key = (kernel.fn, device.index, warps, *constants.values())
    compiled = _COMPILED.get(key)
    if compiled is None:
        _COMPILED[key] = kernel[(programs,)](*arguments, **constants, num_warps=warps)
        return
    plain = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
    compiled[(programs, 1, 1)](*plain, *constants.values())


def launch_rows(
    kernel: Any, device: torch.device, rows: int, numbers: int, *arguments: Any, parts: int = 0, most: int = 0,
    **constants: Any,
) -> None:  # fmt: skip
    """Run a kernel whose programs have blocks of rows of this many numbers.

    Args:
        parts: blocks per program, if the kernel takes this argument; one in the interpreter.
        most: the largest number of programs, if each takes several blocks in turn; the kernel gets the number of
            blocks.
    """
    block, warps = ROWS if device.type == "cuda" else (power_from(min(rows, 256)), 4)
    if parts:
        parts = parts if device.type == "cuda" else 1
        constants["parts"] = parts
    programs = blocks_of(rows, block * (parts or 1))
    if most:
        programs = min(programs, most)
        arguments = (*arguments, programs)
    columns = power_from(numbers)
    launch(kernel, device, programs, *arguments, **constants, block=block, columns=columns, warps=warps)


def blocks_of(items: int, block: int) -> int:
    """Return the number of blocks for these items. `triton.cdiv` takes longer than a launch."""
    return -(-items // block)


def power_from(number: int) -> int:
    """Return the smallest power of two that is at least this number and 1."""
    return 1 << max(number - 1, 0).bit_length()


def aligned(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor whose address is a multiple of 16."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() & 15 else tensor
