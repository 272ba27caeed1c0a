"""DistributedDataParallel without its C++ reducer, which needs GPU events and the other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

__all__ = ["reducing"]

_FIRST_BUCKET, _BUCKET = 1 << 20, 25 << 20
"""Bytes of the first bucket and of the others, when they are rebuilt after the first backward (`reducer.hpp`)."""


class _Reducer:
    """The gradient buckets, allocated when torch's Reducer allocates them.

    It reduces nothing. Each bucket is one flat tensor. A gradient is copied into it, and replaced by a view of it with
    `gradient_as_bucket_view`. After the first backward, the buckets are rebuilt in the order in which the gradients
    became ready.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        buckets: Sequence[Sequence[int]],
        _limits: Any,
        _group: Any,
        _sparse: Any,
        cap: int = _BUCKET,
        finds_unused: bool = False,
        has_views: bool = False,
        _names: Any = None,
        first_cap: int = _FIRST_BUCKET,
        *_others: Any,
    ) -> None:
        self._parameters = list(parameters)
        self._has_views = has_views
        self._caps = [first_cap, cap]
        self._order: list[int] | None = None if finds_unused else []
        self._is_due = False
        self._make(buckets)
        for number, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, number=number: self._ready(number)
            )

    def _make(self, buckets: Sequence[Sequence[int]]) -> None:
        self._views: dict[int, torch.Tensor] = {}
        for bucket in buckets:
            members = [self._parameters[number] for number in bucket]
            flat = torch.empty(sum(each.numel() for each in members), dtype=members[0].dtype, device=members[0].device)
            parts = torch.split(flat, [each.numel() for each in members])
            for number, part in zip(bucket, parts, strict=True):
                self._views[number] = part.view_as(self._parameters[number])

    def _ready(self, number: int) -> None:
        if not self._is_due:
            return
        if self._order is not None and number not in self._order:
            self._order.append(number)
        if self._has_views:
            self._parameters[number].grad = self._views[number]

    def prepare_for_backward(self, _outputs: Any) -> None:
        self._is_due = True

    def prepare_for_forward(self) -> None:
        self._is_due = False

    def _rebuild_buckets(self) -> bool:
        if not self._order or len(self._order) < len(self._parameters):
            return False
        numbers, self._order = self._order, None
        assigned: Any = torch.distributed._compute_bucket_assignment_by_size
        tensors = [self._parameters[number] for number in numbers]
        buckets, _ = assigned(tensors, self._caps, [False] * len(tensors), numbers)
        self._make(buckets)
        return True

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments, **_keywords: None


class _Logger:
    def __init__(self, _reducer: _Reducer) -> None: ...

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments, **_keywords: None


@contextmanager
def reducing() -> Iterator[None]:
    """Let DistributedDataParallel use the buckets of this module."""
    if not torch.distributed.is_available():
        yield
        return
    from torch.nn.parallel import distributed

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.distributed, "Reducer", _Reducer))
        stack.enter_context(mock.patch.object(torch.distributed, "Logger", _Logger))
        verified = "_verify_param_shape_across_processes"
        stack.enter_context(mock.patch.object(distributed, verified))
        yield
