"""How much slower than the reference a GPU is, by the results that are kept for it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.base import strictjson
from harness.tools.roofline.pace import MOST, REFERENCE, pace
from harness.tools.roofline.roofs import Roof
from tests.tools.roofline.given import ROOFS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept roofs; empty."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    made = tmp_path / "roofs"
    made.mkdir()
    return made


def keep(folder: Path, name: str, memory: float, product: float, age: float = 0.0, kind: str = "cuda") -> Path:
    """Keep a result, as `harness.tools.roofline.ceiling_cache` does; rates as shares of the reference's."""
    rates = {arm: memory * REFERENCE["memory"] * share for arm, share in (("copy", 1.0), ("read", 0.9), ("write", 0.8))}
    rates["product bfloat16"] = product * REFERENCE["product bfloat16"]
    roofs = {arm: Roof(arm, rate, rate, "an arm") for arm, rate in rates.items()}
    told = replace(ROOFS, device={**ROOFS.device, "kind": kind, "name": name}, roofs=roofs)
    file = folder / f"{kind}-{len(list(folder.iterdir())):016x}.json"
    strictjson.dump({**told.to_json(), "step": None}, file)
    os.utime(file, (1e9 - age, 1e9 - age))
    return file


@pytest.mark.parametrize(
    ("memory", "product", "expected"),
    [
        (1.0, 1.0, 1.0),
        (2.0, 3.0, 1.0),  # never shorter than the contract says
        (1 / 17, 1 / 12, 17.0),
        (1 / 3, 1 / 12, 12.0),
        (1e-9, 1.0, MOST),
    ],
)
def test_the_slower_of_memory_and_products_counts(folder: Path, memory: float, product: float, expected: float) -> None:
    keep(folder, "NVIDIA GB10", memory, product)
    assert pace("NVIDIA GB10") == expected
    assert pace("NVIDIA H200") == 1.0


def test_the_newest_result_counts(folder: Path) -> None:
    """A newer driver has a file of its own."""
    keep(folder, "NVIDIA GB10", 0.25, 0.5, age=10.0)
    keep(folder, "NVIDIA GB10", 0.5, 0.5)
    keep(folder, "NVIDIA GB10", 0.125, 0.5, age=20.0)
    assert pace("NVIDIA GB10") == 2.0


@pytest.mark.parametrize("content", ["", "[]", '{"device": {"name": "NVIDIA GB10"}}', '{"device": 3}'])
def test_what_cannot_be_read_changes_nothing(folder: Path, content: str) -> None:
    keep(folder, "NVIDIA GB10", 1.0, 0.01, kind="cpu")
    (folder / "cuda-0.json").write_text(content)
    assert pace("NVIDIA GB10") == 1.0


def test_a_plan_asks_without_torch() -> None:
    code = "import sys, harness.tools.roofline.pace; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
