"""The smoke test of a checkout of the source, https://github.com/NVIDIA/recsys-examples, on the CPU."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# What the plugin imports in the process of the tests, so that the evidence includes these sources.
from falsifiers.recsys.reference import smoke_stand_ins
from harness import Setting
from harness.base import regular_file

_ELSEWHERE = {'torch.device("cuda")': 'torch.device("cpu")', "        .cuda()\n": ""}


class SourceSmokeTest:
    """`examples/hstu/test/hstu_attn/test_fbgemm_hstu_smoke.py`, with its tensors on the CPU."""

    def __init__(self, setting: Setting) -> None:
        """The source's packages are on PYTHONPATH; the test is beside them."""
        spec = find_spec("ops")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("ops is not on PYTHONPATH; put examples/hstu and examples there")
        self._tests = Path(next(iter(spec.submodule_search_locations))).parent / "test" / "hstu_attn"

    def files(self) -> Mapping[str, str]:
        """Return the test, and settings of pytest that load the plugin."""
        text = self.text(self._tests / "test_fbgemm_hstu_smoke.py")
        for before, after in _ELSEWHERE.items():
            text = text.replace(before, after)
        return {"test_hstu_smoke.py": text, "pytest.ini": f"[pytest]\naddopts = -p {smoke_stand_ins.__name__}\n"}

    def text(self, path: Path) -> str:
        return regular_file.read(path).decode()
