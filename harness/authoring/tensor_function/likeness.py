"""Derives an example function from one set of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from harness.authoring.tensor_function.drawing import Arguments, Draw

__all__ = ["like"]


def like(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[Draw], Arguments]:
    """Return an example function that draws arguments like these.

    - Equal sizes of tensors become one named size. So give different sizes to different dimensions.
    - Floating-point tensors with the first one's dtype take the case's dtype. Others keep theirs.
    - An integer tensor holds indices. Their upper bound is the smallest size of a floating-point tensor that exceeds
      the largest element, preferably not a size of the integer tensor itself. Its negative elements, such as -100,
      are drawn too.
    - A float takes a second value in some cases. Integers, flags and strings stay constant.
    """
    floating = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.is_floating_point()]
    main = floating[0].dtype if floating else None
    sizes = sorted({size for tensor in floating for size in tensor.shape})

    def size_of(draw: Draw, size: int) -> int:
        return draw.size(f"n{size}", usual=size)

    def index(draw: Draw, tensor: Tensor, shape: list[int]) -> Tensor:
        largest = int(tensor.max()) if tensor.numel() else 0
        larger = [size for size in sizes if size > largest]
        apart = [size for size in larger if size not in tensor.shape] or larger
        negative = tuple(sorted({number for number in tensor.flatten().tolist() if number < 0}))
        below = size_of(draw, apart[0]) if apart else largest + 1
        return draw.index(*shape, below=below, also=negative).to(tensor.dtype)

    def draw_like(draw: Draw, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            shape = [size_of(draw, size) for size in value.shape]
            if value.is_floating_point():
                dtype = None if value.dtype == main else str(value.dtype).removeprefix("torch.")
                return draw.tensor(*shape, dtype=dtype)
            return draw.mask(*shape) if value.dtype == torch.bool else index(draw, value, shape)
        return draw.choice(name, value, 1.5 * value + 0.125) if type(value) is float else value

    def example(draw: Draw) -> Arguments:
        positional = tuple(draw_like(draw, f"argument {place}", value) for place, value in enumerate(args))
        return positional, {name: draw_like(draw, name, value) for name, value in kwargs.items()}

    return example
