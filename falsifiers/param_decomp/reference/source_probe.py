"""The memory probe of a checkout of the source, https://github.com/goodfire-ai/param-decomp, and its batch file."""

from importlib.util import find_spec
from pathlib import Path

from harness import Setting
from harness.base import regular_file

_LARGEST = 1 << 20


class SourceProbe:
    """`mem_probe.py` and `mem_probe_l18-26.sbatch`, as they are. See `ProbeFiles`."""

    def __init__(self, setting: Setting) -> None:
        """The checkout is on PYTHONPATH, so its folder param_decomp_jax can be imported."""
        spec = find_spec("param_decomp_jax")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("param_decomp_jax is not on PYTHONPATH")
        self._folder = Path(next(iter(spec.submodule_search_locations))) / "jax_single_pool" / "experiments"

    def program(self) -> str:
        return regular_file.read(self._folder / "mem_probe.py", _LARGEST).decode()

    def batch_file(self) -> str:
        return regular_file.read(self._folder / "mem_probe_l18-26.sbatch", _LARGEST).decode()
