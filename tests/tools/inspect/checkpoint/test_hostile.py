"""Any bytes are read or refused: no other exception, no hang, and no code of the file runs."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.tools.inspect.checkpoint import Inspection, Kind, Packed, Refused, inspect
from tests.tools.inspect.checkpoint.files import FORMATS, safetensors_bytes

FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
ARRAYS = {"a.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.arange(5, dtype=np.float16)}
EXTREMES = [0, 1, 7, 63, 64, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
U64 = st.one_of(st.sampled_from(EXTREMES), st.integers(0, 2**64 - 1))


@pytest.fixture(params=FORMATS)
def healthy(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """A small healthy file of each format."""
    data: bytes = FORMATS[request.param](ARRAYS, tmp_path)
    return data


def looked_at(path: Path, data: bytes) -> Inspection | Refused:
    """The inspection or the refusal of these bytes. Anything else fails the test."""
    path.write_bytes(data)
    try:
        return inspect(path)
    except Refused as error:
        refused = error
    assert refused.offset is None or 0 <= refused.offset <= len(data)
    assert refused.path == path
    return refused


def refusal(path: Path, data: bytes) -> tuple[str, int | None, str]:
    """The class, the offset in bytes and the reason of the refusal of these bytes."""
    refused = looked_at(path, data)
    assert isinstance(refused, Refused)
    return type(refused).__name__, refused.offset, refused.reason


@FUZZ
@given(draw=st.data())
def test_any_end_may_be_missing(healthy: bytes, tmp_path: Path, draw: st.DataObject) -> None:
    """A file that was cut short is refused, wherever it was cut."""
    length = draw.draw(st.integers(0, len(healthy) - 1))
    if healthy.startswith(b"GGUF") and not any(healthy[length:]):
        return  # it pads its last tensor with zeros that no reader needs
    assert isinstance(looked_at(tmp_path / "file", healthy[:length]), Refused)


# Every header field of each format by itself, with checksums corrected so that the rest is read.

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), U64, st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
SAID = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(["F32", "F4", "BOOL", "C64"]), JSON),
        "shape": st.one_of(st.lists(U64, max_size=4), JSON),
        "data_offsets": st.one_of(st.lists(U64, min_size=2, max_size=2), JSON),
    }
)


@FUZZ
@given(
    header=st.one_of(JSON, st.dictionaries(st.text(max_size=5), st.one_of(SAID, JSON), max_size=3)),
    length=st.one_of(st.none(), U64),
    data=st.binary(max_size=40),
)
@example(header={"t": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 0]}}, length=None, data=b"")
@example(header={"t": {"dtype": "U8", "shape": [-1], "data_offsets": [1, 0]}}, length=None, data=b"\0")
@example(header={"t": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, length=None, data=b"\0")
def test_safetensors_headers(header: Any, length: int | None, data: bytes, tmp_path: Path) -> None:
    """The header is any JSON. If the format's own library refuses it, the inspector does not accept it."""
    text = json.dumps(header).encode()
    path = tmp_path / "file"
    seen = looked_at(path, struct.pack("<Q", len(text) if length is None else length) + text + data)
    if isinstance(seen, Inspection) and seen.format == "safetensors":
        with safetensors.safe_open(path, "np") as file:
            assert set(file.keys()) == set(seen.tensors)


