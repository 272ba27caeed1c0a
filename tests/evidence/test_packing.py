"""Archives of bundles: equal bytes for equal content, and only names that can be unpacked."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import zlib
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZipFile

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.evidence import packing as packing
from harness.evidence.packing import ArchiveError, NothingToPack, pack
from harness.evidence.unpacking import unpack
from harness.evidence.verification import find_bundles
from tests.cli.folders import contents
from tests.contracts import healthy
from tests.evidence.factory import copy_of, sealed, tamper


def test_the_same_content_gives_the_same_bytes(pristine: Path, archive: Path, tmp_path: Path) -> None:
    """Times, modes, order of writing and place of the copy make no difference."""
    copy = tmp_path / "elsewhere"
    for path in sorted(pristine.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(pristine)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            os.utime(target, (0, 0))
            target.chmod(0o777)
    packed = pack([copy], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert packed.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert packed.size == archive.stat().st_size


def test_the_bytes_are_those_of_every_version_of_python(tmp_path: Path) -> None:
    """The expected bytes are stored, so a zlib or zipfile that writes other bytes is noticed."""
    target = tmp_path / "fixed.zip"
    names = [("DEMO-1/F-X-001/run/artifacts/\u00e9.txt", b"hello\n" * 100), ("DEMO-1/F-X-001/run/record.json", b"{}")]
    for name, content in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    files = [packing._File(tmp_path, name, name, len(content), None) for name, content in names]
    with target.open("wb") as output:
        packing._write(output, files)
    expected = b""
    directory = b""
    for name, content in names:
        raw, flags = name.encode(), 0 if name.isascii() else 0x800
        common = struct.pack(
            "<5H3L2H", 20, flags, 0, 0, 33, zlib.crc32(content), len(content), len(content), len(raw), 0
        )
        directory += b"PK\1\2" + struct.pack("<H", 0x0314) + common
        directory += struct.pack("<3H2L", 0, 0, 0, 0o100644 << 16, len(expected)) + raw
        expected += b"PK\3\4" + common + raw + content
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(directory), len(expected), 0)
    assert target.read_bytes() == expected + directory + end


def test_a_selection_is_packed_once_each_in_the_order_of_places(tmp_path: Path) -> None:
    """Each bundle is packed once, in the order of places, although several paths lead to it.

    Verdicts make no difference.
    """
    late = sealed(tmp_path, run="b-fail", measurements=healthy(returned=2))
    early = sealed(tmp_path, run="a-pass")
    sealed(tmp_path, run="c-left-out")
    packed = pack([late, early, late.parent / "a-pass"], tmp_path / "two.zip")
    assert [(one.run, str(one.verdict)) for one in packed.bundles] == [("a-pass", "PASS"), ("b-fail", "FAIL")]
    assert packed.files == len(ZipFile(tmp_path / "two.zip").namelist())
    assert [one.bundle.run for one in unpack(tmp_path / "two.zip", tmp_path / "out")] == ["a-pass", "b-fail"]
    assert find_bundles([tmp_path / "out"]) == sorted((tmp_path / "out").glob("*/*/*"))


def test_an_unsound_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    """An unsound bundle is refused, and no file is left."""
    tamper(bundle)
    with pytest.raises(ArchiveError, match=r"is unsound \(TAMPERED environment.json"):
        pack([bundle], tmp_path / "a.zip")
    assert not list(tmp_path.glob("*.zip*")) + list(tmp_path.glob(".*"))


def test_a_bundle_that_changes_after_it_was_verified_is_not_packed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """The archive has exactly the verified bytes."""
    write = packing._write

    def change_then_write(*arguments: Any) -> None:
        tamper(bundle)
        write(*arguments)

    monkeypatch.setattr(packing, "_write", change_then_write)
    with pytest.raises(ArchiveError) as refused:
        pack([bundle], tmp_path / "a.zip")
    assert str(refused.value).replace(str(bundle), "BUNDLE") == snapshot
    assert not list(tmp_path.glob("*.zip*")) + list(tmp_path.glob(".*"))


def test_an_existing_file_is_not_replaced(pristine: Path, tmp_path: Path) -> None:
    """An existing file is not replaced, even if it appears during packing or is a dangling link."""
    target = tmp_path / "a.zip"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        pack([pristine], target)
    assert target.read_text() == "mine"
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        pack([pristine], target)
    assert contents(tmp_path).keys() == {"a.zip"}


def test_a_filesystem_that_is_read_only_is_told_by_the_name_that_was_given(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the given name.

    The filesystem also refuses to remove a missing file, and would name our temporary file.
    """

    def refuse(path: Path, *arguments: object, **options: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def open_other(path: Path, *arguments: Any, **options: Any) -> Any:
        return refuse(path) if path.parent == tmp_path else opened(path, *arguments, **options)

    opened = Path.open
    monkeypatch.setattr(Path, "open", open_other)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as refused:
        pack([pristine], tmp_path / "a.zip")
    assert refused.value.filename == str(tmp_path / "a.zip")


def test_a_file_that_comes_meanwhile_is_not_replaced(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not replaced, also on filesystems without hard links."""

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    target, write = tmp_path / "a.zip", packing._write

    def write_and_be_late(*arguments: Any) -> None:
        write(*arguments)
        target.write_text("theirs")

    monkeypatch.setattr(packing, "_write", write_and_be_late)
    for link in (os.link, no_links):
        monkeypatch.setattr(os, "link", link)
        with pytest.raises(FileExistsError):
            pack([pristine], target)
        assert target.read_text() == "theirs"
        assert contents(tmp_path).keys() == {"a.zip"}
        target.unlink()
    monkeypatch.setattr(packing, "_write", write)
    pack([pristine], target)
    assert contents(tmp_path).keys() == {"a.zip"}


def test_nothing_to_pack_is_told_apart(tmp_path: Path) -> None:
    """The message differs from the one for an existing file."""
    with pytest.raises(NothingToPack):
        pack([tmp_path], tmp_path / "a.zip")
    with pytest.raises(ArchiveError, match="does not exist"):
        pack([tmp_path / "missing"], tmp_path / "a.zip")


def test_two_bundles_of_one_run_are_refused(bundle: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Two bundles of one run would have the same place in the archive."""
    other = copy_of(bundle, tmp_path / "other")
    with pytest.raises(ArchiveError) as refused:
        pack([bundle, other], tmp_path / "a.zip")
    assert str(refused.value).replace(str(bundle), "BUNDLE").replace(str(other), "OTHER") == snapshot


def test_names_that_could_not_be_unpacked_are_not_packed(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Some filesystems cannot tell two of the artifacts apart."""
    left = tmp_path / "left"
    left.mkdir()
    (left / "Loss.txt").write_text("1")
    (left / "loss.txt").write_text("2")
    with pytest.raises(ArchiveError) as refused:
        pack([sealed(tmp_path, artifacts=left)], tmp_path / "a.zip")
    assert str(refused.value) == snapshot


SOUND = "D-1/F-A-001/run"
LIMITS = {
    "MOST_BUNDLES": 2, "MOST_FILES": 3, "LARGEST_BUNDLE": 10, "LARGEST_ARCHIVE": 15, "DEEPEST": 2,
    "LONGEST_NAME": 40, "_LONGEST_PART": 20,
}  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a few names reach."""
    for name, value in LIMITS.items():
        monkeypatch.setattr(packing, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("names", "bundles"),
    [
        ([], {}),
        (["b", "a/c"], {"run": ["b", "a/c"]}),
        (["a/b", "a/c", "d"], {"run": ["a/b", "a/c", "d"]}),
        (["../other/a", "b"], {"other": ["a"], "run": ["b"]}),
        (["a" * 20], {"run": ["a" * 20]}),
        (["é" * 10], {"run": ["é" * 10]}),
        (["12/" + "a" * 19], {"run": ["12/" + "a" * 19]}),
        (["a", "b", "c", "d"], "D-1/F-A-001/run has 4 files; a bundle has at most 3"),
        (["a", "../b/a", "../c/a"], "there are 3 bundles; an archive has at most 2"),
        (["a", "a"], "'D-1/F-A-001/run/a' is there twice"),
        (["a", "A"], "'D-1/F-A-001/run/A' and 'D-1/F-A-001/run/a' may be one file"),
        (["a/b", "A/c"], "the folders 'D-1/F-A-001/run/A' and 'D-1/F-A-001/run/a' may be one folder"),
        (["a", "a/b"], "'D-1/F-A-001/run/a' is a file, and 'D-1/F-A-001/run/a' a folder"),
        (["a/b/c"], "'D-1/F-A-001/run/a/b/c' lies more than 2 folders deep in its bundle"),
        (
            ["a" * 61],
            f"'D-1/F-A-001/run/{'a' * 44}'… is too long: a name has at most 20 bytes, with its folders 40",
        ),
        (["a" * 21], f"'D-1/F-A-001/run/{'a' * 21}'… is too long: a name has at most 20 bytes, with its folders 40"),
        (["é" * 11], f"'D-1/F-A-001/run/{'é' * 11}'… is too long: a name has at most 20 bytes, with its folders 40"),
        (
            ["123456/" + "a" * 18],
            f"'D-1/F-A-001/run/123456/{'a' * 18}'… is too long: a name has at most 20 bytes, with its folders 40",
        ),
        (["../a"], "'D-1/F-A-001/a' lies in no bundle: it is not <issue>/<claim>/<run>/<file>"),
        (["../.hidden/a"], "'D-1/F-A-001/.hidden/a' lies in no bundle: it is not <issue>/<claim>/<run>/<file>"),
    ],
)
def test_the_files_of_each_bundle(names: list[str], bundles: Any) -> None:
    """Exactly the limit of files is accepted, for each kind."""
    places = [f"{SOUND}/{name}".replace("run/../", "") for name in names]
    if isinstance(bundles, dict):
        expected = {("D-1", "F-A-001", run): files for run, files in bundles.items()}
        assert packing.files_by_bundle(iter(places)) == expected
    else:
        with pytest.raises(ArchiveError) as refused:
            packing.files_by_bundle(iter(places))
        assert str(refused.value) == bundles


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ArchiveError):
        packing.files_by_bundle([f"{SOUND}/../x"])


@pytest.mark.usefixtures("small")
def test_the_sizes_of_bundles_and_archives() -> None:
    """The limits of sizes hold for all files of a bundle together, and for all bundles."""
    packing.check_sizes([(f"{SOUND}/a", 4), (f"{SOUND}/b/c", 6), ("D-1/F-A-001/other/a", 5)])
    for sizes, why in (
        ([("run/a", 4), ("other/a", 1), ("run/b", 7)], f"{SOUND} has more than 10 bytes, the most a bundle has"),
        ([("run/a", 10), ("other/a", 6)], "there are 16 bytes; an archive has at most 15"),
    ):
        with pytest.raises(ArchiveError) as refused:
            packing.check_sizes([(f"D-1/F-A-001/{name}", size) for name, size in sizes])
        assert str(refused.value) == why


def test_a_target_with_a_name_too_long_is_told_by_the_name_that_was_given(pristine: Path, tmp_path: Path) -> None:
    """The message has the given name, not the longer one of the temporary file."""
    target = tmp_path / f"{'a' * 246}.zip"
    with pytest.raises(OSError, match="too long") as refused:
        pack([pristine], target)
    assert refused.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []
