"""Integers on the device whose values follow from the host: positions, masks, and batches of a DataLoader.

Code decides on such values, for example whether a batch has padding. So each is computed on the host too. Numbers
with a fraction, and those that are drawn on the device, stay unknown.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_flatten, tree_map_only

__all__ = ["HostIntegers", "known_as", "seen_as_real", "taken_to_be_finite"]

_LARGEST = 1 << 24
"""Elements of a tensor whose values are kept."""
_CPU = torch.device("cpu")


class HostIntegers:
    """Keeps a copy on the host beside each fake tensor of integers, for as long as it is known."""

    def __init__(self) -> None:
        self._changed: set[int] = set()

    def of(self, tensor: Any) -> torch.Tensor | None:
        """The values of a tensor; None if they are not known."""
        if not isinstance(tensor, FakeTensor):
            return tensor if isinstance(tensor, torch.Tensor) and tensor.device == _CPU else None
        known: torch.Tensor | None = getattr(tensor, "_known", None)
        if known is None or known.untyped_storage()._cdata in self._changed:
            return None
        return known

    def follow(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        """Note the values of an operator's result, and what it changes."""
        computed: Any = None
        if _is_countable(result) and torch.Tag.nondeterministic_seeded not in operator.tags:
            computed = self._computed(operator, arguments, keywords)
        if isinstance(computed, torch.Tensor):
            self._changed.discard(computed.untyped_storage()._cdata) if not operator._schema.is_mutable else None
            result._known = computed
        elif operator._schema.is_mutable:
            for each in tree_flatten((arguments, keywords))[0]:
                known = getattr(each, "_known", None) if isinstance(each, FakeTensor) else None
                if known is not None:
                    self._changed.add(known.untyped_storage()._cdata)

    def computed_anew(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of an operator that depends on values; None if the values are not known."""
        if operator is torch.ops.aten.index.Tensor:
            return self._indexed(*arguments)
        found = self._computed(operator, arguments, keywords)
        return _on_device(found) if isinstance(found, torch.Tensor) else found

    def _indexed(self, tensor: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
        """The part of a tensor that known masks select."""
        places: list[torch.Tensor | None] = []
        for each in indices:
            if each is None or each.dtype is not torch.bool:
                places.append(each)
                continue
            known = self.of(each)
            if known is None:
                return None
            with unset_fake_temporarily():
                found = known.nonzero().unbind(1)
            places += [_on_device(one) for one in found]
        return torch.ops.aten.index.Tensor(tensor, places)

    def _computed(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves = [each for each in tree_flatten((arguments, keywords))[0] if isinstance(each, torch.Tensor)]
        if any(self.of(each) is None for each in leaves):
            return None
        if keywords.get("device") is not None:
            keywords = {**keywords, "device": _CPU}
        elif not leaves:
            return None
        arguments, keywords = tree_map_only(torch.Tensor, self.of, (arguments, keywords))
        with unset_fake_temporarily(), contextlib.suppress(RuntimeError, NotImplementedError):
            return operator(*arguments, **keywords)
        return None


def known_as(result: torch.Tensor, value: bool) -> torch.Tensor:
    """Take all values of a tensor of booleans to be this one."""
    if isinstance(result, FakeTensor):
        with unset_fake_temporarily():
            result._known = torch.tensor(value).expand(result.shape)  # type: ignore[attr-defined]
    return result


@contextlib.contextmanager
def taken_to_be_finite() -> Iterator[None]:
    """Let `torch.isfinite`, which is made of several operators, answer True."""
    finite = torch.isfinite

    def answer(tensor: torch.Tensor) -> torch.Tensor:
        return known_as(finite(tensor), True)

    with mock.patch.object(torch, "isfinite", answer), mock.patch.object(torch.Tensor, "isfinite", answer):
        yield


def _on_device(known: torch.Tensor) -> Any:
    result: Any = torch.empty_like(known, device="cuda")
    result._known = known
    return result


def _is_countable(result: Any) -> bool:
    return (
        isinstance(result, FakeTensor)
        and not result.dtype.is_floating_point
        and not result.dtype.is_complex
        and result.fake_device.type == "cuda"
        and result.numel() <= _LARGEST
    )


@contextlib.contextmanager
def seen_as_real() -> Iterator[None]:
    """Let transformers, if it is imported, decide on values as it does without fake tensors."""
    module = sys.modules.get("transformers.utils.import_utils")
    if module is None:
        yield
        return
    with mock.patch.object(module, "is_fake_tensor", return_value=False, create=True):
        yield
