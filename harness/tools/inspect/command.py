"""`harness inspect FILE`: shows and compares the tensors of checkpoints, or shows the device code of a program."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.base import regular_file
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import ExitStatus
from harness.machine.limited_process import Limits, Stopped, decoded, isolated
from harness.report.escaping import printable
from harness.report.terminal.printing import Table, tell, tell_all, tell_json, terminal_width
from harness.tools.inspect.budget import Refused
from harness.tools.inspect.text import KINDS, checkpoint_page, device_code_page

if TYPE_CHECKING:
    from harness.tools.inspect.checkpoint import Comparison, Inspection

__all__ = ["command"]

_DIFFERENT = "different"
_FILES_LOOKED_AT = 1000
_PROGRAMS = (b"\x7fELF", b"!<arch>\n", b"MZ", b"\xcf\xfa\xed\xfe")
"""The first bytes of executables and libraries: ELF, static libraries, Windows, macOS."""
_LISTS = (".json", ".txt", ".md")
_NO_PROGRAM = "; it is not a program or library either, and holds no code for NVIDIA GPUs"
_SECONDS, _BYTES_PER_SECOND = 20.0, 10 << 20
"""CPU time for any file, and for each byte that a file occupies."""
_MEMORY = 1 << 30
_LONGEST_PAGE = 256 << 20
_ONLY_CHECKPOINTS = "; --against and --fail-on are for checkpoints"


@click.command("inspect", short_help="show what a checkpoint or a program really holds")
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
    with contextlib.suppress(ImportError):
        import harness.tools.inspect.checkpoint  # noqa: F401  # here, so that its memory is not counted in the child
    width = terminal_width()  # the child has no terminal to ask
    try:
        limits = _limits([file, *([against] if against else [])])
        reply = decoded(isolated(lambda: json.dumps(_reply(file, against, fail_on, as_json, width)).encode(), limits))
    except Stopped as error:
        reply = _refusal(Refused(f"reading it {error}", None, file))
    if "problem" in reply:
        raise click.ClickException(reply["problem"])
    if as_json:
        tell_json(reply["document"])
    else:
        tell_all(Table(**block) if isinstance(block, dict) else block for block in reply.get("blocks", ()))
    if "error" in reply:
        tell(f"harness: {reply['error']}", err=True)
    return ExitStatus(reply["status"])


def _limits(files: Sequence[Path]) -> Limits:
    """Return limits for reading these files. A mapped file counts as memory although it is none."""
    size = occupied = 0
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(file)
            size, occupied = size + status.st_size, occupied + min(status.st_size, status.st_blocks * 512)
    seconds = _SECONDS + occupied / _BYTES_PER_SECOND
    return Limits(seconds, 10 * seconds, _MEMORY + size, _LONGEST_PAGE)


def _reply(file: Path, against: Path | None, fail_on: Sequence[str], as_json: bool, width: int | None) -> JsonObject:
    """Return what to print of a file and the exit status, or the `problem` that keeps it from being read.

    With `as_json` it has a `document`, else `blocks`; and an `error` if the file is refused.
    """
    may_be_program = against is None and not fail_on
    try:
        from harness.tools.inspect.checkpoint import Packed, Unrecognized, compare, inspect
    except ImportError as error:  # device code can be shown without these packages
        return (may_be_program and _device_code(file, as_json)) or {"problem": str(error)}
    try:
        comparison = None if against is None else compare(file, against)
        inspection = inspect(file) if comparison is None else comparison.this
    except Refused as refused:
        unknown = isinstance(refused, Unrecognized) and not isinstance(refused, Packed)
        if unknown and may_be_program and (reply := _device_code(file, as_json)) is not None:
            return reply
        return _refusal(refused, "" if not unknown else _NO_PROGRAM if may_be_program else _ONLY_CHECKPOINTS)
    status = _status(inspection, comparison, fail_on)
    if as_json:
        compared = {"comparison": comparison.to_json()} if comparison else {}
        return {"document": {"version": 1, **inspection.to_json(), **compared}, "status": status}
    return {"blocks": _plain(checkpoint_page(inspection, comparison, width)), "status": status}


def _plain(page: Iterable[str | Table]) -> list[str | JsonObject]:
    """Return the blocks of a page as JSON values."""
    return [vars(block) if isinstance(block, Table) else block for block in page]


def _folder(folder: Path) -> str:
    """Return why a folder is refused, with a file that the user may have meant: the largest of the first ones."""
    files = [path for path in itertools.islice(folder.rglob("*"), _FILES_LOOKED_AT) if path.is_file()]
    # An index of the folder may be larger than each file that it names.
    files = [path for path in files if path.suffix not in _LISTS] or files
    sizes = {path: path.stat().st_size for path in files}
    such_as = f", such as {printable(str(max(sizes, key=lambda path: sizes[path])))}" if sizes else "; it has none"
    return f"{printable(str(folder))} is a folder; name one of its files{such_as}"


def _device_code(file: Path, as_json: bool) -> JsonObject | None:
    """Return the reply about the device code of a file. None if it holds none and is no executable or library."""
    from harness.tools.inspect.device_code import inspect

    try:
        if not file.is_file():
            return None
        inspection = inspect(file)
        with regular_file.opened(file) as opened:
            program = opened.read(8).startswith(_PROGRAMS)
    except OSError:
        return None  # the refusal of the checkpoint's reader is clearer
    except Refused as refused:
        return _refusal(refused)
    if not (inspection.codes or inspection.notes or inspection.at_run_time or program):
        return None
    reply: dict[str, Any] = {"status": ExitStatus.PASS}
    if as_json:
        reply["document"] = {"version": 1, **inspection.to_json()}
    else:
        reply["blocks"] = _plain(device_code_page(inspection))
    if inspection.cut_short is not None:
        reply |= {"status": ExitStatus.REFUSED, "error": f"{file}: {inspection.cut_short}"}
    return reply


def _status(inspection: Inspection, comparison: Comparison | None, fail_on: Sequence[str]) -> ExitStatus:
    kinds: set[str] = {finding.kind for finding in inspection.findings}
    if comparison is not None and not comparison.same:
        kinds.add(_DIFFERENT)
    return ExitStatus.FAIL if kinds & set(fail_on) else ExitStatus.PASS


def _refusal(refused: Refused, more: str = "") -> JsonObject:
    document = {"version": 1, "path": str(refused.path), "refused": refused.reason, "offset": refused.offset}
    return {"document": document, "error": f"{refused}{more}", "status": ExitStatus.REFUSED}
