"""The peak of live tensor storage during a block, on any device."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class TooMuch(Exception):
    """More bytes are live than the cap allows."""


class LiveStorage(TorchDispatchMode):
    """Counts the bytes of every storage that an operation returns, until it is freed.

    Earlier storages are not counted.

    Attributes:
        peak: the largest sum so far.
        live: the present sum.
    """

    def __init__(self, cap: int | None = None) -> None:
        """Args: cap: bytes; an operation that exceeds it raises TooMuch."""
        super().__init__()
        self.cap = cap
        self.peak = self.live = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        for tensor in tree_iter((arguments, keywords)):  # an in-place operation, or a view, returns one of these
            if isinstance(tensor, Tensor):
                self._known.add(tensor.untyped_storage())
        result = function(*arguments, **(keywords or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                self._keep(tensor.untyped_storage())
        return result

    def _keep(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, size)
        if self.cap is not None and self.live > self.cap:
            raise TooMuch(f"{self.live} bytes are live, {self.cap} are allowed")

    def _free(self, size: int) -> None:
        self.live -= size
