"""`harness inspect` and the check of a trainer's run with hostile files of weights and of device code."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.vocabulary import ExitStatus
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import Case, World, cases
from tests.tools.inspect.checkpoint.files import apr, gguf_bytes, safetensors_bytes, torch_zip, with_apr_header
from tests.tools.inspect.checkpoint.test_hostile import tensor, zipped
from tests.tools.inspect.device_code.test_device_code import FILES as RECORDED

ARRAYS = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float16)}
CUBIN = RECORDED["sm_121.cubin"]
FATBIN = next(data for name, data in RECORDED.items() if "fatbin" in name)


def _said(**changes: Any) -> Mapping[str, Any]:
    return {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}


def _safetensors(header: Any, data: bytes = bytes(4), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _at(data: bytes, place: int, form: str, *values: Any) -> bytes:
    new = struct.pack(form, *values)
    return data[:place] + new + data[place + len(new) :]


def _gguf(*keys: bytes, count: int | None = None, tensors: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(keys) if count is None else count) + b"".join(keys) + rest


def _text(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def _gguf_tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def _apr(at: int, form: str, value: int) -> bytes:
    return with_apr_header(apr(ARRAYS), at, struct.pack(form, value))


def _deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def _elf(place: int, form: str, value: int) -> bytes:
    return _at(CUBIN, place, form, value)


def _zstd_fatbin(entries: int) -> bytes:
    import zstandard

    blob = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    head = struct.pack("<HHIQIIIIIIQQQ", 2, 0x101, 64, len(blob), 0, 0, 0, 90, 0, 0, 0x8000, 0, 64 << 20)
    body = (head + blob) * entries
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


class _Calls:
    """A pickle of it would call a function of os."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, (Path("/tmp/called"),)  # type: ignore[return-value]


PICKLES: dict[str, bytes] = {
    "a call of pathlib": pickle.dumps(_Calls(), 2),
    "a global of builtins": b"\x80\x02cbuiltins\neval\n(X\4\0\0\x001+1.tR.",
    "an instance": b"\x80\x02(ios\nsystem\n.",
    "no stop": b"\x80\x02}",
    "a stack that is empty": b"\x80\x020.",
    "two values": b"\x80\x02}}.",
    "a memo of four thousand millions": b"\x80\x02}r\xff\xff\xff\xff.",
    "a get of nothing": b"\x80\x02h\x05.",
    "a dict in itself": b"\x80\x02}q\0X\1\0\0\0ah\0s.",
    "a long of a million bits": b"\x80\x02\x8b" + struct.pack("<I", 125_000) + b"\x7f" * 125_000 + b".",
    "a float that is not finite": b"\x80\x02}X\1\0\0\0aG\x7f\xf8\0\0\0\0\0\0s.",
    "keys with equal hashes": b"\x80\x02}(" + b"".join(
        b"\x8a\x09" + ((2**61 - 1) * n).to_bytes(9, "little") + b"N" for n in range(1, 100)
    ) + b"u.",
    "a dict as a key": b"\x80\x02}}Ns.",
    "a tensor with a negative size": tensor(0, (2,), (1,))[:-1].replace(b"K\x02", b"J\xff\xff\xff\xff") + b".",
    "frames that lie": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
    "reductions of reductions": b"\x80\x02ccollections\nOrderedDict\nq\0" + b"(h\0)R" * 1000 + b"t.",
}  # fmt: skip