def said(*offsets: tuple[int, int], names: str = "ab") -> str:
    """A header with a tensor of bytes for each pair of offsets."""
    shape = [{"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]} for start, end in offsets]
    return "{" + ", ".join(f'"{name}": {json.dumps(size)}' for name, size in zip(names, shape, strict=False)) + "}"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(said((0, 1), (1, 2), names="aa"), id="two tensors of one name"),
        pytest.param(said((1, 2)), id="a gap before the first tensor"),
        pytest.param(said((0, 1)), id="bytes of no tensor"),
        pytest.param(said((0, 2), (1, 3)), id="an overlap"),
        pytest.param(said((0, 2), (2, 9)), id="a tensor past the end"),
        pytest.param('{"__metadata__": {"a": 1}}', id="metadata that is no text"),
        pytest.param('{"a": ' * 5000 + "1" + "}" * 5000, id="deep nesting"),
    ],
)
def test_safetensors_rules(header: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    data = struct.pack("<Q", len(header)) + header.encode() + b"\0\0"
    assert refusal(tmp_path / "file", data) == snapshot


# PyTorch's zip: the archive and the pickle.


def zipped(pickled: bytes, storages: dict[str, bytes] | None = None, **options: Any) -> bytes:
    """An archive as torch.save writes it, around any pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", options.get("compression", zipfile.ZIP_STORED)) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", options.get("byteorder", "little"))
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
    return file.getvalue()


class Runs:
    """An object that runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def test_no_code_of_the_file_runs(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The refusal names the function that the pickle would call."""
    proof = tmp_path / "it-ran"
    torch.save({"model": torch.ones(2), "extra": Runs(f"touch {proof}")}, tmp_path / "evil.pt")
    assert refusal(tmp_path / "file", (tmp_path / "evil.pt").read_bytes()) == snapshot
    assert not proof.exists()


OPCODES = [bytes([code]) for code in b"()]}tae sbuh01Rq.X2NIKMJ\x88\x89\x80\x81\x85\x86\x87\x8e\x90\x93\x94Qcr"]


def tensor(first: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int = 4, key: str = "0") -> bytes:
    """The pickle of one float32 tensor, written by hand."""

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(pickle.dumps(value, 2)[2:-1] for value in values) + b"t"

    described = b"(X\7\0\0\0storagectorch\nFloatStorage\n" + b"".join(
        (b"X" + struct.pack("<I", len(text)) + text.encode()) for text in (key, "cpu")
    )
    described += pickle.dumps(size, 2)[2:-1] + b"tQ"
    place = pickle.dumps(first, 2)[2:-1]
    arguments = b"(" + described + place + numbers(shape) + numbers(strides) + b"\x89}t"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


def test_a_tensor_written_by_hand_is_read(tmp_path: Path) -> None:
    """The pickle of the tests below is valid without their defects."""
    seen = looked_at(tmp_path / "file", zipped(tensor(0, (2, 2), (2, 1)), {"0": bytes(16)}))
    assert isinstance(seen, Inspection)
    assert seen.tensors["."].shape == (2, 2)


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(tensor(1, (2, 2), (2, 1)), id="past the end of the storage, by the offset"),
        pytest.param(tensor(0, (5,), (1,)), id="past the end of the storage, by the shape"),
        pytest.param(tensor(0, (2,), (4,)), id="past the end of the storage, by the stride"),
        pytest.param(tensor(-1, (2,), (1,)), id="a negative offset"),
        pytest.param(tensor(0, (2,), (-1,)), id="a negative stride"),
        pytest.param(tensor(0, (2, 2), (1,)), id="fewer strides than dimensions"),
        pytest.param(tensor(0, (2**62, 4), (0, 1)), id="an endless view"),
        pytest.param(tensor(0, (2**62,), (2**62,)), id="past the end of the storage, beyond 64 bits"),
        pytest.param(tensor(0, (4,), (1,), size=5), id="a storage of another size"),
        pytest.param(tensor(0, (4,), (1,), key="7"), id="a missing storage"),
        pytest.param(tensor(0, (4,), (1,), key="../data.pkl"), id="a storage in another folder"),
        pytest.param(b"\x80\x02cbuiltins\neval\nX\1\0\0\0a\x85R.", id="eval"),
        pytest.param(b"\x80\x02]q\0h\0a.", id="a list that contains itself"),
        pytest.param(b"\x80\x02r\xff\xff\xff\xff.", id="a memo of nothing"),
        pytest.param(b"\x80\x02(((((((((", id="marks without an end"),
        pytest.param(b"\x80\x02" + b"\x8a\x04" + bytes(4) + b"0.", id="POP"),
        pytest.param(b"\x80\x02cos\nsystem\n.", id="GLOBAL os.system"),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="STACK_GLOBAL os.system"),
        pytest.param(b"\x80\x02\x82\1.", id="EXT1"),
    ],
)
def test_what_no_checkpoint_needs(pickled: bytes, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert refusal(tmp_path / "file", zipped(pickled, {"0": bytes(16)})) == snapshot


def test_archives_that_pytorch_does_not_write(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Compressed or damaged members, another byte order, code, and a missing pickle are refused."""
    good = tensor(0, (2, 2), (2, 1))
    whole = zipped(good, {"0": b"0123456789abcdef"})
    scripted = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), scripted)
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("readme.txt", "no weights here")
    files = {
        "compressed": zipped(good, {"0": bytes(16)}, compression=zipfile.ZIP_DEFLATED),
        "big-endian": zipped(good, {"0": bytes(16)}, byteorder="big"),
        "cut short in the first member": whole[:40],
        "cut short in the middle": whole[: len(whole) // 2],
        "cut short in the directory": whole[: len(whole) - 30],
        "corrupt": whole.replace(b"0123456789abcdef", b"0123456789abcdeg"),
        "TorchScript": scripted.getvalue(),
        "no data.pkl": empty.getvalue(),
    }
    assert {name: refusal(tmp_path / "file", data) for name, data in files.items()} == snapshot


def test_npz_archives(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Objects would be unpickled, and compressed members unpacked; both are refused, and so is a header that lies."""
    compressed, objects, big_endian = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez_compressed(compressed, w=np.zeros(100, np.float32))
    np.savez(objects, w=np.array([{}], dtype=object))
    np.savez(big_endian, w=np.ones(3, ">f4"))
    good = io.BytesIO()
    np.save(good, np.ones((2, 3), np.float32))

    def archived(member: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("w.npy", member)
        return file.getvalue()

    text = good.getvalue()
    files = {
        "compressed": compressed.getvalue(),
        "objects": objects.getvalue(),
        "big-endian": big_endian.getvalue(),
        "too many elements": archived(text.replace(b"(2, 3)", b"(9, 3)")),
        "a shape below zero": archived(text.replace(b"(2, 3)", b"(-2,3)")),
        "an expression": archived(text.replace(b"(2, 3)", b"exit()")),
        "no shape": archived(text.replace(b"'shape'", b"'shade'")),
        "a long header": archived(text[:8] + b"\xff\xff" + text[10:]),
        "no magic": archived(b"NUMPY!" + text[6:]),
        "empty": archived(b""),
    }
    assert {name: refusal(tmp_path / "file", data) for name, data in files.items()} == snapshot


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_a_compressed_file_is_to_be_unpacked_first(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    packed = importlib.import_module(name).compress(zipped(b"", {}))
    assert isinstance(looked_at(tmp_path / "file", packed), Packed)
    assert refusal(tmp_path / "file", packed) == snapshot


def test_a_zip_archive_of_something_else_is_to_be_unpacked_first(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """For a wheel, for example, the message says to unpack it."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("engine/libengine.so", bytes(100))
    assert isinstance(looked_at(tmp_path / "file", wheel.getvalue()), Packed)
    assert refusal(tmp_path / "file", wheel.getvalue()) == snapshot


def test_a_file_without_checksums_is_read_with_a_finding(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """PyTorch has an option to write no checksums."""
    torch.save({"w": torch.ones(2)}, tmp_path / "with")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(2)}, tmp_path / "without")
    finally:
        torch.serialization.set_crc32_options(True)
    found = {name: inspect(tmp_path / name).findings for name in ("with", "without")}
    kinds = {name: [finding.kind for finding in findings] for name, findings in found.items()}
    assert kinds == {"with": [Kind.CONSTANT], "without": [Kind.CONSTANT, Kind.LAYOUT]}
    assert found["without"][1].text == snapshot


def test_things_that_are_no_checkpoints(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Folders, devices, pipes, absent and empty files, and PyTorch's old format are refused.

    The reader waits for none of them.
    """
    os.mkfifo(tmp_path / "pipe")
    torch.save(torch.ones(2), tmp_path / "old", _use_new_zipfile_serialization=False)
    (tmp_path / "empty").touch()
    names = {name: tmp_path / name for name in ("pipe", "absent", "nul\0", "empty", "old")}
    reasons = {}
    for name, path in {"folder": tmp_path, "device": Path("/dev/zero"), **names}.items():
        with pytest.raises(Refused) as refused:
            inspect(path)
        reasons[name] = refused.value.reason
    assert reasons == snapshot


def test_safetensors_may_pad_its_header(tmp_path: Path) -> None:
    """The format's own writer pads with spaces to align the data."""
    good = safetensors_bytes(ARRAYS)
    (length,) = struct.unpack_from("<Q", good)
    padded = struct.pack("<Q", length + 3) + good[8 : 8 + length] + b"   " + good[8 + length :]
    assert isinstance(looked_at(tmp_path / "file", padded), Inspection)


# Work and memory that grow faster than the file. Each of these once took gigabytes, minutes, or another exception.

TEXT = b"\x8c\xc8" + b"x" * 200


def long_integer(bits: int) -> bytes:
    """The opcode LONG4 with an integer of this many bits."""
    number = (1 << bits - 1).to_bytes(bits // 8 + 1, "little")
    return b"\x8b" + struct.pack("<i", len(number)) + number


def joined(times: int) -> bytes:
    """A text that is joined to itself by `torch.device`, again and again."""
    start = b"\x80\x04ctorch\ndevice\n\x94" + TEXT + b"\x94"
    twice = [b"h\0h" + bytes([number, ord("h"), number]) + b"\x86R\x94" for number in range(1, times)]
    return start + b"".join(twice) + b"."


def nested_names(times: int) -> bytes:
    """A tuple that holds itself twice, as the name of a module: as a text it has 2**times parts."""
    twice = [bytes([ord("h"), number, ord("h"), number]) + b"\x86\x94" for number in range(times)]
    return b"\x80\x04" + TEXT + b"\x94" + b"".join(twice) + b"\x8c\1a\x93."


def shared_list(count: int, uses: int) -> bytes:
    """A list of small numbers that another list holds often."""
    return b"\x80\x04](](" + b"K\1" * count + b"e\x94" + b"h\0" * uses + b"e."


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(joined(40), id="a device joined to itself"),
        pytest.param(b"\x80\x04" + long_integer(20_000) + b".", id="an integer of 20,000 bits"),
        pytest.param(b"\x80\x04}" + long_integer(80) + b"K\1s.", id="a key of 80 bits"),
        pytest.param(nested_names(60), id="a module named by nested tuples"),
        pytest.param(shared_list(40_000, 60_000), id="a long list, often"),
        pytest.param(
            b"\x80\x04ctorch\nSize\n\x94](" + b"K\1" * 50_000 + b"e\x94](" + b"h\0h\1\x85R" * 20_000 + b"e.",
            id="copies of a long list",
        ),
        pytest.param(b"\x80\x04}X" + struct.pack("<I", 5000) + b"k" * 5000 + b"K\1s.", id="a key of 5,000 characters"),
        pytest.param(b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"cos\nsystem\n.", id="a frame of 2**63 bytes"),
        pytest.param(b"\x80\x04\x8e" + struct.pack("<Q", 2**63) + b".", id="bytes of 2**63"),
        pytest.param(b"\x80\x04\x8b" + struct.pack("<i", -1) + b".", id="an integer of -1 bytes"),
        pytest.param(b"\x80\x04P0\n.", id="a persistent id in text"),
        pytest.param(b"\x80\x04K\1Q.", id="a persistent id that is a number"),
    ],
)
def test_no_pickle_makes_more_than_the_budget(pickled: bytes, tmp_path: Path) -> None:
    """Values are paid for by their size, so that what is shared, copied or joined without end is refused."""
    assert isinstance(looked_at(tmp_path / "file", zipped(pickled)), Refused)


def test_a_zip_directory_of_many_entries_is_refused(tmp_path: Path) -> None:
    """Each entry of 46 bytes would become an object of hundreds."""
    record = struct.pack("<4s6H3I5H2I", b"PK\1\2", *[0] * 16)
    directory = record * 600_000
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 4, 0)
    assert isinstance(looked_at(tmp_path / "file", b"PK\3\4" + directory + end), Refused)
