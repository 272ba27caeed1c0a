"""Inductor's tuning on a GPU with few multiprocessors."""

import contextlib
import sys
from collections.abc import Iterator, Mapping

import torch._inductor.utils as inductor

from harness import Setting


class EveryGpuIsBig:
    """Makes `is_big_gpu` return True, under every name with which Inductor's modules import it. See `SmallGpuPatch`."""

    def __init__(self, setting: Setting) -> None: ...

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        original = inductor.is_big_gpu
        named = [module for name, module in list(sys.modules.items()) if name.startswith("torch._inductor")]
        places = [module for module in named if getattr(module, "is_big_gpu", None) is original]
        try:
            for module in places:
                module.is_big_gpu = lambda *_: True  # type: ignore[attr-defined]
            yield
        finally:
            for module in places:
                module.is_big_gpu = original  # type: ignore[attr-defined]

    def environment(self) -> Mapping[str, str]:
        """See `SmallGpuPatch`."""
        return {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM": "1"}
