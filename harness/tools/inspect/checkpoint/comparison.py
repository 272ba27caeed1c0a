"""Compares two checkpoints tensor by tensor. Their formats may differ."""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness.tools.inspect.checkpoint import formats
from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused, opened
from harness.tools.inspect.checkpoint.entries import Entry
from harness.tools.inspect.checkpoint.scan import numbers
from harness.tools.inspect.checkpoint.tensors import Inspection, inspect_contents

__all__ = ["Change", "Comparison", "compare"]


@dataclass(frozen=True)
class Change:
    """A tensor that both files have, with different bits.

    Attributes:
        dtypes, shapes: of this file, then of the other.
        largest: the largest absolute difference of two finite numbers at the same place, in float64. It is 0 if only
            the bits differ (-0.0 and 0.0), and None if the shapes differ or a dtype cannot be decoded.
        relative: the L2 norm of the differences divided by the L2 norm of the other's numbers, over the same places.
            None if `largest` is None, or if all numbers of the other are zero.
        not_comparable: how many places hold a number that is not finite in one of the two.
    """

    name: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    largest: float | None = None
    relative: float | None = None
    not_comparable: int = 0


@dataclass(frozen=True)
class Comparison:
    """The difference between two files.

    Attributes:
        missing: names of tensors that only the other file has.
        extra: names of tensors that only this file has.
        equal: names of tensors with the same dtype, shape and bytes in both.
        changed: all other tensors that both have.
    """

    this: Inspection
    other: Inspection
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    equal: tuple[str, ...]
    changed: tuple[Change, ...]

    @property
    def same(self) -> bool:
        """Whether both files hold the same tensors, bit by bit."""
        return not (self.missing or self.extra or self.changed)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; floats may be infinite."""
        names = {"missing": self.missing, "extra": self.extra, "equal": self.equal}
        return {"against": str(self.other.path), **names, "changed": [asdict(change) for change in self.changed]}


def compare(path: Path, against: Path) -> Comparison:
    """Inspect both files and compare the tensors of equal name.

    Raises:
        Refused: one file cannot be read; the error's `path` names it.
    """
    with contextlib.ExitStack() as files:
        source, here, this = _inspected(files, path)
        other_source, there, other = _inspected(files, against)
        common = [name for name in here if name in there]
        equal = {name: None for name in common if _same(this, other, name)}
        return Comparison(
            this,
            other,
            missing=tuple(name for name in there if name not in here),
            extra=tuple(name for name in here if name not in there),
            equal=tuple(equal),
            changed=tuple(
                _change(source, here[name], other_source, there[name]) for name in common if name not in equal
            ),
        )


def _inspected(files: contextlib.ExitStack, path: Path) -> tuple[BoundedFile, dict[str, Entry], Inspection]:
    """Open and inspect a file; return it with its entries by name and the inspection."""
    try:
        source = files.enter_context(opened(path))
        contents = formats.read(source)
        return source, {entry.name: entry for entry in contents.entries}, inspect_contents(source, contents)
    except Refused as error:
        raise Refused(error.reason, error.offset, path) from error


def _same(this: Inspection, other: Inspection, name: str) -> bool:
    left, right = this.tensors[name], other.tensors[name]
    return (left.dtype, left.shape, left.digest) == (right.dtype, right.shape, right.digest)


def _change(source: BoundedFile, entry: Entry, other_source: BoundedFile, other: Entry) -> Change:
    change = Change(entry.name, (entry.dtype.name, other.dtype.name), (entry.shape, other.shape))
    decodable = entry.dtype.decode is not None and other.dtype.decode is not None
    if not decodable or entry.shape != other.shape or entry.held != other.held:
        return change
    largest = squared = reference = 0.0
    not_comparable = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for ours, theirs in zip_longest(numbers(source, entry), numbers(other_source, other)):
            if ours is None or theirs is None or ours.size != theirs.size:
                return change  # complex numbers against real ones
            left, right = ours.astype(np.float64), theirs.astype(np.float64)
            comparable = np.isfinite(left) & np.isfinite(right)
            not_comparable += int(comparable.size - np.count_nonzero(comparable))
            left, right = left[comparable], right[comparable]
            if left.size:
                difference = np.abs(left - right)
                largest = max(largest, float(difference.max()))
                squared += float(np.square(difference).sum())
                reference += float(np.square(right).sum())
    relative = math.sqrt(squared) / math.sqrt(reference) if 0.0 < reference < math.inf and squared < math.inf else None
    return replace(change, largest=largest, relative=relative, not_comparable=not_comparable)
