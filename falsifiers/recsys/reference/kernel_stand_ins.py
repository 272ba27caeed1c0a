"""A pytest plugin for the tests of the source's Triton operators: it replaces the start of megatron's ranks.

Of `commons.utils`, the tests use only the start of one rank and a seed.
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
    """Let the replacements take precedence over installed packages."""
    package, module = ModuleType("commons.utils"), ModuleType("commons.utils.initialize")
    package.__path__ = []
    vars(package)["initialize"] = module
    vars(module).update(initialize_distributed=_initialize_distributed, set_random_seed=torch.manual_seed)
    sys.modules[package.__name__], sys.modules[module.__name__] = package, module
