"""The configuration files of a checkout of the source, https://github.com/goodfire-ai/param-decomp."""

from importlib.util import find_spec
from pathlib import Path

from harness import Setting
from harness.base import regular_file

_PACKAGE = "param_decomp_jax"
"""A folder of the checkout. It is importable if the checkout is on PYTHONPATH."""
_LARGEST = 1 << 20


class SourceFiles:
    """Files below the package's folder, as they are. See `ConfigurationFiles`."""

    def __init__(self, setting: Setting) -> None:
        """The parameter `files` has their paths from there."""
        spec = find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{_PACKAGE} is not on PYTHONPATH")
        self._folder = Path(next(iter(spec.submodule_search_locations)))
        self._files: list[str] = setting.parameters["files"]

    def text(self, number: int) -> str:
        return regular_file.read(self._folder / self._files[number], _LARGEST).decode()
