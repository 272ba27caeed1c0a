"""How two checkpoints differ, tensor by tensor, whichever formats they have."""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness.inspect.checkpoint import formats
from harness.inspect.checkpoint.contents import Entry
from harness.inspect.checkpoint.inspection import Inspection, inspect_contents
from harness.inspect.checkpoint.scan import numbers
from harness.inspect.checkpoint.source import Refused, Source, opened

__all__ = ["Change", "Comparison", "compare"]


@dataclass(frozen=True)
class Change:
    """A tensor that both files have, and that is not the same to the bit.

    Attributes:
        dtypes, shapes: this file's and the other's.
        largest: the largest absolute difference of two finite numbers at the same place, in float64; 0 where only the
            bits differ (-0.0 and 0.0). None where the shapes differ or a dtype cannot be decoded.
        relative: root of the sum of squared differences over that of the other's squares, of the same numbers; None
            where `largest` is, or where all of the other's are zero.
        not_comparable: places where one of the two is not finite.
    """

    name: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    largest: float | None = None
    relative: float | None = None
    not_comparable: int = 0


@dataclass(frozen=True)
class Comparison:
    """A file against another: the names that only one of them has, and what differs between the tensors of both.

    Attributes:
        missing: in the other file and not in this one.
        extra: in this file and not in the other.
        equal: names of tensors with the same dtype, shape and bytes.
        changed: the rest.
    """

    this: Inspection
    other: Inspection
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    equal: tuple[str, ...]
    changed: tuple[Change, ...]

    @property
    def same(self) -> bool:
        """Whether both files hold the same tensors, to the bit."""
        return not (self.missing or self.extra or self.changed)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; floats may be infinite."""
        changed = [
            asdict(one) | {"dtypes": list(one.dtypes), "shapes": [list(s) for s in one.shapes]} for one in self.changed
        ]
        return {
            "against": str(self.other.path),
            "missing": list(self.missing),
            "extra": list(self.extra),
            "equal": list(self.equal),
            "changed": changed,
        }


def compare(path: Path, against: Path) -> Comparison:
    """Inspect both files and compare them by the names of their tensors.

    Raises:
        Refused: one of them cannot be read; `path` says which.
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


def _inspected(files: contextlib.ExitStack, path: Path) -> tuple[Source, dict[str, Entry], Inspection]:
    """An open file, where its tensors lie, and what is in it."""
    try:
        source = files.enter_context(opened(path))
        contents = formats.read(source)
        return source, {entry.name: entry for entry in contents.entries}, inspect_contents(source, contents)
    except Refused as error:
        raise Refused(error.reason, error.offset, path) from error


def _same(this: Inspection, other: Inspection, name: str) -> bool:
    one, two = this.tensors[name], other.tensors[name]
    return (one.dtype, one.shape, one.digest) == (two.dtype, two.shape, two.digest)


def _change(source: Source, entry: Entry, other_source: Source, other: Entry) -> Change:
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
            one, two = ours.astype(np.float64), theirs.astype(np.float64)
            comparable = np.isfinite(one) & np.isfinite(two)
            not_comparable += int(comparable.size - np.count_nonzero(comparable))
            one, two = one[comparable], two[comparable]
            if one.size:
                difference = np.abs(one - two)
                largest = max(largest, float(difference.max()))
                squared += float(np.square(difference).sum())
                reference += float(np.square(two).sum())
    relative = math.sqrt(squared) / math.sqrt(reference) if 0.0 < reference < math.inf and squared < math.inf else None
    return Change(entry.name, change.dtypes, change.shapes, largest, relative, not_comparable)
