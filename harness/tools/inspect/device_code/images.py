"""Finds the images of device code in a file, whatever its name or kind."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from harness.base import regular_file
from harness.tools.inspect.budget import Budget, Refused
from harness.tools.inspect.device_code import elf, fatbin, ptx
from harness.tools.inspect.device_code.elf import Malformed

__all__ = ["DeviceCode", "Form", "Inspection", "cut_short", "inspect", "scan"]

_MOST_BROKEN: Final = 64


class Form(Enum):
    """The form in which the driver gets the code."""

    MACHINE_CODE = "machine code"
    PTX = "PTX"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DeviceCode:
    """One image.

    Attributes:
        form: machine code runs as it is. The driver compiles PTX first.
        sm: compute capability, such as 121, read from the image; for PTX the lowest one that it can be compiled for.
        target: the capability with its letter, such as "sm_90a"; None if the image does not state it.
        kernels: the names of its kernels.
        offset: in bytes from the start of the file; for an entry of a fatbin image, that of the entry's header.
        size: in bytes, as stored in the file.
        container: "fatbin", or None for an image outside a fatbin.
        noted_sm: the capability in a note of the machine code. If it differs from `sm`, one of the two was forged.
        listed_sm: the capability in the fatbin's entry, by which the driver chooses; None outside a fatbin.
        reason: why the kernels are unknown; None if they are known.
    """

    form: Form
    sm: int | None
    target: str | None
    kernels: tuple[str, ...]
    offset: int
    size: int
    container: str | None = None
    noted_sm: int | None = None
    listed_sm: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Inspection:
    """All device code of a file.

    Attributes:
        codes: the images, in the order of their offsets.
        notes: bytes that looked like device code and could not be read.
        at_run_time: signs that the program makes more device code when it runs.
        cut_short: which part of the file is present, if its headers state a larger size; None for a whole file.
    """

    path: Path
    file_bytes: int
    codes: tuple[DeviceCode, ...]
    notes: tuple[str, ...]
    at_run_time: tuple[str, ...] = ()
    cut_short: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values that `harness inspect --json` prints."""
        document = {**vars(self), "path": str(self.path)}
        del document["codes"]
        return {**document, "device_code": [asdict(code) | {"form": code.form.value} for code in self.codes]}


def inspect(path: Path) -> Inspection:
    """Search a whole file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        Refused: its images need more work or memory than a file of its size may cause.
    """
    with regular_file.opened(path) as file:
        size = file.seek(0, 2)
        if size == 0:
            return Inspection(path, 0, (), ())
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            try:
                codes, notes, signs = _scan(view, Budget.of(file.fileno()))
            except Refused as error:
                raise Refused(error.reason, error.offset, path) from error
            missing = cut_short(view)
    if missing is not None:
        notes = (f"the file is {missing}", *notes)
    return Inspection(path, size, codes, notes, signs, missing)


def scan(data: bytes | memoryview) -> tuple[tuple[DeviceCode, ...], tuple[str, ...], tuple[str, ...]]:
    """Return `codes`, `notes` and `at_run_time` of an `Inspection` of these bytes."""
    with memoryview(data) as view:
        return _scan(view, Budget(len(view)))


def cut_short(view: memoryview) -> str | None:
    """Which part of the executable, library, cubin or fatbin image at the start of `view` is present, if not all is.

    None for a whole file, and for a file of another kind, which does not state its size.
    """
    size = elf.claimed_size(view) if bytes(view[: len(elf.MAGIC)]) == elf.MAGIC else fatbin.claimed_size(view)
    return f"cut short: {len(view):,} of {size:,} bytes" if size is not None and size > len(view) else None


def _scan(view: memoryview, budget: Budget) -> tuple[tuple[DeviceCode, ...], tuple[str, ...], tuple[str, ...]]:
    codes: list[DeviceCode] = []
    notes: list[str] = []
    pieces: list[int] = []
    rest = 0
    for start, end, images in _images(view, notes, budget):
        _text(view, rest, start, codes, pieces)
        codes += images
        rest = end
    _text(view, rest, len(view), codes, pieces)
    return tuple(codes), tuple(notes), tuple(ptx.signs(view, pieces))


def _text(view: memoryview, start: int, end: int, codes: list[DeviceCode], pieces: list[int]) -> None:
    """Append the PTX modules, and the offsets of pieces, of a stretch without images."""
    last = start
    for offset, module in ptx.find_modules(view, start, end):
        codes.append(DeviceCode(Form.PTX, module.sm, module.target, module.kernels, offset, module.size))
        pieces += ptx.find_pieces(view, last, offset)
        last = offset + module.size
    pieces += ptx.find_pieces(view, last, end)


def _images(view: memoryview, notes: list[str], budget: Budget) -> Iterator[tuple[int, int, list[DeviceCode]]]:
    """Yield start, end and code of every ELF image for CUDA and every fatbin image, in order, none inside another."""
    at = broken = 0
    for offset, magic in _places(view):
        budget.work()
        if offset < at:
            continue
        if magic == fatbin.MAGIC and not fatbin.is_header(view[offset:]):
            continue
        if broken == _MOST_BROKEN:
            notes.append(f"byte {offset}: the {broken} images before could not be read; no further ones are looked for")
            return
        try:
            if magic == fatbin.MAGIC:
                size, entries = fatbin.read_fatbin(view[offset:], budget)
                images = [_of_entry(entry, offset, budget) for entry in entries]
            else:
                cubin = elf.read_cubin(view[offset:], budget)
                size, images = cubin.size, [_of_cubin(cubin, offset)]
        except Malformed as error:
            if magic == fatbin.MAGIC or bytes(view[offset + 18 : offset + 20]) == b"\xbe\x00":
                notes.append(f"byte {offset}: {error}")
                broken += 1
            continue
        yield offset, offset + size, images
        at = offset + size


def _places(view: memoryview) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each magic number in the file."""
    for match in re.finditer(re.escape(fatbin.MAGIC) + b"|" + re.escape(elf.MAGIC), view):
        yield match.start(), match[0]


def _of_cubin(cubin: elf.Cubin, offset: int, **more: Any) -> DeviceCode:
    size = more.pop("size", cubin.size)
    return DeviceCode(
        Form.MACHINE_CODE, cubin.sm, cubin.target, cubin.kernels, offset, size, noted_sm=cubin.noted_sm, **more
    )


def _of_entry(entry: fatbin.Entry, start: int, budget: Budget) -> DeviceCode:
    offset = start + entry.offset
    forms: dict[int, Form] = {fatbin.Kind.PTX: Form.PTX, fatbin.Kind.ELF: Form.MACHINE_CODE}
    form, reason = forms.get(entry.kind, Form.UNKNOWN), f"an entry of kind {entry.kind}, which is not decoded"
    unread = DeviceCode(form, entry.sm, None, (), offset, entry.size, "fatbin", reason=entry.reason or reason)
    if entry.content is None or unread.form is Form.UNKNOWN:
        return unread
    if unread.form is Form.PTX:
        budget.make(4 * len(entry.content))  # for the patterns that are searched in it
        module = ptx.read_module(bytes(entry.content))
        if module is None:
            return replace(unread, reason="an entry of PTX without version and target")
        return DeviceCode(Form.PTX, module.sm, module.target, module.kernels, offset, entry.size, "fatbin")
    try:
        cubin = elf.read_cubin(entry.content, budget)
    except Malformed as error:
        return replace(unread, reason=str(error))
    return _of_cubin(cubin, offset, size=entry.size, container="fatbin", listed_sm=entry.sm)
