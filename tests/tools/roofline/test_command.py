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
from harness.tools.roofline import ceiling_cache
from harness.tools.roofline.ceiling_cache import kept
from harness.tools.roofline.command import command
from harness.tools.roofline.roofs import PeakTooLowError, Roof, RooflineError, Roofs, Sizes, measured
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
    assert [operator["operator"] for operator in document["step"]["above_peak"]] == ["aten::mm"]
    assert document["step"]["kernels"][0]["share"] is None


SMALL = Sizes(rounds=2, buffer=1 << 16, widths=(32,), seconds=1e-5)


def test_a_cpu_has_bandwidths_products_and_a_launch_time() -> None:
    found = measured("cpu", SMALL)
    assert {"copy", "read", "write", "cache", "product float64", "product float32"} <= set(found.roofs)
    assert all(0 < roof.median <= roof.peak for roof in found.roofs.values())
    assert found.launch_seconds > 0
    assert found.device["kind"] == "cpu"


def test_a_device_that_is_not_there_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RooflineError):
        measured("cuda", SMALL)


def test_roofs_are_kept_by_device_and_measured_again_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    first = kept("cpu", sizes=SMALL)
    assert kept("cpu", sizes=SMALL) == first
    monkeypatch.setattr(ceiling_cache, "identity", lambda kind: {"kind": kind, "driver": "another"})
    kept("cpu", sizes=SMALL)
    assert len(list((tmp_path / "roofs").iterdir())) == 2


@pytest.mark.parametrize("content", ["", "{}", '{"roofs": 1}', "[]"])
def test_a_broken_file_of_the_cache_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("harness.tools.roofline.ceiling_cache.measured", lambda kind, sizes: ROOFS)
    kept("cpu")
    (file,) = (tmp_path / "roofs").iterdir()
    file.write_text(content)
    assert kept("cpu") == ROOFS


def test_a_share_is_of_the_peak_and_never_above_it() -> None:
    assert ROOFS.share(4e12, "product float32") == 0.4
    assert ROOFS.share(1e13, "product float32") == 1.0
    with pytest.raises(PeakTooLowError):
        ROOFS.share(1.01e13, "product float32")
    with pytest.raises(RooflineError, match="float8"):
        ROOFS.share(1.0, "product float8_e4m3fn")
