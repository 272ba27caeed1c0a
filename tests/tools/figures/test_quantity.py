"""Quantities as documents print them, and exact conversions between units."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.tools.figures.quantity import Printed, converted, numbers_in, printed


@pytest.mark.parametrize(
    ("text", "value", "unit", "sign"),
    [
        ("~20,000 iterations", "20000", "iterations", "~"),
        ("≈ 3", "3", "", "~"),
        ("17,590", "17590", "", ""),
        ("0.98x", "0.98", "x", ""),
        ("1e-5", "0.00001", "", ""),
        ("40 %", "40", "%", ""),
        ("200k steps", "200000", "steps", ""),
        ("27+ kernels", "27", "kernels", "+"),
        ("200-byte", "200", "byte", ""),
        ("-66%", "-66", "%", ""),
        ("≤ 5 %", "5", "%", "≤"),
        ("1,234.5 MB", "1234.5", "MB", ""),
        ("2 kg", "2", "kg", ""),
    ],
)
def test_printed(text: str, value: str, unit: str, sign: str) -> None:
    assert printed(text) == Printed(Fraction(value), unit, sign)


@pytest.mark.parametrize("text", ["", "about 20", "x", "~", "~20+", ".5"])
def test_what_begins_with_no_number(text: str) -> None:
    assert printed(text) is None


@pytest.mark.parametrize("text", ["1e999999999", "9" * 100_000, "1,000" * 10_000, "1." + "3" * 100_000])
def test_no_number_takes_long(text: str) -> None:
    """What is longer than any number that is meant is not read to its end."""
    assert all(abs(number) < 10**31 for number in numbers_in(text))
    read = printed(text)
    assert read is not None
    assert read.unit


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected"),
    [
        ("1", "GiB", "bytes", "1073741824"),
        ("1", "GB", "bytes", "1000000000"),
        ("40", "%", "ratio", "0.4"),
        ("1.05", "x", "ratio", "1.05"),
        ("1", "ms", "s", "0.001"),
        ("62", "TFLOPS", "FLOP/s", "62000000000000"),
        ("273", "GB/s", "B/s", "273000000000"),
        ("3", "rows", "rows", "3"),
    ],
)
def test_conversions_are_exact(value: str, unit: str, to: str, expected: str) -> None:
    assert converted(Fraction(value), unit, to) == Fraction(expected)
    assert converted(Fraction(expected), to, unit) == Fraction(value)


@pytest.mark.parametrize(("unit", "to"), [("GiB", "s"), ("rows", "columns"), ("rows", "ratio"), ("", "x"), ("s", "")])
def test_other_units_are_not_converted(unit: str, to: str) -> None:
    assert converted(Fraction(1), unit, to) is None


def test_numbers_in_a_text() -> None:
    text = "18-26 of 1,024 on a GB10, -66 % and 1e-5, 18x4"
    assert [float(number) for number in numbers_in(text)] == [18, 26, 1024, 10, -66, 1e-5, 18, 4]
    assert [float(number) for number in numbers_in(text, alone=True)] == [18, 26, 1024, -66, 1e-5, 18]
