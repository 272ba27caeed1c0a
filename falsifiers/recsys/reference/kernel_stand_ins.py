"""A plugin of pytest for the tests of the source's Triton operators: it stands in for what starts megatron's ranks.

The tests ask for one rank and for a seed, and for nothing else of `commons.utils`.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch


def _initialize_distributed() -> None:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def pytest_configure(config: pytest.Config) -> None:
    """Put the stand-ins before what is installed."""
    package, module = ModuleType("commons.utils"), ModuleType("commons.utils.initialize")
    package.__path__ = []
    vars(package)["initialize"] = module
    vars(module).update(initialize_distributed=_initialize_distributed, set_random_seed=torch.manual_seed)
    sys.modules[package.__name__], sys.modules[module.__name__] = package, module
