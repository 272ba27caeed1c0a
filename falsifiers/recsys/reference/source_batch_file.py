"""The batch file of a checkout of the source, https://github.com/NVIDIA/recsys-examples, unchanged."""

from importlib.util import find_spec
from pathlib import Path

from harness import Setting
from harness.base import regular_file


class SourceJob:
    """`examples/hstu/training/benchmark/scripts/slurm_job.sub`. See `BatchFile`."""

    def __init__(self, setting: Setting) -> None:
        """The source's packages are on PYTHONPATH; the file is beside them."""
        spec = find_spec("ops")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("ops is not on PYTHONPATH; put examples/hstu and examples there")
        root = Path(next(iter(spec.submodule_search_locations))).parent
        self._path = root / "training" / "benchmark" / "scripts" / "slurm_job.sub"

    def text(self) -> str:
        return regular_file.read(self._path).decode()
