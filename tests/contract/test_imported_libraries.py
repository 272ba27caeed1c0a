"""The libraries that a module imports, found in its text."""

from __future__ import annotations

from pathlib import Path

from harness.contract.imports import imported_libraries

MODULE = """
from __future__ import annotations
import os, numpy as np
from typing import TYPE_CHECKING
from .near import helper
from data.tables import ROWS
if TYPE_CHECKING:
    import pandas
else:
    import polars
try:
    from torch import nn
except ImportError:
    nn = None
class Late:
    import scipy
    def run(self):
        import jax
"""


def test_what_an_import_runs(tmp_path: Path) -> None:
    """Imports in functions and for type checkers do not count.

    Modules of the project and of Python do not count either.
    """
    (tmp_path / "toy").mkdir()
    (tmp_path / "data").mkdir()  # a package without __init__.py
    (tmp_path / "toy" / "__init__.py").write_text("import attrs\n")
    (tmp_path / "toy" / "near.py").write_text("from toy.broken import thing\nfrom transformers import Trainer\n")
    (tmp_path / "toy" / "broken.py").write_text("import (\n")
    (tmp_path / "toy" / "claim.py").write_text(MODULE)
    assert imported_libraries(["toy.claim:falsify", "toy.claim:Other", "gone.away:x"], (tmp_path,)) == {
        "attrs", "gone", "gone.away", "numpy", "polars", "scipy", "torch", "torch.nn", "transformers",
        "transformers.Trainer",
    }  # fmt: skip
