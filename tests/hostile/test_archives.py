"""`harness merge` with hostile archives and folders."""

from __future__ import annotations

import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.evidence.factory import copy_of, rewrite, set_at
from tests.evidence.zips import Entry, write_zip
from tests.hostile.things import DOCUMENTS, THINGS, put
from tests.hostile.world import CLAIM, ISSUE, PASSED, Case, World, cases

PLACE = f"{ISSUE}/{CLAIM}/{PASSED}"


def _archive(world: World) -> Path:
    return world.project / "some.zip"


def _packed(change: Callable[[list[Entry]], list[Entry]], **options: Any) -> Callable[[World], None]:
    """Pack the sound bundle, with other entries."""

    def write(world: World) -> None:
        files = sorted(path for path in world.passed.rglob("*") if path.is_file())
        names = [f"{PLACE}/{path.relative_to(world.passed).as_posix()}".encode() for path in files]
        healthy = [Entry(name, path.read_bytes()) for name, path in zip(names, files, strict=True)]
        write_zip(_archive(world), change(healthy), **options)

    return write


def _more(name: bytes, data: bytes = b"x", **changes: Any) -> Callable[[World], None]:
    return _packed(lambda entries: [*entries, Entry(name, data, **changes)])


def _first(**changes: Any) -> Callable[[World], None]:
    """Change the entry of the contract."""

    def change(entries: list[Entry]) -> list[Entry]:
        first = entries[0]
        return [Entry(**{"name": first.name, "data": first.data, **changes}), *entries[1:]]

    return _packed(change)


def _deflated(size: int) -> tuple[bytes, int]:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(size)) + packer.flush(), zlib.crc32(bytes(size))


def _bomb(world: World) -> None:
    data, crc = _deflated(400 << 20)
    _more(f"{PLACE}/artifacts/zeros".encode(), data, method=8, size=400 << 20, crc=crc)(world)


def _tar(world: World) -> None:
    with tarfile.open(_archive(world), "w:gz") as archive:
        archive.add(world.passed, "../../outside")


def _unsound(world: World) -> None:
    rewrite(world.passed, "record.json", set_at("verdict", "FAIL"))
    with zipfile.ZipFile(_archive(world), "w") as archive:
        for path in world.passed.rglob("*"):
            if path.is_file():
                archive.write(path, f"{PLACE}/{path.relative_to(world.passed)}")


def _other(world: World) -> None:
    """The same run with another content is in its place."""
    _packed(list)(world)
    put(world.project / "into" / PLACE / "record.json", DOCUMENTS["an empty object"])