FILES: dict[str, Callable[[Path], bytes]] = {
    **{f"pickle: {name}": lambda _, data=data: zipped(data, {"0": bytes(16)}) for name, data in PICKLES.items()},
    "zip: no end": lambda _: torch_zip(ARRAYS)[:-22],
    "zip: another directory": lambda _: _at(torch_zip(ARRAYS), len(torch_zip(ARRAYS)) - 6, "<I", 1),
    "zip: a million entries by the end record": lambda _: _at(
        torch_zip(ARRAYS), len(torch_zip(ARRAYS)) - 12, "<H", 0xFFFF
    ),
    "zip: two of them": lambda _: torch_zip(ARRAYS) * 2,
    "safetensors: a header of no bytes": lambda _: _safetensors(b"", length=0) + b"{" * 8,
    "safetensors: a deep text": lambda _: _safetensors(b'{"a":' + b"[" * 100_000),
    "safetensors: offsets that go back": lambda _: _safetensors(_said(data_offsets=[4, 0])),
    "safetensors: huge offsets": lambda _: _safetensors(_said(data_offsets=[2**63, 2**63 + 4])),
    "safetensors: a shape of half a number": lambda _: _safetensors(_said(shape=[0.5])),
    "safetensors: a thousand dimensions": lambda _: _safetensors(_said(shape=[1] * 1000)),
    "safetensors: an integer of 100,000 digits": lambda _: _safetensors(
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 100_000 + b'],"data_offsets":[0,4]}}'
    ),
    "safetensors: escapes in a name": lambda _: _safetensors({"\x1b[2J\u202e": _said()["a"]}),
    "safetensors: a name of a million characters": lambda _: _safetensors({"n" * 1_000_000: _said()["a"]}),
    "safetensors: half a pair in a name": lambda _: _safetensors(
        json.dumps(_said()).replace('"a"', '"\\ud800"').encode()
    ),
    "safetensors: 2000 names of one place": lambda _: _safetensors(
        {f"{n}": _said(shape=[0], data_offsets=[0, 0])["a"] for n in range(2000)}, b""
    ),
    "GGUF: a key of 2**63 bytes": lambda _: _gguf(_text(b"", 2**63)),
    "GGUF: an unknown type": lambda _: _gguf(_text(b"k") + struct.pack("<I", 99)),
    "GGUF: an alignment of 0": lambda _: _gguf(_text(b"general.alignment") + struct.pack("<II", 4, 0)),
    "GGUF: an alignment of 2**63": lambda _: _gguf(
        _text(b"general.alignment") + struct.pack("<IQ", 10, 2**63), tensors=1, rest=_gguf_tensor(b"a", (4,))
    ),
    "GGUF: a key twice": lambda _: _gguf(*[_text(b"k") + struct.pack("<II", 4, 0)] * 2),
    "GGUF: a shape whose product overflows": lambda _: _gguf(tensors=1, rest=_gguf_tensor(b"a", (2**63, 2, 2**63))),
    "GGUF: a tensor past the end": lambda _: _gguf(tensors=1, rest=_gguf_tensor(b"a", (1 << 40,)) + bytes(64)),
    "GGUF: an offset of 2**64 - 32": lambda _: _gguf(
        tensors=1, rest=_gguf_tensor(b"a", (4,), offset=2**64 - 32) + bytes(64)
    ),
    "GGUF: tensors of one name": lambda _: _gguf(tensors=2, rest=_gguf_tensor(b"a", (0,)) * 2 + bytes(64)),
    "GGUF: 2**32 dimensions": lambda _: _gguf(tensors=1, rest=_text(b"a") + struct.pack("<I", 2**32 - 1) + bytes(64)),
    "GGUF: big-endian": lambda folder: (
        gguf_bytes(ARRAYS, folder)[:4] + struct.pack(">I", 3) + gguf_bytes(ARRAYS, folder)[8:]
    ),
    "APR: metadata before the header": lambda _: _apr(12, "<Q", 0),
    "APR: metadata of 2**63 bytes": lambda _: _apr(20, "<I", 2**32 - 1),
    "APR: an index past the end": lambda _: _apr(24, "<Q", 2**63),
    "APR: data past the end": lambda _: _apr(32, "<Q", 2**64 - 1),
    "APR: encrypted": lambda _: _apr(6, "<H", 4),
    "APR: a wrong checksum": lambda _: apr(ARRAYS)[:-1] + b"\0",
    "APR: deep metadata": lambda _: apr(ARRAYS, _deep({}, 400)),
    "APR: version 65,535": lambda _: with_apr_header(apr(ARRAYS), 4, b"\xff\xff"),
    "gzip": lambda _: b"\x1f\x8b" + bytes(64),
    "a pickle of an old torch": lambda _: b"\x80\x02\x8a\nl\xfc\x9cF" + bytes(64),
}

