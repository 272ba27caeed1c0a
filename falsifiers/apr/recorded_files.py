"""The parts of F-APR-V2-LAYOUT-001 and F-APR-V2-CRC-001 that can be measured on existing files.

The intended content is unknown, so a file is compared with its own header and index. There is no reader that could be
asked to open a damaged file.
"""

import zlib
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Final, Protocol, TypeVar

from falsifiers.apr.byte_table import Layout, Malformed, departures
from falsifiers.apr.subject import AprFile, TensorRecord
from falsifiers.apr.tensor_sets import nbytes
from harness import NotObserved, Trial, Unobserved, propagates
from harness.base import strictjson

T = TypeVar("T")

_LARGEST: Final = 8 * 2**30
"""The largest file that is read into memory, in bytes."""
_FROM_ITSELF: Final = ("header", "index", "alignment", "padding", "footer")
"""Sections in which a file can contradict the table without known content."""
_NO_ONE_ASKED: Final = "the intended content of existing files is unknown, and there is no reader to call"


class WrittenElsewhere(Protocol):
    """The interface of `external.Recorded`."""

    def apr_files(self) -> Iterator[Path]:
        """The existing files; raises NotObserved if there are none."""
        ...


def look_at_layout(trial: Trial[WrittenElsewhere]) -> None:
    """Compare every file with the table."""
    wrong = _read_with(trial, lambda path, data: _named(path, _departures(data)))
    trial.measure(
        **{f"{section}_wrong": _of(section, wrong) for section in _FROM_ITSELF},
        metadata_wrong=_faulty_metadata(_of("metadata", wrong)),
    )
    _hide(
        trial, "cases", "payload_wrong", "own_misread", "foreign_misread", "column_major_accepted", "limits_misjudged"
    )


def look_at_checksums(trial: Trial[WrittenElsewhere]) -> None:
    """Check both checksums of every file.

    A wrong checksum refutes the claim whatever the reader does: it either rejects a file as it was written, or opens
    files with wrong checksums.
    """
    trial.measure(
        healthy_rejected=_read_with(trial, lambda path, data: [f"{path.name}: {why}" for why in _wrong_checksums(data)])
    )
    regions = ("header", "metadata", "index", "payload", "padding", "footer", "truncated", "appended", "unbounded")
    _hide(trial, "cases", "damages", "limits_misjudged", *(f"{region}_accepted" for region in regions))


@propagates
def _read_with(trial: Trial[WrittenElsewhere], examine: Callable[[Path, bytes], T]) -> list[T]:
    """The result of `examine` for each file."""
    return [examine(path, _read(path)) for path in trial.subject.apr_files()]


@propagates
def _of(section: str, wrong: list[dict[str, list[str]]]) -> list[list[str]]:
    """The differences in one section, by file."""
    return [differences[section] for differences in wrong]


@propagates
def _faulty_metadata(wrong: list[list[str]]) -> list[list[str]]:
    """The differences in the metadata. Their absence is not visible."""
    if not any(wrong):
        raise NotObserved("the metadata are JSON; whether their values are the intended ones is unknown")
    return wrong


def _hide(trial: Trial[WrittenElsewhere], *names: str) -> None:
    trial.measure(**dict.fromkeys(names, Unobserved(_NO_ONE_ASKED)))


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise NotObserved(f"{path} is larger than {_LARGEST} bytes and is not read")
        return path.read_bytes()
    except OSError as error:
        raise NotObserved(f"{path} cannot be read: {error.strerror}") from error


def _named(path: Path, wrong: dict[str, list[str]]) -> dict[str, list[str]]:
    """The same differences, each with the name of the file in front."""
    return {section: [f"{path.name}: {what}" for what in texts] for section, texts in wrong.items()}


def _departures(data: bytes) -> dict[str, list[str]]:
    """The differences from the table. If the index cannot be followed, only that is reported about it."""
    try:
        layout = Layout.of(data)
    except Malformed:
        return departures(data, AprFile((), {}))
    tensors = [
        TensorRecord(entry.name.decode(errors="replace"), entry.dtype, entry.shape, b"") for entry in layout.entries
    ]
    wrong = departures(data, AprFile(tensors, {}))
    wrong["metadata"] = [] if _is_object(data[slice(*layout.metadata)]) else ["no JSON object"]
    # Without known content, the index can contradict the table in its order and in sizes that do not fit the dtype.
    wrong["index"] = [field for field in wrong["index"] if field == "order"]
    for entry in layout.entries:
        size = nbytes(entry.dtype, prod(entry.shape))
        if size is None:
            wrong["index"].append(f"{entry.name.decode(errors='replace')}: no dtype has the number {entry.dtype}")
        elif size != entry.size:
            wrong["index"].append(f"{entry.name.decode(errors='replace')}: {entry.size} bytes instead of {size}")
    return wrong


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(strictjson.loads(text.decode()), dict)
    except (ValueError, RecursionError):
        return False


def _wrong_checksums(data: bytes) -> Iterator[str]:
    header = data[:64].ljust(64, b"\0")
    if header[40:44] != zlib.crc32(header[:40] + header[44:]).to_bytes(4, "little"):
        yield "the header's checksum is wrong"
    if data[-4:] != zlib.crc32(memoryview(data)[:-4]).to_bytes(4, "little"):
        yield "the footer's checksum is wrong"
