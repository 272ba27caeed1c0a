"""The AST preprocessors of several versions of NVIDIA's cutlass-dsl."""

from importlib.util import find_spec
from pathlib import Path

from harness import Setting
from harness.base import regular_file

_FOLDER = "cutlass_dsl_versions"
"""On PYTHONPATH, with `VERSION/ast_preprocessor.py` of each wheel."""


class CutlassVersions:
    """`cutlass/base_dsl/ast_preprocessor.py` of the wheels, unchanged."""

    def __init__(self, setting: Setting) -> None:
        spec = find_spec(_FOLDER)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{_FOLDER} is not on PYTHONPATH")
        self._folder = Path(next(iter(spec.submodule_search_locations)))

    def text(self, version: str) -> str:
        return regular_file.read(self._folder / version / "ast_preprocessor.py").decode()
