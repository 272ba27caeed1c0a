"""Numbers for people."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.report.messages import number_text


@pytest.mark.parametrize(
    ("measured", "unit", "written"),
    [
        (None, "", "-"), (True, "", "true"), (0, "", "0"), (210, "images", "210 images"), (0.315774123, "", "0.315774"),
        (461_119_488, "bytes", "461,119,488 bytes"), (461_119_488.0, "bytes", "461,119,488 bytes"),
        (13_118_459_904.0, "", "13,118,459,904"), (13_118_459_904.5, "", "1.31185e+10"), (50813.7, "", "50813.7"),
        (2.0**60, "", "1.15292e+18"), (2**60, "", "1.15292e+18"), (-5e6, "", "-5,000,000"), (1024, "B", "1 KiB"),
        (math.nan, "", "nan"), (-math.inf, "nats", "-inf nats"), ([1, 2, 3, 4], "", "[1, 2, 3, …] (4)"),
        ("float32", "", "float32"), ("0.5", "", '"0.5"'), ("nan", "", '"nan"'), ("", "", '""'), ("-", "", '"-"'),
    ],
)  # fmt: skip
def test_a_measured_value(measured: Any, unit: str, written: str) -> None:
    """A measured value has six digits, and a count has all."""
    assert number_text.value(measured, unit) == written


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.414, "0.41 s"), (12.34, "12.3 s"), (200, "3 min 20 s"), (7260, "2 h 1 min")]
)
def test_a_time_span(seconds: float, written: str) -> None:
    assert number_text.duration(seconds) == written
