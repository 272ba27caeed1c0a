"""What `harness inspect` says of the device code in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.report import number_text
from harness.report.escaping import printable

if TYPE_CHECKING:
    from harness.inspect.device_code import DeviceCode, Inspection

__all__ = ["page"]


def page(inspection: Inspection) -> Iterator[str]:
    """The images, then every kernel with the targets that it runs on as it is, or after the driver compiled it."""
    images = Counter(code.form.value for code in inspection.codes)
    found = ", ".join(f"{number:,} of {form}" for form, number in images.items()) or "no code for NVIDIA GPUs"
    if not images and inspection.notes:
        found += " that could be read"
    yield f"{printable(str(inspection.path))}: {inspection.file_bytes:,} bytes"
    count = len(inspection.codes)
    yield f"{count:,} image{'' if count == 1 else 's'}: {found}" if count else found
    for note in inspection.notes:
        yield f"  {printable(note)}"
    for sign in inspection.at_run_time:
        yield f"  it holds {printable(sign)}"
    if not inspection.codes:
        return
    yield ""
    rows = [("image", "target", "kernels", "at byte", "size", "in"), *map(_row, inspection.codes)]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for code in inspection.codes:
        if code.reason:
            yield f"  byte {code.offset}: {printable(code.reason)}"
        if code.noted_sm not in (None, code.sm):
            yield f"  byte {code.offset}: its header says sm_{code.sm}, its note sm_{code.noted_sm}"
        if code.listed_sm not in (None, code.sm):
            yield f"  byte {code.offset}: the fatbin image lists it for sm_{code.listed_sm}, and it is for sm_{code.sm}"
    targets: dict[str, list[str]] = {}
    for code in sorted(inspection.codes, key=_order):
        for kernel in code.kernels:
            targets.setdefault(kernel, []).append(_target(code))
    if targets:
        yield ""
        longest = min(max(map(len, targets)), 60)
        for kernel, runs in targets.items():
            yield f"{printable(kernel):<{longest}}  {', '.join(dict.fromkeys(runs))}"


def _row(code: DeviceCode) -> tuple[str, ...]:
    kernels = "?" if code.reason else f"{len(code.kernels):,}"
    return (
        code.form.value,
        code.target or f"sm_{code.sm}",
        kernels,
        str(code.offset),
        number_text.binary(code.size),
        code.container or "file",
    )


def _order(code: DeviceCode) -> tuple[bool, int, str]:
    """Machine code before PTX, and each by its target, as one looks it up."""
    return code.form.name == "PTX", code.sm or 0, code.target or ""


def _target(code: DeviceCode) -> str:
    name = code.target or f"sm_{code.sm}"
    return f"PTX for {name}" if code.form.name == "PTX" else name
