"""Determines the line of the user's code, and the module, in which an operator runs."""

from __future__ import annotations

import sys
import sysconfig
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch.autograd import graph

__all__ = ["Lines", "Modules", "is_users"]

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_TORCH})
_SKIPPED, _LIBRARY, _USERS = range(3)


class Lines:
    """Finds the lines that lead to an operator."""

    def __init__(self) -> None:
        self._kinds: dict[CodeType, int] = {}
        self._callers: list[FrameType] = []

    @contextmanager
    def backward(self, settle: Callable[[Callable[..., Any]], None]) -> Iterator[None]:
        """Run backward. The engine uses its own thread, whose stack does not contain the caller.

        Args:
            settle: is called with the engine after each backward.
        """
        engine = graph._engine_run_backward
        callers = self._callers

        def run(*arguments: Any, **keywords: Any) -> Any:
            callers.append(sys._getframe(1))
            try:
                result = engine(*arguments, **keywords)
            finally:
                callers.pop()
            settle(engine)
            return result

        with ExitStack() as stack:
            for module in (graph, torch.autograd):
                stack.enter_context(mock.patch.object(module, "_engine_run_backward", run))
            yield

    def now(self) -> tuple[str, str]:
        """The innermost line of the user's code, and the line of a library between it and torch, or ''."""
        place = self._within(sys._getframe(2))
        if place is None and self._callers:
            place = self._within(self._callers[-1])
        return place or ("", "")

    def _within(self, innermost: FrameType) -> tuple[str, str] | None:
        frame: FrameType | None = innermost
        library = ""
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code)
            if kind is None:
                kind = self._kinds[code] = _kind(code)
            if kind == _USERS:
                return f"{code.co_filename}:{frame.f_lineno}", library
            if kind == _LIBRARY and not library:
                library = f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return (library, "") if library else None


def is_users(code: CodeType) -> bool:
    """Whether code belongs to the user: not to torch, another library or the probe."""
    return _kind(code) == _USERS


def _kind(code: CodeType) -> int:
    name = code.co_filename
    if name.startswith((_TORCH, _OURS, "<")):
        return _SKIPPED
    return _LIBRARY if name.startswith(_LIBRARIES) or "site-packages" in name else _USERS


class Modules:
    """Names the running module; in backward, the module whose forward recorded the node.

    Autograd numbers the nodes of a thread in order. The numbers at which modules were entered and left tell which
    module a node belongs to, without a hook on the backward pass.
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self._running: list[torch.nn.Module] = []
        self._bounds: list[int] = []
        self._inside: list[str] = []

    def entered(self, module: torch.nn.Module, _inputs: Any) -> None:
        if module not in self._names:
            root = type(module).__name__
            for name, inner in module.named_modules():
                self._names.setdefault(inner, f"{root}.{name}" if name else root)
        self._running.append(module)
        self._note()

    def left(self, module: torch.nn.Module, _inputs: Any, _outputs: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass
        self._note()

    def _note(self) -> None:
        number = torch._C._autograd._get_sequence_nr()
        if self._bounds and self._bounds[-1] == number:
            self._inside[-1] = self.running()
        else:
            self._bounds.append(number)
            self._inside.append(self.running())

    def name(self, module: torch.nn.Module) -> str:
        """The path of a module that has been entered, itself or as part of another."""
        return self._names[module]

    def running(self) -> str:
        """The module whose forward runs, or ''."""
        return self._names[self._running[-1]] if self._running else ""

    def of_node(self, node: Any) -> str:
        """The module whose forward recorded a node of the graph, or ''."""
        at = bisect_right(self._bounds, node._sequence_nr()) - 1
        return self._inside[at] if at >= 0 else ""
