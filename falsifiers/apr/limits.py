"""What the format allows, and what is just beyond: files with right checksums for readers, contents for writers.

The limits are those of aprender-core, crates/aprender-core/src/format/v2: version 2.0, row-major tensors, names of 256
bytes, 8 dimensions, 16 MiB of metadata.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeVar

from falsifiers.apr.byte_table import COLUMN_MAJOR, ROW_MAJOR, Layout, build, patched
from falsifiers.apr.subject import AprFile, AprFormat, Rejected, TensorRecord
from harness import Trial

T = TypeVar("T")

_LONGEST_NAME = 256
_LARGEST_METADATA = 16 * 2**20
_MOST_DIMENSIONS = 8
_ENCODINGS = {"LZ4": 1, "ZSTD": 2, "encryption": 4}
_INFORMATION = {"quantised": 32, "a filter bank": 64, "a model card": 128, "streaming": 256, "a vocabulary": 512}


def misjudged_by_reader(trial: Trial[AprFormat]) -> list[str]:
    """The files that the subject opens and should reject, or the other way round."""
    return [what for what, data, is_allowed in files() if opens(trial, data) is not is_allowed]


def misjudged_by_writer(trial: Trial[AprFormat]) -> list[str]:
    """The contents that the subject writes and should refuse with a ValueError, or the other way round."""
    around = int.from_bytes(written(trial, _with_metadata(0))[20:24], "little")
    return [
        what
        for what, content, is_allowed in contents(around)
        if _takes(trial, trial.subject.write, content, ValueError) is not is_allowed
    ]


def opens(trial: Trial[AprFormat], data: bytes) -> bool:
    """Whether the subject reads these bytes. Any exception but Rejected is the subject's fault."""
    return _takes(trial, trial.subject.read, data, Rejected)


def written(trial: Trial[AprFormat], file: AprFile) -> bytes:
    """The bytes that the subject writes. What is no bytes is the subject's fault."""
    with trial.subject_fault():
        data = trial.subject.write(file)
        if not isinstance(data, bytes):
            raise TypeError(f"write() returned {type(data).__name__}, not bytes")
    return data


def _takes(trial: Trial[AprFormat], give: Callable[[T], object], what: T, refusal: type[Exception]) -> bool:
    """Whether the subject does not refuse what it is given; any other exception is its fault."""
    with trial.subject_fault():
        try:
            give(what)
        except refusal:
            return False
    return True


