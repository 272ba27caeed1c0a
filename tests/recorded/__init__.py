"""Recorded answers of NVML, and a way to replay them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent
STAND_IN = FOLDER / "stand_in"


def replay(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Let this process find the recorded device, and the memory of its machine; return the stand-in for pynvml."""
    from harness.machine import host

    monkeypatch.setenv("HARNESS_TEST_NVML", name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.syspath_prepend(str(STAND_IN))
    # Setting it first makes monkeypatch restore the previous import later, and drop the stand-in.
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    del sys.modules["pynvml"]
    memory = json.loads((FOLDER / f"nvml-{name}.json").read_text())["mem_total_kib"]
    monkeypatch.setattr(host, "_TOTAL_MEMORY", memory * 1024)
    module = importlib.import_module("pynvml")
    assert Path(str(module.__file__)).parent == STAND_IN
    return module
