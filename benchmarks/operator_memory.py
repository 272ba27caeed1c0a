"""What each operator of a step allocates on this GPU and frees before it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

__all__ = ["temporaries_of"]

_MARK = 77
"""Bytes of a tensor that is allocated before each operator, to find its events."""


def temporaries_of(step: Callable[[], Any]) -> dict[str, list[list[int]]]:
    """Run a step once; return the bytes of what is freed within an operator, and of what is not, by its arguments."""
    names: list[str] = []
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 20)
    with _Marking(names):
        step()
    torch.cuda.synchronize()
    found: dict[str, list[list[int]]] = {}
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    at = -1
    alive: dict[int, int] = {}
    freed: list[int] = []
    for each in events:
        action, size, address = each["action"], each["size"], each.get("addr", 0)
        if action == "alloc" and size == _MARK:
            if at >= 0 and (freed or alive):
                found.setdefault(names[at], [freed, list(alive.values())])
            at, alive, freed = at + 1, {}, []
        elif action == "alloc":
            alive[address] = size
        elif action == "free_requested" and address in alive:
            freed.append(alive.pop(address))
    return {name: sizes for name, sizes in found.items() if sizes[0]}


class _Marking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, names: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        leaves = tree_flatten((arguments, keywords or {}))[0]
        self._names.append(" ".join([str(operator), *(_described(each) for each in leaves[:12])]))
        torch.empty(_MARK, dtype=torch.uint8, device="cuda")
        return operator(*arguments, **(keywords or {}))


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    strides = "" if value.is_contiguous() else f"/{tuple(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}{strides}"
