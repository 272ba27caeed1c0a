"""Inspects every tensor of a checkpoint and reports findings, such as NaN or duplicate weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.base.strictjson import JsonObject
from harness.tools.inspect.checkpoint import formats
from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused, opened
from harness.tools.inspect.checkpoint.entries import Contents
from harness.tools.inspect.checkpoint.scan import Statistics, refuse_endless_views, scan

__all__ = ["Finding", "Inspection", "Kind", "Tensor", "inspect", "inspect_contents"]


class Kind(StrEnum):
    """Kinds of findings. A finding is not an error by itself: a new bias is zero, and a new norm is constant."""

    NO_WEIGHTS = "no-weights"
    """The file holds no number at all."""
    NOT_FINITE = "not-finite"
    """The tensor holds NaN or infinities."""
    ZERO = "zero"
    """Every number of the tensor is zero."""
    CONSTANT = "constant"
    """The tensor has at least two numbers, all equal and not zero."""
    DUPLICATE = "duplicate"
    """Tensors of the same dtype, shape and bytes, and not constant: tied weights, or one saved in place of another."""
    EMPTY = "empty"
    """The tensor has no bytes: a dimension is 0, or it is a placeholder."""
    LAYOUT = "layout"
    """The file departs from its format but could be read."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file.

    Attributes:
        shape: row-major, the slowest dimension first, in every format.
        elements: the number of elements that the shape states.
        size: in bytes, in the file.
        digest: SHA-256 of the elements' bytes in row-major order. Equal tensors of one dtype have equal digests.
        statistics: None if the dtype cannot be decoded.
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
    """A finding: its kind, the names of the tensors that it is about, and a sentence."""

    kind: Kind
    tensors: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    Attributes:
        format: the name of the file's format.
        file_bytes: the file's size.
        tensors: by name, in the file's order.
        metadata: JSON values by name.
    """

    path: Path
    format: str
    file_bytes: int
    tensors: Mapping[str, Tensor]
    metadata: JsonObject
    findings: tuple[Finding, ...]

    @property
    def elements(self) -> int:
        """The number of elements in the file, without placeholders."""
        return sum(tensor.elements for tensor in self.tensors.values() if tensor.size)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; floats may be infinite or NaN."""
        tensors = [asdict(tensor) for tensor in self.tensors.values()]
        findings = [asdict(finding) for finding in self.findings]
        own = {"path": str(self.path), "elements": self.elements, "tensors": tensors, "findings": findings}
        return {**vars(self), **own}


def inspect(path: Path) -> Inspection:
    """Inspect every tensor of the checkpoint at `path`.

    Raises:
        Refused: the file cannot be read to its end.
    """
    try:
        with opened(path) as source:
            return inspect_contents(source, formats.read(source))
    except Refused as error:
        raise type(error)(error.reason, error.offset, path) from error


def inspect_contents(source: BoundedFile, contents: Contents) -> Inspection:
    """Do the same as `inspect` for an open file whose format was read already."""
    entries = list(contents.entries)
    refuse_endless_views(source, entries)
    scans: dict[tuple[Any, ...], tuple[str, Statistics | None]] = {}
    tensors = {}
    for entry in entries:
        region = (entry.offset, entry.size, entry.dtype.name, entry.shape, entry.strides)
        if region not in scans:
            scans[region] = scan(source, entry)
        tensors[entry.name] = Tensor(
            entry.name, entry.dtype.name, entry.shape, entry.elements, entry.size, *scans[region]
        )
    findings = (*_findings(tensors.values()), *(Finding(Kind.LAYOUT, (), remark) for remark in contents.remarks))
    return Inspection(source.path, contents.format, source.size, tensors, contents.metadata, findings)


def _findings(tensors: Iterable[Tensor]) -> Iterator[Finding]:
    tensors = list(tensors)
    if not any(tensor.size for tensor in tensors):
        named = "0 tensors" if not tensors else f"{len(tensors)} tensors without a byte"
        yield Finding(Kind.NO_WEIGHTS, (), f"{named}: this file holds no weights")
    alike: dict[tuple[str, tuple[int, ...], str], list[str]] = defaultdict(list)
    for tensor in tensors:
        if not tensor.size:
            brings = (
                "a dimension is 0" if not tensor.elements else f"named with {tensor.elements:,} elements, brings none"
            )
            yield Finding(Kind.EMPTY, (tensor.name,), brings)
            continue
        seen = tensor.statistics
        uniform = seen is not None and seen.minimum == seen.maximum and not seen.nan + seen.infinite
        if not uniform:
            alike[tensor.dtype, tensor.shape, tensor.digest].append(tensor.name)
        if seen is None:
            continue
        if seen.nan or seen.infinite:
            text = f"{seen.nan:,} NaN and {seen.infinite:,} infinite of {tensor.elements:,}"
            yield Finding(Kind.NOT_FINITE, (tensor.name,), text)
        if uniform and seen.minimum == 0:
            yield Finding(Kind.ZERO, (tensor.name,), f"all {tensor.elements:,} are zero")
        elif uniform and tensor.elements > 1:
            yield Finding(Kind.CONSTANT, (tensor.name,), f"all {tensor.elements:,} are {seen.minimum:.6g}")
    for names in alike.values():
        if len(names) > 1:
            yield Finding(Kind.DUPLICATE, tuple(names), f"{len(names)} tensors have the same bytes")
