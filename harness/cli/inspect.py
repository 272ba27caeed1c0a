"""`harness inspect FILE`: shows and compares the tensors of checkpoints, or shows the device code of a program."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base.vocabulary import ExitStatus
from harness.report import number_text
from harness.report.escaping import printable

if TYPE_CHECKING:
    from harness.inspect.checkpoint import Change, Comparison, Inspection, Refused, Tensor

__all__ = ["command"]

_DIFFERENT = "different"
# The values of harness.inspect.checkpoint.Kind, which cannot be imported without numpy. A test keeps them equal.
_KINDS = ("no-weights", "not-finite", "zero", "constant", "duplicate", "empty", "layout")
_NAMES_SHOWN = 3
_FILES_LOOKED_AT = 1000
_PROGRAMS = (b"\x7fELF", b"!<arch>\n", b"MZ", b"\xcf\xfa\xed\xfe")
"""The first bytes of executables and libraries: ELF, static libraries, Windows, macOS."""
_LISTS = (".json", ".txt", ".md")


@click.command("inspect")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--against", metavar="FILE", type=click.Path(path_type=Path), help="Compare with this checkpoint.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="KIND",
    type=click.Choice([*_KINDS, _DIFFERENT]),
    help=f"Exit with 1 on this finding: {', '.join(_KINDS)}; or `{_DIFFERENT}`, with --against. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(file: Path, against: Path | None, fail_on: Sequence[str], as_json: bool) -> ExitStatus:
    """Show every tensor of a checkpoint: safetensors, APR v2, PyTorch's zip, or GGUF.

    For any other file, such as an executable or a library, show its code for NVIDIA GPUs: every kernel with its
    targets, as machine code or as PTX, which the driver must compile first.

    Nothing in the file is run or trusted. The command prints the tensors with their range and the first digits of
    their SHA-256, the metadata, and findings: no weights, NaN or infinities, all zero, constant, duplicate or empty
    tensors, departures from the format.

    Findings are not a verdict. The exit status is 0 if the file can be read to its end, 2 if it is refused or cut
    short, and 1 only if a KIND that --fail-on names is found.
    """
    if _DIFFERENT in fail_on and against is None:
        raise click.UsageError(f"--fail-on {_DIFFERENT} needs --against FILE")
    for place in (file, against):
        if place is not None and place.is_dir():
            raise click.ClickException(_folder(place))
    try:
        from harness.inspect.checkpoint import Packed, Refused, Unrecognized, compare, inspect
    except ImportError as error:
        # Device code can be shown without these packages.
        if against is None and not fail_on and (told := _told_device_code(file, as_json)) is not None:
            return told
        raise click.ClickException(str(error)) from error
    comparison = None
    try:
        if against is None:
            inspection = inspect(file)
        else:
            comparison = compare(file, against)
            inspection = comparison.this
    except Refused as refused:
        neither = ""
        if isinstance(refused, Unrecognized) and not isinstance(refused, Packed):
            if against is not None or fail_on:
                neither = "; --against and --fail-on are for checkpoints"
            elif (told := _told_device_code(file, as_json)) is not None:
                return told
            else:
                neither = "; it is not a program or library either, and holds no code for NVIDIA GPUs"
        if as_json:
            _print_json(_refusal(refused))
        click.echo(f"harness: {printable(str(refused))}{neither}", err=True)
        return ExitStatus.REFUSED
    if as_json:
        _print_json(inspection.to_json() | ({"comparison": comparison.to_json()} if comparison else {}))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in _page(inspection, comparison, width):
            click.echo(line)
    return _status(inspection, comparison, fail_on)


def _folder(folder: Path) -> str:
    """Return why a folder is refused, with a file that the user may have meant: the largest of the first ones."""
    files = [path for path in itertools.islice(folder.rglob("*"), _FILES_LOOKED_AT) if path.is_file()]
    # An index of the folder may be larger than each file that it names.
    files = [path for path in files if path.suffix not in _LISTS] or files
    sizes = {path: path.stat().st_size for path in files}
    such_as = f", such as {printable(str(max(sizes, key=lambda path: sizes[path])))}" if sizes else "; it has none"
    return f"{printable(str(folder))} is a folder; name one of its files{such_as}"


def _told_device_code(file: Path, as_json: bool) -> ExitStatus | None:
    """Print the device code of a file. None if it holds none and is not an executable or library either."""
    from harness.inspect.device_code import inspect
    from harness.report.device_code import page

    try:
        if not file.is_file():
            return None
        inspection = inspect(file)
        with file.open("rb") as opened:
            program = opened.read(8).startswith(_PROGRAMS)
    except OSError:
        return None  # the refusal of the checkpoint's reader is clearer
    if not (inspection.codes or inspection.notes or inspection.at_run_time or program):
        return None
    if as_json:
        _print_json(inspection.to_json())
    else:
        for line in page(inspection):
            click.echo(line)
    if inspection.cut_short is None:
        return ExitStatus.PASS
    click.echo(f"harness: {printable(str(file))}: {inspection.cut_short}", err=True)
    return ExitStatus.REFUSED


def _status(inspection: Inspection, comparison: Comparison | None, fail_on: Sequence[str]) -> ExitStatus:
    found: set[str] = {one.kind for one in inspection.findings}
    if comparison is not None and not comparison.same:
        found.add(_DIFFERENT)
    return ExitStatus.FAIL if found & set(fail_on) else ExitStatus.PASS


def _page(inspection: Inspection, comparison: Comparison | None, width: int | None) -> Iterator[str]:
    dtypes = Counter(one.dtype for one in inspection.tensors.values())
    yield f"{printable(str(inspection.path))}: {inspection.format}, {inspection.file_bytes:,} bytes"
    count = f"{len(inspection.tensors):,} tensor{'' if len(inspection.tensors) == 1 else 's'}"
    of_each = ", ".join(f"{number:,} {name}" for name, number in dtypes.items())
    yield f"{count}, {inspection.elements:,} elements{': ' if of_each else ''}{of_each}"
    # Findings come first, so that a missing weight is seen at once.
    for line in _findings(inspection):
        yield from _wrapped(line, width)
    if inspection.metadata:
        yield from ["", "metadata"]
        longest = min(max(len(name) for name in inspection.metadata), 40)
        for name, value in inspection.metadata.items():
            yield f"  {printable(name):<{longest}}  {printable(number_text.value(value))}"
    if inspection.tensors:
        yield ""
        yield from _table(list(inspection.tensors.values()), width)
    if comparison is not None:
        yield ""
        for line in _comparison(comparison):
            yield from _wrapped(line, width)


def _wrapped(line: str, width: int | None) -> list[str]:
    """Wrap a line for a terminal. Names are never broken, so that they can be copied."""
    if width is None:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)


def _findings(inspection: Inspection) -> Iterator[str]:
    """Yield the findings, the gravest kind first. Equal findings of several tensors share one line."""
    for kind in _KINDS:
        alike: dict[str, list[str]] = defaultdict(list)
        for finding in inspection.findings:
            if finding.kind != kind:
                continue
            if len(finding.tensors) == 1:
                alike[finding.text].append(finding.tensors[0])
            else:
                yield f"  {kind}: {printable(finding.text)}{_named(finding.tensors)}"
        for text, names in alike.items():
            yield f"  {kind}: {printable(text)}{_named(names)}"


def _named(names: Sequence[str]) -> str:
    """Return the first names, and how many there are if not all are shown."""
    if not names:
        return ""
    shown = ", ".join(printable(name) for name in names[:_NAMES_SHOWN])
    return f": {shown}" + (f", … ({len(names)})" if len(names) > _NAMES_SHOWN else "")


def _table(tensors: Sequence[Tensor], width: int | None) -> Iterator[str]:
    """Yield a table of the tensors, with as many columns as fit the terminal."""
    rows = [("tensor", "shape", "dtype", "min", "max", "sha256", "size"), *map(_row, tensors)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    shown = len(widths)
    while width is not None and shown > 5 and sum(widths[:shown]) + 2 * (shown - 1) > width:
        shown -= 1
    values = sum(widths[1:shown]) + 2 * (shown - 1)
    first = widths[0] if width is None else max(min(widths[0], width - values), len("tensor"))
    for row in rows:
        cells = [f"{cell:>{widths[at]}}" for at, cell in enumerate(row[1:shown], start=1)]
        name = row[0]
        if len(name) > first:
            # A name that is too long for its column gets a line of its own, so that it can be copied.
            yield name
            name = ""
        yield "  ".join([f"{name:<{first}}", *cells])


def _row(tensor: Tensor) -> tuple[str, ...]:
    seen = tensor.statistics
    if seen is None:
        low = high = "?"
    elif seen.nan or seen.infinite:
        low = high = "NaN" if seen.nan else "inf"
    else:
        low, high = _short(seen.minimum), _short(seen.maximum)
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return (printable(tensor.name), shape, tensor.dtype, low, high, tensor.digest[:8], number_text.binary(tensor.size))


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.3g}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    counts = {
        "equal": len(comparison.equal),
        "changed": len(comparison.changed),
        "missing": len(comparison.missing),
        "extra": len(comparison.extra),
    }
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    yield f"against {printable(str(comparison.other.path))}: {said}"
    for name in comparison.missing:
        yield f"  missing  {printable(name)}"
    for name in comparison.extra:
        yield f"  extra  {printable(name)}"
    for change in comparison.changed:
        yield f"  changed  {printable(change.name)}: {', '.join(_differences(change))}"


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


def _refusal(refused: Refused) -> dict[str, Any]:
    return {"path": str(refused.path), "refused": refused.reason, "offset": refused.offset}


def _print_json(document: dict[str, Any]) -> None:
    import json

    from harness.base import strictjson

    # File names may not be UTF-8, and floats in metadata may not be finite.
    click.echo(json.dumps(strictjson.tag_nonfinite(document), indent=2, allow_nan=False))
