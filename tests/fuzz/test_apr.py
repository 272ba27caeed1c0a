"""APR v2: any sections, index and metadata, with and without correct checksums."""

from __future__ import annotations

from hypothesis import given

from tests.fuzz.checkpoints import ARRAYS, OTHERS, examine
from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise
from tests.tools.inspect.checkpoint.files import apr, with_apr_header

FILES = [apr(ARRAYS), apr(OTHERS, {"nested": {"a": [1, 2.5, None]}}), apr({})]


def with_right_checksums(data: bytes) -> bytes:
    """The file with the CRC32 of header and file computed anew, so that the rest is read."""
    return with_apr_header(data, 44, b"") if len(data) > 68 else data


@given(damaged(FILES, with_right_checksums) | noise(b"APR\0\2\0"))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    examine(data)


@cases("apr")
def test_the_corpus(data: bytes) -> None:
    examine(data)
