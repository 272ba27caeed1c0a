"""Looks for device code in a file, whatever the file is called or claims to be."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from harness.inspect.device_code import at_run_time, elf, ending, fatbin, ptx
from harness.inspect.device_code.elf import Malformed

__all__ = ["DeviceCode", "Form", "Inspection", "inspect", "scan"]

_MOST_BROKEN: Final = 64


class Form(Enum):
    """What the driver is handed."""

    MACHINE_CODE = "machine code"
    PTX = "PTX"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DeviceCode:
    """One image.

    Attributes:
        form: machine code runs as it is; PTX the driver compiles first.
        sm: compute capability, such as 121, read from the image; for PTX the least one that it may be compiled for.
        target: the same with its letter, such as "sm_90a"; None where the image does not say.
        kernels: the names of its kernels.
        offset: in bytes from the beginning of the file; of an entry of a fatbin image, where its header begins.
        size: in bytes, as it lies in the file.
        container: "fatbin", or None for an image that stands alone.
        noted_sm: what a note in machine code says of the capability; another one than `sm` is a forgery.
        listed_sm: the capability under which a fatbin image lists it, by which the driver chooses; None outside one.
        reason: why the kernels are not known; None where they are.
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
    """All device code of a file, in the order of offsets, and what else is worth knowing.

    Attributes:
        notes: what looked like device code and could not be read.
        at_run_time: signs that a program makes more of it when it runs.
        cut_short: how much of the file is there, where it ends before its own headers say; None where it is whole.
    """

    path: Path
    file_bytes: int
    codes: tuple[DeviceCode, ...]
    notes: tuple[str, ...]
    at_run_time: tuple[str, ...] = ()
    cut_short: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For `harness inspect --json`."""
        codes = [asdict(code) | {"form": code.form.value, "kernels": list(code.kernels)} for code in self.codes]
        return {
            "path": str(self.path),
            "file_bytes": self.file_bytes,
            "device_code": codes,
            "notes": list(self.notes),
            "at_run_time": list(self.at_run_time),
            "cut_short": self.cut_short,
        }


def inspect(path: Path) -> Inspection:
    """Look through a whole file; OSError where it cannot be read."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return Inspection(path, 0, (), ())
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            codes, notes, signs = scan(view)
            missing = ending.cut_short(view)
    if missing is not None:
        notes = (f"the file is {missing}", *notes)
    return Inspection(path, size, codes, notes, signs, missing)


def scan(data: bytes | memoryview) -> tuple[tuple[DeviceCode, ...], tuple[str, ...], tuple[str, ...]]:
    """The device code in these bytes, notes on what looked like some, and signs that more is made at run time."""
    with memoryview(data) as view:
        return _scan(view)


def _scan(view: memoryview) -> tuple[tuple[DeviceCode, ...], tuple[str, ...], tuple[str, ...]]:
    codes: list[DeviceCode] = []
    notes: list[str] = []
    pieces: list[int] = []
    rest = 0
    for start, end, found in _images(view, notes):
        _text(view, rest, start, codes, pieces)
        codes += found
        rest = end
    _text(view, rest, len(view), codes, pieces)
    return tuple(codes), tuple(notes), tuple(at_run_time.signs(view, pieces))


def _text(view: memoryview, start: int, end: int, codes: list[DeviceCode], pieces: list[int]) -> None:
    """PTX in a stretch without images."""
    last = start
    for offset, module in ptx.find_modules(view, start, end):
        codes.append(DeviceCode(Form.PTX, module.sm, module.target, module.kernels, offset, module.size))
        pieces += ptx.find_pieces(view, last, offset)
        last = offset + module.size
    pieces += ptx.find_pieces(view, last, end)


def _images(view: memoryview, notes: list[str]) -> Iterator[tuple[int, int, list[DeviceCode]]]:
    """Stretches that are ELF images for CUDA or fatbin images, in order, none inside another."""
    at = broken = 0
    allowance = fatbin.Allowance()
    for offset, magic in _places(view):
        if offset < at:
            continue
        if magic == fatbin.MAGIC and not fatbin.is_header(view[offset:]):
            continue
        if broken == _MOST_BROKEN:
            notes.append(f"byte {offset}: the {broken} images before could not be read; no further ones are looked for")
            return
        try:
            if magic == fatbin.MAGIC:
                size, entries = fatbin.read_fatbin(view[offset:], allowance)
                found = [_of_entry(entry, offset) for entry in entries]
            else:
                cubin = elf.read_cubin(view[offset:])
                size, found = cubin.size, [_of_cubin(cubin, offset)]
        except Malformed as error:
            if magic == fatbin.MAGIC or bytes(view[offset + 18 : offset + 20]) == b"\xbe\x00":
                notes.append(f"byte {offset}: {error}")
                broken += 1
            continue
        yield offset, offset + size, found
        at = offset + size


def _places(view: memoryview) -> Iterator[tuple[int, bytes]]:
    """Where one of the two magics stands."""
    for found in re.finditer(re.escape(fatbin.MAGIC) + b"|" + re.escape(elf.MAGIC), view):
        yield found.start(), found[0]


def _of_cubin(cubin: elf.Cubin, offset: int, **more: Any) -> DeviceCode:
    size = more.pop("size", cubin.size)
    return DeviceCode(
        Form.MACHINE_CODE, cubin.sm, cubin.target, cubin.kernels, offset, size, noted_sm=cubin.noted_sm, **more
    )


def _of_entry(entry: fatbin.Entry, start: int) -> DeviceCode:
    offset = start + entry.offset
    forms = {fatbin.Kind.PTX: Form.PTX, fatbin.Kind.ELF: Form.MACHINE_CODE}
    unread = DeviceCode(
        forms.get(fatbin.Kind(entry.kind), Form.UNKNOWN) if entry.kind in tuple(fatbin.Kind) else Form.UNKNOWN,
        entry.sm,
        None,
        (),
        offset,
        entry.size,
        "fatbin",
        reason=entry.reason or f"an entry of kind {entry.kind}, which is not decoded",
    )
    if entry.content is None or unread.form is Form.UNKNOWN:
        return unread
    if unread.form is Form.PTX:
        module = ptx.read_module(bytes(entry.content))
        if module is None:
            return DeviceCode(**vars(unread) | {"reason": "an entry of PTX without version and target"})
        return DeviceCode(Form.PTX, module.sm, module.target, module.kernels, offset, entry.size, "fatbin")
    try:
        cubin = elf.read_cubin(entry.content)
    except Malformed as error:
        return DeviceCode(**vars(unread) | {"reason": str(error)})
    return _of_cubin(cubin, offset, size=entry.size, container="fatbin", listed_sm=entry.sm)