def contents(around: int) -> Iterator[tuple[str, AprFile, bool]]:
    """Yields a description, the content, and whether the format allows it.

    Args:
        around: bytes of the writer's JSON around the text in `{"k": ""}`; some writers put spaces.
    """
    for length in (_LONGEST_NAME, _LONGEST_NAME + 1):
        yield f"a name of {length} bytes", _file("n" * length), length == _LONGEST_NAME
        # Two bytes a character: a limit in characters would allow both.
        name = "é" * (_LONGEST_NAME // 2) + "n" * (length - _LONGEST_NAME)
        yield f"a name of {length} bytes, most of them in pairs", _file(name), length == _LONGEST_NAME
    for dimensions in (_MOST_DIMENSIONS, _MOST_DIMENSIONS + 1):
        shape = (*[1] * (dimensions - 1), 3)
        yield f"{dimensions} dimensions", _file(shape=shape), dimensions == _MOST_DIMENSIONS
    for size in (_LARGEST_METADATA, _LARGEST_METADATA + 1):
        yield f"{size} bytes of metadata", _with_metadata(size - around), size == _LARGEST_METADATA
    two = _file().tensors
    yield "two tensors of one name", AprFile([*two, two[0]], {}), False
    yield "metadata with NaN", AprFile(two, {"k": float("nan")}), False


@cache
def files() -> tuple[tuple[str, bytes, bool], ...]:
    """Descriptions, files with right checksums (but for one large file), and whether a reader should open them."""
    return tuple(_files())


def _files() -> Iterator[tuple[str, bytes, bool]]:
    data = build(_file())
    layout = Layout.of(data)
    (start, end), (index, index_end), tensors = layout.metadata, layout.index, layout.data

    yield "no change", data, True
    for magic in (b"APRN", b"APR2", b"GGUF"):
        yield f"the magic number {magic.decode()}", patched(data, 0, magic), False
    for major, minor in ((0, 0), (1, 0), (2, 1), (3, 0), (2, 255)):
        yield f"version {major}.{minor}", patched(data, 4, bytes([major, minor])), False

    flags = {f"the flag for {what}": (ROW_MAJOR | bit, True) for what, bit in _INFORMATION.items()}
    flags |= {f"the flag for {what}": (ROW_MAJOR | bit, False) for what, bit in _ENCODINGS.items()}
    flags |= {"no flag": (0, False), "column-major": (COLUMN_MAJOR, False)}
    flags["row-major and column-major"] = (ROW_MAJOR | COLUMN_MAJOR, False)
    for what, (bits, is_allowed) in flags.items():
        yield what, patched(data, 6, bits.to_bytes(2, "little")), is_allowed

    for what, content, is_allowed in contents(len(json.dumps({"k": ""}))):
        if what not in ("two tensors of one name", "metadata with NaN"):  # there the writer has to choose
            yield what, build(content), is_allowed

    for count in (1, 3):
        yield f"{count} tensors in the header, 2 in the index", patched(data, 8, count.to_bytes(4, "little")), False
    sizes = {
        "no metadata": 0,
        "metadata without its last byte": end - start - 1,
        "metadata with a byte of padding": end - start + 1,
        "metadata up to the index": index - start,
        "metadata into the index": index - start + 1,
    }
    for what, size in sizes.items():
        yield what, patched(data, 20, size.to_bytes(4, "little")), False
    for what, text in {"a list": b"[1,2,345]", "no UTF-8": b'{"\xff":123}', "no JSON": b'{"k":1 23'}.items():
        assert len(text) == end - start
        yield f"metadata that is {what}", patched(data, start, text), False

    offsets = {"metadata": (12, start), "index": (24, index), "data": (32, tensors)}
    for what, (at, true) in offsets.items():
        for change in (-64, -1, 1, 64):
            yield f"{what} {change:+} bytes", patched(data, at, (true + change).to_bytes(8, "little")), False
    yield "a name that is no UTF-8", patched(data, index + 2, b"\xff"), False
    yield "a name of 65,535 bytes in the index", patched(data, index, b"\xff\xff"), False
    yield "255 dimensions in the index", patched(data, index + 2 + 1 + 1, b"\xff"), False
    size = len(_file().tensors[1].data)
    for more in (65 - size, 66 - size, 68 - size, 69 - size):
        last = (size + more).to_bytes(8, "little")
        yield f"a last tensor {more} bytes longer", patched(data, index_end - 8, last), False
    large = build(_with_metadata(_LARGEST_METADATA - 64))
    middle = len(large) // 2
    yield "a byte changed in 16 MiB", large[:middle] + b"y" + large[middle + 1 :], False
    json_inside = build(AprFile([TensorRecord("a", 7, (end - start,), data[start:end])], {"k": 12}))
    moved = Layout.of(json_inside).data.to_bytes(8, "little")
    yield "metadata that are the data of a tensor", patched(json_inside, 12, moved), False
    yield "64 zeros before the footer", patched(data[:-4] + bytes(64 + 4), 0, b""), False
    yield "no padding after the last tensor", patched(data[: -4 - (64 - size)] + bytes(4), 0, b""), False


def _file(name: str = "a", shape: tuple[int, ...] = (3,)) -> AprFile:
    return AprFile([TensorRecord(name, 7, shape, b"\1\2\3"), TensorRecord("b", 0, (2,), bytes(range(8)))], {"k": 12})


def _with_metadata(length: int) -> AprFile:
    return AprFile(_file().tensors, {"k": "x" * length})
