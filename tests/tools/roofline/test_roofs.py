"""Roofs that are measured on this machine's processor, and given ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tools.roofline import ceiling_cache
from harness.tools.roofline.ceiling_cache import kept
from harness.tools.roofline.roofs import PeakTooLowError, RooflineError, Sizes, measured
from tests.tools.roofline.given import ROOFS

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
