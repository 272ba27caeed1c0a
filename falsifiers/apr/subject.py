"""What the falsifiers of APR v2 ask of an implementation: a writer and a reader of whole files, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["AprFile", "AprFormat", "Rejected", "TensorRecord"]


class Rejected(Exception):
    """A file that the reader does not accept. Any other exception out of a reader is a crash."""


@dataclass(frozen=True)
class TensorRecord:
    """A tensor as the format sees it.

    Attributes:
        name: up to 256 bytes of UTF-8.
        dtype: the format's own number, such as 0 for F32.
        shape: at most 8 dimensions, the slowest first.
        data: the elements as stored, little-endian and row-major.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class AprFile:
    """What a file says: its tensors in any order, and its metadata, a JSON object."""

    tensors: Sequence[TensorRecord]
    metadata: Mapping[str, Any]


class AprFormat(Protocol):
    """A subject: `SubjectClass(setting)` makes one."""

    def write(self, file: AprFile) -> bytes:
        """The bytes of a file with these tensors and this metadata."""

    def read(self, data: bytes) -> AprFile:
        """What the bytes say.

        Raises:
            Rejected: they are no APR v2 file as it was written.
        """
