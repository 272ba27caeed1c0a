"""The Triton operators of a checkout of the source, https://github.com/NVIDIA/recsys-examples, with their tests."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# What the plugin imports in the process of the tests, so that the evidence includes this source.
from falsifiers.recsys.reference import kernel_stand_ins
from harness import Setting
from harness.base import regular_file


class SourceKernels:
    """Files of `examples/hstu/test`, and their imports from `examples/hstu/ops` and `examples/commons/ops`."""

    def __init__(self, setting: Setting) -> None:
        """The source's packages are on PYTHONPATH; the tests are beside them."""
        specs = {name: find_spec(name) for name in ("ops", "commons.ops")}
        places = {name: Path(next(iter(spec.submodule_search_locations or ()))) for name, spec in specs.items() if spec}
        if len(places) < len(specs):
            raise ModuleNotFoundError("the source is not on PYTHONPATH; put examples/hstu and examples there")
        self._ops, self._common = places["ops"], places["commons.ops"]
        self._names: list[str] = setting.parameters["files"]

    def files(self) -> Mapping[str, str]:
        """Return the text of each file by its path, and settings of pytest that load the plugin."""
        tests = {name: self._ops.parent / "test" / name for name in self._names}
        operators = {f"ops/{path.relative_to(self._ops)}": path for path in self._ops.rglob("*.py")}
        common = {f"commons/ops/{path.relative_to(self._common)}": path for path in self._common.rglob("*.py")}
        texts = {name: self.text(path) for name, path in (tests | operators | common).items()}
        return {**texts, "pytest.ini": f"[pytest]\naddopts = -p {kernel_stand_ins.__name__}\n"}

    def text(self, path: Path) -> str:
        """Return the text of a file."""
        return regular_file.read(path).decode()
