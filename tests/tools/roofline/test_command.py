"""`harness roofline` as a user types it, under roofs that no machine measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from harness.base.schemas import problems
from harness.base.vocabulary import ExitStatus
from harness.report.terminal.printing import lines_of
from harness.tools.roofline.command import command
from harness.tools.roofline.roofs import Roof, Roofs
from harness.tools.roofline.step import Kernel
from harness.tools.roofline.text import roofline_lines
from harness.tools.roofline.work import Work
from tests.tools.roofline.given import ROOFS

STEP = "tests.tools.roofline.given:build"
KERNELS = [
    Kernel("sm90_xmma_gemm", "aten::mm", 3, 0.02, Work(1e12, 1e9, "bfloat16", True)),
    Kernel("rows", "linear_cross_entropy", 1, 0.01, None),
    Kernel("triton_poi_fused_relu", "triton_poi_fused_relu", 2, 0.004, Work(1e9, 2e9, "bfloat16", False)),
    Kernel("vectorized_add", "aten::add", 2, 0.001, Work(1e8, 2e9, "bfloat16", False)),
]


def roofline(monkeypatch: pytest.MonkeyPatch, roofs: Roofs, *arguments: str) -> Result:
    """Run the command with given roofs and kernels."""
    monkeypatch.setattr("harness.tools.roofline.document.kept", lambda kind, again: roofs)
    monkeypatch.setattr("harness.tools.roofline.document.profiled", lambda step, kind: (0.05, KERNELS))
    return CliRunner().invoke(command, arguments, standalone_mode=False)


def test_the_tables(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    done = roofline(monkeypatch, ROOFS, "--device", "cpu", STEP, "--set", "width=2", "--json", "-")
    assert done.exception is None
    document = json.loads(done.stdout)
    assert problems("roofline", document) == []
    assert [kernel["share"] for kernel in document["step"]["kernels"]] == [0.5, None, 0.5, 0.5]
    assert "\n".join(text for text, _ in lines_of(roofline_lines(document), 80)) == snapshot


def test_a_page_draws_the_kernels_of_each_dtype(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = roofline(monkeypatch, ROOFS, "--device", "cpu", STEP, "--html", str(file))
    assert done.exception is None
    assert done.return_value == ExitStatus.PASS
    page = file.read_text()
    assert page.count('<svg viewBox="0 0 360 240"') == 1
    assert "50 % of product bfloat16" in page


def test_a_peak_below_what_a_kernel_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    low = Roof("product bfloat16", 4.9e13, 4.8e13, "an arm")
    roofs = Roofs(ROOFS.device, {**ROOFS.roofs, low.name: low}, 2e-6, ROOFS.clocks, {})
    done = roofline(monkeypatch, roofs, "--device", "cpu", STEP, "--json", "-")
    assert done.return_value == ExitStatus.FAIL
    document = json.loads(done.stdout)
    assert problems("roofline", document) == []
    assert [one["operator"] for one in document["step"]["above_peak"]] == ["aten::mm"]
    assert document["step"]["kernels"][0]["share"] is None
