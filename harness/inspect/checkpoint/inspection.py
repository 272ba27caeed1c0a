"""What one checkpoint holds, and what about it is worth a second look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.inspect.checkpoint import formats
from harness.inspect.checkpoint.contents import Contents, Entry
from harness.inspect.checkpoint.scan import Scan, Statistics, refuse_endless_views, scan
from harness.inspect.checkpoint.source import Refused, Source, opened

__all__ = ["Finding", "Inspection", "Kind", "Tensor", "inspect", "inspect_contents"]


class Kind(StrEnum):
    """What is worth a second look. Nothing of it is wrong by itself: a fresh bias is zero, a norm constant."""

    NO_WEIGHTS = "no-weights"
    """The file holds no number at all."""
    NOT_FINITE = "not-finite"
    ZERO = "zero"
    """Every number of the tensor is zero."""
    CONSTANT = "constant"
    """Every number of the tensor is the same, and not zero; there are at least two."""
    DUPLICATE = "duplicate"
    """Tensors of the same dtype, shape and bytes, and not of one number alone: tied, or one saved as another."""
    EMPTY = "empty"
    """No bytes: a dimension is 0, or a placeholder brings none."""
    LAYOUT = "layout"
    """The file departs from its format, and could still be read."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file; `statistics` is None where its dtype cannot be decoded.

    Attributes:
        shape: row-major, the slowest dimension first, whatever the format's own order.
        elements: as the shape says.
        size: in bytes, in the file.
        digest: SHA-256 of the elements' bytes in row-major order; equal tensors of one dtype have it in common.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    size: int
    digest: str
    statistics: Statistics | None


@dataclass(frozen=True)
class Finding:
    """Something worth a second look: the tensors it is about, and what is the case."""

    kind: Kind
    tensors: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Inspection:
    """All that was seen in a file; `file_bytes` is its size, `tensors` are in the file's order."""

    path: Path
    format: str
    file_bytes: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def elements(self) -> int:
        """The numbers in the file."""
        return sum(one.elements for one in self.tensors.values() if one.size)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; floats may be infinite."""
        tensors = [asdict(one) | {"shape": list(one.shape)} for one in self.tensors.values()]
        findings = [asdict(one) | {"tensors": list(one.tensors)} for one in self.findings]
        return {
            "path": str(self.path),
            "format": self.format,
            "file_bytes": self.file_bytes,
            "elements": self.elements,
            "tensors": tensors,
            "metadata": dict(self.metadata),
            "findings": findings,
        }


def inspect(path: Path) -> Inspection:
    """Look at every tensor of the checkpoint at `path`.

    Raises:
        Refused: the file cannot be read to its end; the reason and, where there is one, the byte offset.
    """
    try:
        with opened(path) as source:
            return inspect_contents(source, formats.read(source))
    except Refused as error:
        raise type(error)(error.reason, error.offset, path) from error


def inspect_contents(source: Source, contents: Contents) -> Inspection:
    """As `inspect`, of a file that is open and whose format was read already."""
    entries = list(contents.entries)
    refuse_endless_views(source, entries)
    scans: dict[tuple[Any, ...], Scan] = {}
    tensors = {}
    for entry in entries:
        region = (entry.offset, entry.size, entry.dtype.name, entry.shape, entry.strides)
        if region not in scans:
            scans[region] = scan(source, entry)
        tensors[entry.name] = _tensor(entry, scans[region])
    findings = (*_findings(tensors.values()), *(Finding(Kind.LAYOUT, (), remark) for remark in contents.remarks))
    return Inspection(source.path, contents.format, source.size, tensors, contents.metadata, findings)


def _tensor(entry: Entry, seen: Scan) -> Tensor:
    return Tensor(entry.name, entry.dtype.name, entry.shape, entry.elements, entry.size, seen.digest, seen.statistics)


def _findings(tensors: Iterable[Tensor]) -> Iterator[Finding]:
    tensors = list(tensors)
    if not any(one.size for one in tensors):
        named = "0 tensors" if not tensors else f"{len(tensors)} tensors without a byte"
        yield Finding(Kind.NO_WEIGHTS, (), f"{named}: this file holds no weights")
    alike: dict[tuple[str, tuple[int, ...], str], list[str]] = defaultdict(list)
    for one in tensors:
        if not one.size:
            brings = "a dimension is 0" if not one.elements else f"named with {one.elements:,} elements, brings none"
            yield Finding(Kind.EMPTY, (one.name,), brings)
            continue
        seen = one.statistics
        uniform = seen is not None and seen.minimum == seen.maximum and not seen.nan + seen.infinite
        if not uniform:
            alike[one.dtype, one.shape, one.digest].append(one.name)
        if seen is None:
            continue
        if seen.nan or seen.infinite:
            text = f"{seen.nan:,} NaN and {seen.infinite:,} infinite of {one.elements:,}"
            yield Finding(Kind.NOT_FINITE, (one.name,), text)
        if uniform and seen.minimum == 0:
            yield Finding(Kind.ZERO, (one.name,), f"all {one.elements:,} are zero")
        elif uniform and one.elements > 1:
            yield Finding(Kind.CONSTANT, (one.name,), f"all {one.elements:,} are {seen.minimum:.6g}")
    for names in alike.values():
        if len(names) > 1:
            yield Finding(Kind.DUPLICATE, tuple(names), f"{len(names)} tensors have the same bytes")
