"""Mutants in this process: the project imported anew with the patches of a mutant, and as it was afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from harness.contract import Mutant
from harness.contract.project_importer import install, plant

__all__ = ["planted"]

_ROOT = Path(__file__).parents[2]


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[None]:
    """Within the context, `resolve` gives the falsifier and the subject of a mutant. Import nothing of them before."""
    if mutant is None or not mutant.patches:
        yield
        return
    kept, finders, path = _loaded(), sys.meta_path[:], sys.path[:]
    for name in kept:
        del sys.modules[name]
    install([_ROOT])
    plant(mutant.patches)
    try:
        yield
    finally:
        plant(())
        sys.meta_path[:], sys.path[:] = finders, path
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(kept)


def _loaded() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "falsifiers"}
