"""Numbers with units, exactly: as documents print them, and converted from one unit into another.

printed("~20,000 iterations")  # Printed(value=Fraction(20000), unit="iterations", sign="~")
converted(Fraction(62), "TFLOPS", "FLOP/s")  # Fraction(62000000000000)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

__all__ = ["UNITS", "Printed", "converted", "exact", "numbers_in", "printed"]

# Longer numbers cannot be meant, and take long to compute.
_NUMBER = r"\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,30})?|\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3}(?!\d))?"
_PRINTED = re.compile(
    rf"(?P<before>[~≈<>≤≥]?)\s*(?P<minus>-?)(?P<number>{_NUMBER})(?P<thousands>k\b)?(?P<after>\+?)(?P<unit>.*)",
    re.DOTALL,
)
_IN_TEXT = re.compile(rf"(?<![\d.])(?:(?<!\w)-)?(?:{_NUMBER})")

_WORD = re.compile(r"\w")

UNITS: Final[Mapping[str, tuple[str, Fraction]]] = {
    **{name: ("part", Fraction(1)) for name in ("ratio", "share", "x")},
    **{name: ("part", Fraction(1, 100)) for name in ("%", "percent", "per cent")},
    **{name: ("bytes", Fraction(1)) for name in ("B", "bytes")},
    **{f"{prefix}B": ("bytes", Fraction(1000**power)) for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": ("bytes", Fraction(1024**power)) for power, prefix in enumerate("KMGT", 1)},
    "s": ("seconds", Fraction(1)),
    "ms": ("seconds", Fraction(1, 1000)),
    "h": ("seconds", Fraction(3600)),
    **{name: ("operations a second", Fraction(1)) for name in ("FLOP/s", "op/s", "FLOPS")},
    **{
        f"{prefix}{name}": ("operations a second", Fraction(1000**power))
        for power, prefix in enumerate("kMGTP", 1)
        for name in ("FLOP/s", "FLOPS")
    },
    "B/s": ("bytes a second", Fraction(1)),
    **{f"{prefix}B/s": ("bytes a second", Fraction(1000**power)) for power, prefix in enumerate("kMGT", 1)},
}
"""Units that can be converted: the quantity, and the exact number of its first unit. Any other unit equals itself."""


@final
@dataclass(frozen=True, slots=True)
class Printed:
    """A quantity as it is printed."""

    value: Fraction
    unit: str
    """The words behind the number; empty if there are none."""
    sign: str
    """`~`, `<`, `>`, `≤`, `≥`, or `+` behind the number; empty if the number stands alone."""


def printed(text: str) -> Printed | None:
    """Read a quantity such as `~62 TFLOPS`, `14,202 tok/sec`, `200k steps`, `27+ kernels` or `1e-5`.

    Returns:
        None if the text does not begin with a number.
    """
    match = _PRINTED.fullmatch(text.strip())
    if match is None or (match["before"] and match["after"]):
        return None
    value = Fraction(match["number"].replace(",", "")) * (1000 if match["thousands"] else 1)
    sign = "~" if match["before"] == "≈" else match["before"] or match["after"]
    return Printed(-value if match["minus"] else value, match["unit"].strip(" -"), sign)


def exact(number: float) -> Fraction:
    """Return the number as JSON writes it; a float alone would be its nearest double."""
    return Fraction(repr(number))


def converted(value: Fraction, unit: str, to: str) -> Fraction | None:
    """Return the value in another unit, exactly; None if the units are not those of one quantity."""
    if unit == to:
        return value
    (kind, size), (other, part) = UNITS.get(unit, ("", Fraction(1))), UNITS.get(to, ("", Fraction(1)))
    return value * size / part if kind and kind == other else None


def numbers_in(text: str, *, alone: bool = False) -> list[Fraction]:
    """Return the numbers in a text. A hyphen behind a letter or digit, as in `18-26`, is no sign.

    Args:
        alone: without those of a word, such as `GB10`.
    """
    matches = [match for match in _IN_TEXT.finditer(text) if not (alone and _WORD.match(text[: match.start()][-1:]))]
    return [Fraction(match[0].replace(",", "")) for match in matches]
