"""`harness inspect FILE`: shows and compares the tensors of checkpoints, or shows the device code of a program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base.vocabulary import ExitStatus
from harness.report.escaping import printable
from harness.report.terminal.inspection_text import KINDS, checkpoint_page, device_code_page
from harness.report.terminal.printing import tell, tell_all, tell_json, terminal_width

if TYPE_CHECKING:
    from harness.inspect.checkpoint import Comparison, Inspection, Refused

__all__ = ["command"]

_DIFFERENT = "different"
_FILES_LOOKED_AT = 1000
_PROGRAMS = (b"\x7fELF", b"!<arch>\n", b"MZ", b"\xcf\xfa\xed\xfe")
"""The first bytes of executables and libraries: ELF, static libraries, Windows, macOS."""
_LISTS = (".json", ".txt", ".md")
_NO_PROGRAM = "; it is not a program or library either, and holds no code for NVIDIA GPUs"
_ONLY_CHECKPOINTS = "; --against and --fail-on are for checkpoints"


@click.command("inspect")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--against", metavar="FILE", type=click.Path(path_type=Path), help="Compare with this checkpoint.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="KIND",
    type=click.Choice([*KINDS, _DIFFERENT]),
    help=f"Exit with 1 on this finding: {', '.join(KINDS)}; or `{_DIFFERENT}`, with --against. May be repeated.",
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
    may_be_program = against is None and not fail_on
    try:
        from harness.inspect.checkpoint import Packed, Refused, Unrecognized, compare, inspect
    except ImportError as error:  # device code can be shown without these packages
        if may_be_program and (told := _told_device_code(file, as_json)) is not None:
            return told
        raise click.ClickException(str(error)) from error
    try:
        comparison = None if against is None else compare(file, against)
        inspection = inspect(file) if comparison is None else comparison.this
    except Refused as refused:
        unknown = isinstance(refused, Unrecognized) and not isinstance(refused, Packed)
        if unknown and may_be_program and (told := _told_device_code(file, as_json)) is not None:
            return told
        if as_json:
            tell_json(_refusal(refused))
        more = "" if not unknown else _NO_PROGRAM if may_be_program else _ONLY_CHECKPOINTS
        tell(f"harness: {refused}{more}", err=True)
        return ExitStatus.REFUSED
    if as_json:
        compared = {"comparison": comparison.to_json()} if comparison else {}
        tell_json({"version": 1, **inspection.to_json(), **compared})
    else:
        tell_all(checkpoint_page(inspection, comparison, terminal_width()))
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
        tell_json({"version": 1, **inspection.to_json()})
    else:
        tell_all(device_code_page(inspection))
    if inspection.cut_short is None:
        return ExitStatus.PASS
    tell(f"harness: {file}: {inspection.cut_short}", err=True)
    return ExitStatus.REFUSED


def _status(inspection: Inspection, comparison: Comparison | None, fail_on: Sequence[str]) -> ExitStatus:
    found: set[str] = {one.kind for one in inspection.findings}
    if comparison is not None and not comparison.same:
        found.add(_DIFFERENT)
    return ExitStatus.FAIL if found & set(fail_on) else ExitStatus.PASS


def _refusal(refused: Refused) -> dict[str, Any]:
    return {"version": 1, "path": str(refused.path), "refused": refused.reason, "offset": refused.offset}