def _into(make: Callable[[Path], object], depth: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        _packed(list)(world)
        parts = ["into", *PLACE.split("/")][: depth + 1]
        put(world.project.joinpath(*parts), make)

    return change


def _outside(path: Path) -> None:
    path.symlink_to(Path("../" * 8 + "outside") if not path.is_absolute() else path.parents[0] / "nowhere")


REFUSED: dict[str, Callable[[World], Any]] = {
    **{f"archive: {name}": lambda world, make=make: put(_archive(world), make) for name, make in THINGS.items()},
    "archive: random bytes": lambda world: put(_archive(world), DOCUMENTS["random bytes"]),
    "a tar archive": _tar,
    "a name that leads out": _more(b"../../outside/new"),
    "a name that leads out of a bundle": _more(f"{PLACE}/../../../../outside/new".encode()),
    "an absolute name": _more(b"/tmp/hostile-archive"),
    "a name with a backslash": _more(f"{PLACE}/artifacts\\..\\x".encode()),
    "a name with a dot": _more(f"{PLACE}/./x".encode()),
    "a name with two slashes": _more(f"{PLACE}//x".encode()),
    "a name of a folder that is a file": _more(f"{PLACE}/record.json/x".encode()),
    "a name twice": _more(f"{PLACE}/record.json".encode()),
    "a name twice but for its case": _more(f"{PLACE}/Record.json".encode()),
    "a name in another normal form": _more(f"{PLACE}/artifacts/e\u0301".encode()),
    "a name of bad UTF-8": _more(f"{PLACE}/artifacts/".encode() + b"\xff"),
    "a name with escapes": _more(f"{PLACE}/artifacts/\x1b[2J".encode()),
    "a name of 60,000 characters": _more(f"{PLACE}/artifacts/{'n' * 60_000}".encode()),
    "a name of a thousand folders": _more(f"{PLACE}/{'d/' * 1000}x".encode()),
    "a link": _more(f"{PLACE}/artifacts/link".encode(), b"/etc/passwd", attributes=0o120777 << 16),
    "a device": _more(f"{PLACE}/artifacts/device".encode(), b"", attributes=0o020666 << 16),
    "a pipe": _more(f"{PLACE}/artifacts/pipe".encode(), b"", attributes=0o010666 << 16),
    "a socket": _more(f"{PLACE}/artifacts/socket".encode(), b"", attributes=0o140777 << 16),
    "an encrypted entry": _first(flags=0x0801),
    "a method that is unknown": _first(method=99),
    "a size of four gigabytes": _first(size=0xFFFF_FFFE),
    "a checksum that lies": _first(crc=1),
    "another name in the entry itself": _first(local_name=b"/etc/passwd"),
    "an entry in another entry": _first(offset=0, before=b"PK\3\4" * 100),
    "an entry past the end": _first(offset=0x7FFF_FFFF),
    "four gigabytes by an extra field": _first(extra=struct.pack("<HHQQ", 1, 16, 1 << 40, 1 << 40), size=0xFFFF_FFFF),
    "no entries": _packed(lambda entries: []),
    "the manifest alone": _packed(
        lambda entries: [entry for entry in entries if entry.name.endswith(b"MANIFEST.sha256")]
    ),
    "no manifest": _packed(lambda entries: [entry for entry in entries if not entry.name.endswith(b"MANIFEST.sha256")]),
    "twenty thousand entries": _packed(
        lambda entries: [*entries, *(Entry(f"{PLACE}/artifacts/{n}".encode()) for n in range(20_000))]
    ),
    "400 MB of zeros": _bomb,
    "an unsound bundle": _unsound,
    "another content at its place": _other,
    "a pipe at its place": _into(os.mkfifo, 3),
    "a file at the place of its claim": _into(Path.touch, 2),
    "a link at the place of its issue": _into(_outside, 1),
    "a link at its place": _into(_outside, 3),
}
"""Nothing of them is merged."""


@cases(REFUSED, every=16)
def test_archives(case: Case, quick: bool, world: World) -> None:
    """Nothing is written, neither into the folder nor elsewhere."""
    case.change(world)
    into = world.project / "into"
    before = sorted(into.rglob("*")) if into.is_dir() else []
    done = world.run("merge", "some.zip", "--into", "into")
    assert done.returncode in (ExitStatus.REFUSED, ExitStatus.NOT_MEASURED), done.stdout
    assert not Path("/tmp/hostile-archive").exists()
    assert (sorted(into.rglob("*")) if into.is_dir() else []) == before
    world.run("verify", "some.zip")


BESIDE: dict[str, Callable[[World], Any]] = {
    "a file beside": _more(b"C:/x"),
    "a hidden folder": _more(f".git/hooks/{PASSED}/x".encode()),
}


@cases(BESIDE, every=2)
def test_what_lies_beside_bundles_in_an_archive(case: Case, quick: bool, world: World) -> None:
    """The bundle is merged, and nothing else."""
    case.change(world)
    assert world.run("merge", "some.zip", "--into", "into").returncode == ExitStatus.PASS
    assert [path.name for path in (world.project / "into").iterdir()] == [ISSUE]


def _beside(make: Callable[[World, Path], object]) -> Callable[[World], None]:
    """Put something beside a copy of the bundle in a folder to merge."""

    def change(world: World) -> None:
        copy_of(world.passed, world.project / "given")
        make(world, world.project / "given")

    return change


MERGED: dict[str, Callable[[World], Any]] = {
    "merge: a link to a bundle": _beside(lambda world, given: (given / "link").symlink_to(world.passed)),
    "merge: a link to the root": _beside(lambda _, given: (given / "root").symlink_to("/")),
    "merge: a link to itself": _beside(lambda _, given: (given / "loop").symlink_to(given)),
    "merge: a pipe": _beside(lambda _, given: os.mkfifo(given / "pipe")),
    "merge: a pipe in the bundle": _beside(lambda _, given: os.mkfifo(given / PLACE / "pipe")),
    "merge: a device in the bundle": _beside(lambda _, given: (given / PLACE / "zero").symlink_to("/dev/zero")),
    "merge: another folder of evidence": _beside(lambda world, given: shutil.copytree(world.evidence, given / "x")),
    "merge: deep folders": _beside(lambda _, given: (given / ("d/" * 300)).mkdir(parents=True)),
    "merge: a folder that is a link": _beside(
        lambda world, given: (given.rename(world.project / "moved"), given.symlink_to(world.project / "moved"))
    ),
    "merge: a place that is a link": _beside(
        lambda world, _: (
            (world.project / "into" / ISSUE).mkdir(parents=True),
            (world.project / "into" / ISSUE / CLAIM).symlink_to(world.folder / "outside"),
        )
    ),
    "merge: a place that is a pipe": _beside(
        lambda world, _: put(world.project / "into" / PLACE, THINGS["a pipe"]),
    ),
}  # fmt: skip


@cases(MERGED, every=11)
def test_folders_to_merge(case: Case, quick: bool, world: World) -> None:
    """What is merged is sound, whatever lies beside it."""
    case.change(world)
    world.run("merge", "given", "--into", "into")
    (world.project / "into").mkdir(exist_ok=True)
    if "place" not in case.name:
        assert world.run("verify", "into").returncode in (ExitStatus.PASS, ExitStatus.NOT_MEASURED)
