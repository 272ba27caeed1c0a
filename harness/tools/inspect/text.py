"""What `harness inspect` prints: the tensors of a checkpoint, or the device code of a program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.base.shortening import first
from harness.report.messages import number_text
from harness.report.terminal.printing import Table

if TYPE_CHECKING:
    from harness.tools.inspect import device_code
    from harness.tools.inspect.checkpoint import Change, Comparison, Inspection, Tensor

__all__ = ["KINDS", "checkpoint_page", "device_code_page"]

# The values of harness.tools.inspect.checkpoint.Kind, which cannot be imported without numpy. A test keeps them equal.
KINDS = ("no-weights", "not-finite", "zero", "constant", "duplicate", "empty", "layout")
_NAMES_SHOWN = 3


def checkpoint_page(inspection: Inspection, comparison: Comparison | None, width: int | None) -> Iterator[str | Table]:
    """Yield the counts, the findings, the metadata, a table of the tensors, and what the comparison found."""
    dtypes = Counter(tensor.dtype for tensor in inspection.tensors.values())
    yield f"{inspection.path}: {inspection.format}, {inspection.file_bytes:,} bytes"
    count = number_text.counted(len(inspection.tensors), "tensor")
    of_each = ", ".join(f"{number:,} {name}" for name, number in dtypes.items())
    yield f"{count}, {inspection.elements:,} elements{': ' if of_each else ''}{of_each}"
    # Findings come first, so that a missing weight is seen at once.
    yield from _findings(inspection)
    if inspection.metadata:
        yield from ["", "metadata"]
        yield Table([(name, number_text.value(value)) for name, value in inspection.metadata.items()])
    if inspection.tensors:
        yield ""
        yield from _table(list(inspection.tensors.values()), width)
    if comparison is not None:
        yield ""
        yield from _comparison(comparison)


def _findings(inspection: Inspection) -> Iterator[str]:
    """Yield the findings, the gravest kind first. Equal findings of several tensors share one line."""
    for kind in KINDS:
        alike: dict[str, list[str]] = defaultdict(list)
        for finding in inspection.findings:
            if finding.kind != kind:
                continue
            if len(finding.tensors) == 1:
                alike[finding.text].append(finding.tensors[0])
            else:
                yield f"  {kind}: {finding.text}{_named(finding.tensors)}"
        for text, names in alike.items():
            yield f"  {kind}: {text}{_named(names)}"


def _named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return f": {first(names, _NAMES_SHOWN)}" if names else ""


def _table(tensors: Sequence[Tensor], width: int | None) -> Iterator[str]:
    """Yield a table of the tensors, with as many columns as fit the terminal."""
    rows = [("tensor", "shape", "dtype", "min", "max", "sha256", "size"), *map(_row, tensors)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    shown = len(widths)
    while width is not None and shown > 5 and sum(widths[:shown]) + 2 * (shown - 1) > width:
        shown -= 1
    values = sum(widths[1:shown]) + 2 * (shown - 1)
    column = widths[0] if width is None else max(min(widths[0], width - values), len("tensor"))
    for row in rows:
        cells = [f"{cell:>{widths[at]}}" for at, cell in enumerate(row[1:shown], start=1)]
        name = row[0]
        if len(name) > column:
            # A name that is too long for its column gets a line of its own, so that it can be copied.
            yield name
            name = ""
        yield "  ".join([f"{name:<{column}}", *cells])


def _row(tensor: Tensor) -> tuple[str, ...]:
    seen = tensor.statistics
    if seen is None:
        low = high = "?"
    elif seen.nan or seen.infinite:
        low = high = "NaN" if seen.nan else "inf"
    else:
        low, high = _short(seen.minimum), _short(seen.maximum)
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return (tensor.name, shape, tensor.dtype, low, high, tensor.digest[:8], number_text.binary(tensor.size))


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.3g}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    kinds = ("equal", "changed", "missing", "extra")
    summary = ", ".join(f"{len(getattr(comparison, kind)):,} {kind}" for kind in kinds)
    yield f"against {comparison.other.path}: {summary}"
    for name in comparison.missing:
        yield f"  missing  {name}"
    for name in comparison.extra:
        yield f"  extra  {name}"
    for change in comparison.changed:
        yield f"  changed  {change.name}: {', '.join(_differences(change))}"


def _differences(change: Change) -> Iterator[str]:
    if change.dtypes[0] != change.dtypes[1]:
        yield f"{change.dtypes[0]} against {change.dtypes[1]}"
    if change.shapes[0] != change.shapes[1]:
        yield f"{list(change.shapes[0])} against {list(change.shapes[1])}"
    elif change.largest is None:
        yield "bytes differ"
    elif change.largest == 0 and not change.not_comparable:
        yield "the same numbers"
    else:
        yield f"largest difference {number_text.value(change.largest)}"
    if change.relative:
        yield f"relative {number_text.value(change.relative)}"
    if change.not_comparable:
        yield f"{change.not_comparable:,} places not finite"


def device_code_page(inspection: device_code.Inspection) -> Iterator[str | Table]:
    """Yield the images, then every kernel with the targets that it runs on, as it is or once the driver compiled it."""
    images = Counter(code.form.value for code in inspection.codes)
    summary = ", ".join(f"{number:,} of {form}" for form, number in images.items()) or "no code for NVIDIA GPUs"
    if not images and inspection.notes:
        summary += " that could be read"
    yield f"{inspection.path}: {inspection.file_bytes:,} bytes"
    count = len(inspection.codes)
    yield f"{number_text.counted(count, 'image')}: {summary}" if count else summary
    for note in inspection.notes:
        yield f"  {note}"
    for sign in inspection.at_run_time:
        yield f"  it holds {sign}"
    if not inspection.codes:
        return
    yield ""
    rows = [("image", "target", "kernels", "at byte", "size", "in"), *map(_image_row, inspection.codes)]
    yield Table(rows, indent=0)
    for code in inspection.codes:
        if code.reason:
            yield f"  byte {code.offset}: {code.reason}"
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
        yield Table([(kernel, ", ".join(dict.fromkeys(runs))) for kernel, runs in targets.items()], indent=0)


def _image_row(code: device_code.DeviceCode) -> tuple[str, ...]:
    kernels = "?" if code.reason else f"{len(code.kernels):,}"
    return (
        code.form.value,
        code.target or f"sm_{code.sm}",
        kernels,
        str(code.offset),
        number_text.binary(code.size),
        code.container or "file",
    )


def _order(code: device_code.DeviceCode) -> tuple[bool, int, str]:
    """Order machine code before PTX, and each by its target."""
    return code.form.name == "PTX", code.sm or 0, code.target or ""


def _target(code: device_code.DeviceCode) -> str:
    name = code.target or f"sm_{code.sm}"
    return f"PTX for {name}" if code.form.name == "PTX" else name
