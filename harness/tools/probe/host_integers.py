"""Device integers whose values the host determines: positions, masks, and batches of a DataLoader.

Code branches on such values, for example on whether a batch has padding. So each is computed on the host too.
Floating-point numbers, and numbers drawn on the device, stay unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from harness.tools.probe.storages import KEY, Storages

__all__ = ["HostIntegers", "taken_to_be_finite"]

_LARGEST = 1 << 24
"""Maximum elements of a tensor whose values are tracked."""
_CPU = torch.device("cpu")


class HostIntegers:
    """Keeps a copy on the host of each storage of integers without memory, for as long as its values are known."""

    def __init__(self, storages: Storages, on_device: Callable[[Tensor], Tensor]) -> None:
        """`on_device` makes a tensor on the device with the shape of one on the host."""
        self._storages = storages
        self._on_device = on_device
        self._values: dict[int, torch.UntypedStorage | float] = {}
        """By the key of a storage: its bytes, or the one value of all its elements."""

    def of(self, tensor: Any) -> Tensor | None:
        """The values of a tensor; None if they are unknown."""
        if not isinstance(tensor, Tensor) or not self._storages.has(tensor):
            return tensor if isinstance(tensor, Tensor) and tensor.device == _CPU else None
        known = self._values.get(self._storages.key(tensor))
        if known is None:
            return None
        if isinstance(known, int | float):
            return torch.tensor(known, dtype=tensor.dtype, device=_CPU).expand(tensor.shape)
        found = torch.empty(0, dtype=tensor.dtype, device=_CPU)
        return found.set_(known, tensor.storage_offset(), tensor.shape, tensor.stride())

    def know(self, tensor: Tensor, value: float) -> Tensor:
        """Set the known value of all elements of a tensor's storage."""
        if self._storages.follows(tensor):
            self._values[self._storages.key(tensor)] = value
        return tensor

    def follow(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        """Record the values of an operator's result, and of the arguments that it changes."""
        if operator._schema.is_mutable:
            self._follow_changes(operator, arguments, keywords)
        elif (
            torch.Tag.nondeterministic_seeded not in operator.tags
            and self._is_countable(result)
            and self._storages.key(result) not in self._values
        ):
            self._keep(result, self._computed(operator, arguments, keywords))

    def _follow_changes(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """If all values that an operator reads are known, run it on the host too."""
        changed = []
        for place, argument in enumerate(operator._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = arguments[place] if place < len(arguments) else keywords.get(argument.name)
                changed += [each for each in tree_flatten(given)[0] if isinstance(each, Tensor)]
        known = [each for each in changed if self._storages.has(each) and self._storages.key(each) in self._values]
        if not known:
            self._follow_copy(operator, arguments)
            return
        is_computed = torch.Tag.nondeterministic_seeded not in operator.tags and all(
            not isinstance(self._values[self._storages.key(each)], int | float) for each in known
        )
        if not is_computed or self._computed(operator, arguments, keywords) is None:
            for each in known:
                self._values.pop(self._storages.key(each), None)

    def _follow_copy(self, operator: Any, arguments: tuple[Any, ...]) -> None:
        """A copy into a whole tensor takes over the known values of the source."""
        if operator is torch.ops.aten.copy_.default and self._is_countable(arguments[0]):
            source = self.of(arguments[1])
            size = self._storages.size(arguments[0])
            if source is not None and size == arguments[0].numel() * arguments[0].element_size():
                self._keep(arguments[0], source.to(arguments[0].dtype).expand(arguments[0].shape))

    def computed_anew(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of an operator that depends on values; None if the values are unknown."""
        if operator is torch.ops.aten.index.Tensor:
            return self._indexed(*arguments)
        found = self._computed(operator, arguments, keywords)
        return self._kept(found) if isinstance(found, Tensor) else found

    def _indexed(self, tensor: Tensor, indices: list[Tensor | None]) -> Any:
        """The part of a tensor that known masks select."""
        places: list[Tensor | None] = []
        for each in indices:
            if each is None or each.dtype is not torch.bool:
                places.append(each)
                continue
            known = self.of(each)
            if known is None:
                return None
            places += [self._kept(index) for index in known.nonzero().unbind(1)]
        with torch._C._IncludeDispatchKeyGuard(KEY):
            return torch.ops.aten.index.Tensor(tensor, places)

    def _computed(self, operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves = [each for each in tree_flatten((arguments, keywords))[0] if isinstance(each, Tensor)]
        if any(self.of(each) is None for each in leaves):
            return None
        if keywords.get("device") is not None:
            keywords = {**keywords, "device": _CPU}
        elif not leaves:
            return None
        arguments, keywords = tree_map_only(Tensor, self.of, (arguments, keywords))
        with contextlib.suppress(RuntimeError, NotImplementedError):
            return operator(*arguments, **keywords)
        return None

    def _kept(self, host: Tensor) -> Tensor:
        """A tensor on the device with known values."""
        made = self._on_device(host)
        self._keep(made, host)
        return made

    def _keep(self, tensor: Tensor, values: Any) -> None:
        if isinstance(values, Tensor):
            host = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU).copy_(values)
            if host.untyped_storage().nbytes() == self._storages.size(tensor):
                self._values[self._storages.key(tensor)] = host.untyped_storage()

    def _is_countable(self, result: Any) -> bool:
        return (
            isinstance(result, Tensor)
            and not result.dtype.is_floating_point
            and not result.dtype.is_complex
            and result.numel() <= _LARGEST
            and self._storages.has(result)
        )


@contextlib.contextmanager
def taken_to_be_finite(known: HostIntegers) -> Iterator[None]:
    """Let `torch.isfinite`, a composition of several operators, return True."""
    finite = torch.isfinite

    def answer(tensor: Tensor) -> Tensor:
        return known.know(finite(tensor), True)

    with mock.patch.object(torch, "isfinite", answer), mock.patch.object(torch.Tensor, "isfinite", answer):
        yield
