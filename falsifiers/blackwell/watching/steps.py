"""What else works while a subject takes steps: torch's own matrix products, and processes that it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["PRODUCTS", "StepWatch", "watching_steps"]

PRODUCTS: Final = frozenset(
    getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "addbmm", "dot", "mv")
)
"""The operations by which torch multiplies matrices."""

_STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})


@dataclass
class StepWatch:
    """What was seen."""

    products: int = 0
    """Matrix products that torch made, those of its autograd included."""
    children: list[str] = field(default_factory=list)
    """How each process was started, and what runs in it."""


@contextmanager
def watching_steps() -> Iterator[StepWatch]:
    """Look on; processes are seen that Python starts, whichever library asked it to."""
    seen, looking = StepWatch(), [True]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if looking and event in _STARTS:
            seen.children.append(f"{event} {str(arguments[0])[:200] if arguments else ''}".rstrip())

    sys.addaudithook(heard)  # for the rest of this process, which is a trial's: there is no taking it back
    try:
        with _Products(seen):
            yield seen
    finally:
        looking.clear()


class _Products(TorchDispatchMode):
    def __init__(self, seen: StepWatch) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._seen.products += func in PRODUCTS
        return func(*args, **(kwargs or {}))
