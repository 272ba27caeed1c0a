"""What the falsifiers of APR v2 need from a subject: a writer and a reader of whole files, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Rejected(Exception):
    """The reader does not accept a file. Any other exception from a reader is a crash."""


@dataclass(frozen=True)
class TensorRecord:
    """One tensor of a file.

    Attributes:
        name: up to 256 bytes of UTF-8.
        dtype: the format's number of the dtype, such as 0 for F32.
        shape: at most 8 dimensions, row-major.
        data: the stored bytes of the elements, little-endian and row-major.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class AprFile:
    """The content of a file: its tensors in any order, and its metadata, a JSON object."""

    tensors: Sequence[TensorRecord]
    metadata: Mapping[str, Any]


class AprFormat(Protocol):
    """A writer and a reader; built as `Subject(setting)`."""

    def write(self, file: AprFile) -> bytes:
        """The bytes of a file with these tensors and this metadata.

        Raises:
            ValueError: the format has no room for them, two tensors have one name, or the metadata are no JSON.
        """

    def read(self, data: bytes) -> AprFile:
        """The content of a file.

        Raises:
            Rejected: the bytes are not an undamaged APR v2 file.
        """