READ = {
    "pickle: a memo of four thousand millions",
    "pickle: a float that is not finite",
    "pickle: frames that lie",
    "zip: another directory",
    "zip: a million entries by the end record",
    "zip: two of them",
    "safetensors: escapes in a name",
    "safetensors: half a pair in a name",
    "safetensors: 2000 names of one place",
}
"""Their oddity does no harm. All others are refused."""

CODE: dict[str, Callable[[Path], bytes]] = {
    "ELF: sections past the end": lambda _: _elf(40, "<Q", 2**63),
    "ELF: sections in the header": lambda _: _elf(40, "<Q", 0),
    "ELF: 65,535 sections": lambda _: _elf(60, "<H", 0xFFFF),
    "ELF: sections of no size": lambda _: _elf(58, "<H", 0),
    "ELF: names in a section that is none": lambda _: _elf(62, "<H", 0xFFFE),
    "ELF: another machine": lambda _: _elf(18, "<H", 62),
    "ELF: cut in its sections": lambda _: CUBIN[: len(CUBIN) // 2],
    "ELF: a header alone": lambda _: CUBIN[:64],
    "ELF: a thousand headers": lambda _: CUBIN[:64] * 1000,
    "fatbin: a length of 2**63": lambda _: _at(FATBIN, FATBIN.find(b"\x50\xed\x55\xba") + 8, "<Q", 2**63),
    "fatbin: a thousand headers": lambda _: struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**40) * 1000,
    "fatbin: entries that decompress to 64 MB each": lambda _: _zstd_fatbin(300),
    "fatbin: cut": lambda _: FATBIN[:-200],
    "PTX without end": lambda _: b".version 8.0\n.target sm_90\n" + b".entry a(" * 100_000,
    "PTX of a million targets": lambda _: b".version 8.0\n" + b".target sm_90\n" * 300_000,
    "an archive of libraries": lambda _: b"!<arch>\n" + (b"a" * 48 + b"9999999999" + b"`\n") * 100,
    "zeros": lambda _: bytes(8 << 20),
}


def _written(world: World, make: Callable[[Path], bytes]) -> str:
    (world.project / "weights").mkdir()
    (world.project / "weights" / "model.pt").write_bytes(make(world.project))
    return "weights/model.pt"


@cases({name: lambda world, make=make: _written(world, make) for name, make in FILES.items()}, every=24)
def test_checkpoints(case: Case, quick: bool, world: World) -> None:
    """The refusal names the file; of a healthy file and a hostile one no comparison is made."""
    file: Any = case.change(world)
    done = world.run("inspect", file)
    assert done.returncode == (ExitStatus.PASS if case.name in READ else ExitStatus.REFUSED), done.stdout[-2000:]
    assert file in done.stderr or done.returncode == ExitStatus.PASS
    (world.project / "healthy.safetensors").write_bytes(safetensors_bytes(ARRAYS))
    world.run("inspect", "healthy.safetensors", "--against", file)
    assert not Path("/tmp/called").exists()


@cases({name: lambda world, make=make: _written(world, make) for name, make in CODE.items()}, every=9)
def test_device_code(case: Case, quick: bool, world: World) -> None:
    file: Any = case.change(world)
    world.run("inspect", file)
    world.run("inspect", file, "--json")


@cases(
    {f"file: {name}": lambda world, make=make: put(world.project / "w.bin", make) for name, make in THINGS.items()},
    {f"file: {name}": lambda world, make=make: put(world.project / "w.bin", make) for name, make in DOCUMENTS.items()},
    {
        f"index: {name}": lambda world, make=make: put(world.project / "w.bin" / "model.safetensors.index.json", make)
        for name, make in [*THINGS.items(), *DOCUMENTS.items()]
    },
    every=28,
)
def test_what_is_no_checkpoint(case: Case, quick: bool, world: World) -> None:
    """Also as the index of a folder of weights."""
    case.change(world)
    assert world.run("inspect", "w.bin").returncode != ExitStatus.PASS or "zeros" in case.name or "none" in case.name
