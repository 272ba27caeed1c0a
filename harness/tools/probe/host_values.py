"""Decides which operators really run on the host: those on counters, indices and data that a step reads.

Values on the host decide which batch is next or which rank has which shard, and use no device memory. Whole models on
the host stay fake, because they may exceed the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["is_on_host"]

_LARGEST = 1 << 24
"""Maximum elements of an integer tensor that is really allocated."""
_INTEGERS = (torch.ops.aten.arange, torch.ops.aten.randperm, torch.ops.aten.randint)
"""Operators whose results are integers by default."""
_CPU = torch.device("cpu")


def is_on_host(
    operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], is_followed: Callable[[torch.Tensor], bool]
) -> bool:
    """Whether an operator has only real tensors as arguments, or makes integers, and its result is on the host.

    `is_followed` says whether a tensor has no memory.
    """
    device = keywords.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    are_there = False
    for each in _tensors((*arguments, *keywords.values())):
        if each.device != _CPU or is_followed(each):
            return False
        are_there = True
    return are_there or _makes_integers(operator, arguments, keywords)


def _makes_integers(operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    dtype = keywords.get("dtype")
    if dtype is None and operator.overloadpacket in _INTEGERS and all(isinstance(each, int) for each in arguments[:1]):
        dtype = torch.int64
    if dtype is None or dtype.is_floating_point or dtype.is_complex:
        return False
    size = arguments[0] if arguments and isinstance(arguments[0], list | tuple) else ()
    count = 1
    for each in size:
        count *= int(each)
    return count <= _LARGEST


def _tensors(values: tuple[Any, ...] | list[Any]) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)
