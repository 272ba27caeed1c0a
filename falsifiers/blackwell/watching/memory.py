"""Which tensors of a device a subject holds and has written, and which it has from elsewhere."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from falsifiers.blackwell.oracle.qwen2 import Shape, TrueBlock
from falsifiers.blackwell.subjects.root_cause import DeviceMemory


class WatchedMemory:
    """A device's memory that keeps weak references to the tensors it handed out.

    Attributes:
        outside_bytes: the most bytes that torch held on the device beside these tensors, at any call of this memory and
            at the end of the watch. The workspaces of libraries do not count.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        """Wrap `memory`; count only tensors that are asked for from now on."""
        self._memory = memory
        self._handed_out: list[weakref.ref[Tensor]] = []
        self._given: set[int] = set()
        self._made = _Storages()
        self.outside_bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what torch makes in this thread until the block ends."""
        with self._made:
            yield
        self._look()

    def _look(self) -> None:
        self.outside_bytes = max(self.outside_bytes, self._made.live_bytes(self._given))

    def tensor(self, shape: Sequence[int]) -> Tensor:
        self._look()
        tensor = self._memory.tensor(shape)
        self._handed_out.append(weakref.ref(tensor))
        self._given.add(self._made.keep(tensor))
        return tensor

    def written(self, shape: Sequence[int]) -> int:
        """The number of live tensors of this shape whose last element is finite and not 0, that is, has been computed.

        Copies that one element to the host, because the device may have no memory left.
        """
        held = (reference() for reference in self._handed_out)
        last = [
            tensor[(-1,) * len(shape)].cpu()
            for tensor in held
            if tensor is not None and tensor.shape == torch.Size(shape)
        ]
        return sum(bool(number.isfinite()) and bool(number != 0) for number in last)

    def load_module(self, size: int) -> None:
        self._memory.load_module(size)

    def used(self) -> int:
        self._look()
        return self._memory.used()

    def reserved(self) -> int:
        return self._memory.reserved()

    def allocated(self) -> int:
        self._look()
        return self._memory.allocated()

    def free(self) -> int:
        return self._memory.free()

    def clear(self) -> None:
        self._memory.clear()


def trained_blocks(shape: Shape, memory: WatchedMemory) -> int:
    """The number of blocks that have run a step: the last projection's weight and its two moments are written.

    The gradient of that weight is never 0, even if all tokens are equal and the gradients of queries and keys vanish.
    """
    return memory.written(TrueBlock(shape).parameters["down.weight"]) // 3


class _Storages(TorchDispatchMode):
    """The storages that operations of torch return, in this thread and inside of the mode."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[StorageWeakRef, str, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.keep(tensor)
        return result

    def keep(self, tensor: Tensor) -> int:
        """Remember the tensor's storage; returns a number that no other storage gets while this is remembered."""
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        self._seen.setdefault(reference.cdata, (reference, tensor.device.type, storage.nbytes()))
        return int(reference.cdata)

    def live_bytes(self, given: set[int]) -> int:
        """Bytes of the storages that are alive, except the given ones. Only the given ones' device counts."""
        devices = {self._seen[key][1] for key in given}
        # A dead storage of the given ones stays, because its key may not be used again.
        self._seen = {key: entry for key, entry in self._seen.items() if key in given or not entry[0].expired()}
        return sum(size for key, (_, device, size) in self._seen.items() if key not in given and device in devices)
