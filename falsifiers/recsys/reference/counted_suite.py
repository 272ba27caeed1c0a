"""Test files with the names and the numbers of cases of the source, whose own tests need fbgemm_gpu and megatron."""

from collections.abc import Mapping
from pathlib import Path

from harness import NotMeasured, Setting

_FUNCTIONS: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "test_addmm.py": {"test_addmm": {"rows": 3, "bias": 2, "activation": 2}},
    "test_hstu_layer.py": {"test_layer": {"width": 3, "heads": 4, "length": 4, "contextuals": 4}},
    "test_hstu_op.py": {
        "test_attention": {"lengths": 6, "group": 4, "causal": 2, "from_scratch": 2},
        "test_fused": {
            "history": 2, "targets": 2, "contextuals": 3, "heads": 3, "group": 2, "wgrad": 2, "norm": 2, "silu": 2,
            "only_targets": 2, "scaling": 3,
        },
    },
    "test_hstu_preprocess.py": {"test_preprocess": {"contextuals": 2, "targets": 2, "actions": 2}},
    "test_ln_mul_dropout.py": {"test_values": {"rows": 4, "width": 4, "ratio": 2}, "test_empty": {"width": 2}},
    "test_ln_silu.py": {"test_ln_silu": {"rows": 4, "width": 2}},
    "test_triton_silu.py": {"test_silu": {"rows": 3, "width": 3, "dtype": 3}},
}  # fmt: skip
"""By file and function, the number of values of each parameter."""


class StandIn:
    """The files, in the trial's workspace. Their bodies are empty, because no test runs."""

    def __init__(self, setting: Setting) -> None:
        """The parameter `stand_in` says whether they may replace the source's tests."""
        self._setting = setting

    def files(self) -> dict[str, str]:
        return {
            name: "import pytest\n" + "".join(_text(*function) for function in functions.items())
            for name, functions in _FUNCTIONS.items()
        }

    def folder(self) -> Path:
        if not self._setting.parameters["stand_in"]:
            raise NotMeasured(
                "the source's tests are not part of this project: copy examples/hstu of recsys-examples into it, and "
                "name it with --subject file:FOLDER; they import fbgemm_gpu and megatron"
            )
        folder = self._setting.workspace / "suite"
        folder.mkdir()
        for name, text in self.files().items():
            (folder / name).write_text(text)
        return folder


def _text(name: str, counts: Mapping[str, int]) -> str:
    """Return a test function with its parameters."""
    lines = [f'@pytest.mark.parametrize("{name}", range({count}))\n' for name, count in counts.items()]
    return f"\n\n{''.join(lines)}def {name}({', '.join(counts)}):\n    pass\n"
