"""The smoke test of our attention, unchanged."""

from collections.abc import Mapping
from pathlib import Path

# What the tests import, so that the evidence includes these sources.
from falsifiers.recsys import attention_cases
from falsifiers.recsys.oracle import hstu
from falsifiers.recsys.reference import fused_attention, hstu_attention
from harness import Setting

TESTED = (attention_cases, hstu, fused_attention, hstu_attention)


class OwnSmokeTests:
    """`falsifiers/recsys/suites/test_hstu_smoke.py`, with no settings of pytest."""

    def __init__(self, setting: Setting) -> None: ...

    def files(self) -> Mapping[str, str]:
        file = Path(__file__).parents[1] / "suites" / "test_hstu_smoke.py"
        return {"test_hstu_smoke.py": file.read_text(encoding="utf-8"), "pytest.ini": "[pytest]\n"}
