"""The tests of a checkout of the source, https://github.com/NVIDIA/recsys-examples, by file name."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# What the collecting process imports, so that the evidence includes this source.
from falsifiers.recsys.reference import collected_stand_ins
from harness import Setting
from harness.base import regular_file


class SourceSuite:
    """Files of `examples/hstu/test`, and settings of pytest that load the mocks."""

    def __init__(self, setting: Setting) -> None:
        """The source's packages are on PYTHONPATH; the tests are beside them."""
        spec = find_spec("ops")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("ops is not on PYTHONPATH; put examples/hstu and examples there")
        self._tests = Path(next(iter(spec.submodule_search_locations))).parent / "test"
        self._names: list[str] = [*setting.parameters["files"], setting.parameters["filtered_file"]]

    def files(self) -> Mapping[str, str]:
        texts = {name: self.text(self._tests / name) for name in (*self._names, "conftest.py")}
        return {**texts, "pytest.ini": f"[pytest]\naddopts = -p {collected_stand_ins.__name__}\n"}

    def text(self, path: Path) -> str:
        return regular_file.read(path).decode()
