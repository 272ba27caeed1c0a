"""Other work during a subject's steps: matrix products of torch, and child processes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS: Final = frozenset(
    getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "addbmm", "dot", "mv")
)
"""torch's operations that multiply matrices."""

_STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})


@dataclass
class StepWatch:
    """Products and child processes seen so far."""

    products: int = 0
    """Matrix products of torch, including those of autograd."""
    children: list[str] = field(default_factory=list)
    """The call that started each process, and its program."""


@contextmanager
def watching_steps() -> Iterator[StepWatch]:
    """Watch until the block ends. Processes are seen if Python starts them, in whichever library."""
    seen, looking = StepWatch(), [True]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if looking and event in _STARTS:
            seen.children.append(f"{event} {str(arguments[0])[:200] if arguments else ''}".rstrip())

    sys.addaudithook(heard)  # an audit hook cannot be removed; the process ends with the trial
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
