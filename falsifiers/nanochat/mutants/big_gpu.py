"""Patches of Inductor with one known defect each."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch._inductor.config as config
import torch._inductor.utils as inductor

from falsifiers.nanochat.reference.big_gpu import EveryGpuIsBig

__all__ = ["CacheKept", "ImportsMissed", "NeverRestored", "OnlyQuiet", "WrongSymbol"]


class ImportsMissed(EveryGpuIsBig):
    """Modules that imported the function by name keep the old one."""

    def places(self, asked: object) -> list[ModuleType]:
        """Patch one module."""
        return [inductor]


class CacheKept(EveryGpuIsBig):
    """More multiprocessors are pretended, but the function remembers its answer."""

    def applied(self) -> AbstractContextManager[object]:
        """Patch what the function reads, and not its cache."""
        big = SimpleNamespace(create=lambda device: SimpleNamespace(multi_processor_count=132, major=12, minor=1))
        return patch.object(inductor, "DeviceProperties", big)


class WrongSymbol(EveryGpuIsBig):
    """The function is sought in the configuration."""

    def applied(self) -> AbstractContextManager[object]:
        """Patch a name that is not read."""
        return patch.dict(vars(config), is_big_gpu=lambda *_: True)


class OnlyQuiet(EveryGpuIsBig):
    """The warning is gone, and so is the tuning."""

    @contextlib.contextmanager
    def _applied(self) -> Iterator[None]:
        log = logging.getLogger("torch._inductor.utils")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(level)


class NeverRestored(EveryGpuIsBig):
    """The patch stays when the context has ended."""

    @contextlib.contextmanager
    def _applied(self) -> Iterator[None]:
        for module in self.places(inductor.is_big_gpu):
            module.is_big_gpu = lambda *_: True  # type: ignore[attr-defined]
        yield
