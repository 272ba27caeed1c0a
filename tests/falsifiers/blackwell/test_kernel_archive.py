"""The archive: built twice alike, and every way in which it may be wrong is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from falsifiers.blackwell.archived.check import check, not_reproduced
from falsifiers.blackwell.reference.kernel_archive import INDEX, Archive, ArchiveError, build, write_index
from falsifiers.blackwell.reference.kernels.catalogue import add, silu_gate
from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel
from tests.falsifiers.blackwell.conftest import SMS, SPECS

ADD, NORM = SPECS


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_equal_sources_give_equal_bytes(built: Path, tmp_path: Path) -> None:
    build(tmp_path, reversed(SPECS), reversed(SMS))
    assert contents(tmp_path) == contents(built)


def test_a_sound_archive_is_found_sound(archive: Archive) -> None:
    result = check(archive, SPECS, SMS)
    assert (result.sound, result.cells) == (True, 4)
    assert not_reproduced(archive, [(ADD, 121)]) == []
    assert archive.image(ADD, 121) == compile_kernel(ADD, 121)


def path_of(archive: Archive, sm: int = 121) -> Path:
    return archive.folder / archive.entries[ADD.key, sm].file


def ptx_under_its_name(archive: Archive) -> None:
    path_of(archive).write_bytes(compile_kernel(ADD, 121, Form.PTX).data)


def code_for_another_target(archive: Archive) -> None:
    path_of(archive).write_bytes(path_of(archive, 90).read_bytes())


def forged_target(archive: Archive) -> None:
    data = bytearray(path_of(archive, 90).read_bytes())
    data[49] = 121
    path_of(archive).write_bytes(data)


def another_kernel(archive: Archive) -> None:
    path_of(archive).write_bytes((archive.folder / archive.entries[NORM.key, 121].file).read_bytes())


def removed(archive: Archive) -> None:
    path_of(archive).unlink()


def truncated(archive: Archive) -> None:
    path_of(archive).write_bytes(path_of(archive).read_bytes()[:-1])


def endless(archive: Archive) -> None:
    path_of(archive).unlink()
    os.mkfifo(path_of(archive))


def outside(archive: Archive) -> None:
    path_of(archive).unlink()
    path_of(archive).symlink_to("/dev/zero")


def from_another_source(archive: Archive) -> None:
    entries = [replace(one, source="0" * 64) if one.kernel == ADD.key else one for one in archive.entries.values()]
    write_index(archive.folder, archive.compiler, entries)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (ptx_under_its_name, "not_machine_code"),
        (code_for_another_target, "other_target"),
        (forged_target, "other_target"),
        (another_kernel, "other_kernel"),
        (removed, "absent"),
        (truncated, "not_machine_code"),
        (from_another_source, "stale"),
    ],
)
def test_damage_is_told_and_not_loaded(archive: Archive, damage: Callable[[Archive], None], kind: str) -> None:
    damage(archive)
    opened = Archive.open(archive.folder)
    (told,) = [line for line in getattr(check(opened, SPECS, [121]), kind) if line.startswith("add for sm_121: ")]
    with pytest.raises(ArchiveError, match="build"):
        opened.image(ADD, 121)
    if kind != "stale":
        assert not_reproduced(opened, [(ADD, 121)]) == ["add for sm_121"]
    build(archive.folder, SPECS, SMS)
    assert check(Archive.open(archive.folder), SPECS, SMS).sound, told


@pytest.mark.parametrize(("damage", "why"), [(endless, "not a regular file"), (outside, "outside of the archive")])
def test_what_never_ends_is_not_read(archive: Archive, damage: Callable[[Archive], None], why: str) -> None:
    damage(archive)
    (told,) = check(archive, SPECS, [121]).absent
    assert why in told
    assert not_reproduced(archive, [(ADD, 121)]) == ["add for sm_121"]


def test_a_kernel_or_target_that_is_not_there(archive: Archive) -> None:
    assert check(archive, [silu_gate()], SMS).absent == tuple(f"silu_gate for sm_{sm}: not in the index" for sm in SMS)
    with pytest.raises(ArchiveError, match="only for sm 90, 121"):
        archive.image(ADD, 100)


def test_nothing_is_not_sound(archive: Archive) -> None:
    assert not check(archive, [], SMS).sound


def test_an_older_compiler_is_not_compared_with(archive: Archive) -> None:
    write_index(archive.folder, "nvrtc 12.8", archive.entries.values())
    with pytest.raises(ValueError, match=r"nvrtc 12.8"):
        not_reproduced(Archive.open(archive.folder), [(ADD, 121)])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "compiler": "x", "images": [{}]}'])
def test_an_index_that_cannot_be_read_is_refused(archive: Archive, text: str) -> None:
    (archive.folder / INDEX).write_text(text)
    with pytest.raises(ArchiveError, match="archive build"):
        Archive.open(archive.folder)


def test_a_full_disk_leaves_the_archive_of_before(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(archive.folder)

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        build(archive.folder, [*SPECS, silu_gate()], SMS)
    assert contents(archive.folder) == before


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "falsifiers.blackwell.archive", *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, env=os.environ, cwd=Path(__file__).parents[3]
    )


def test_the_command(archive: Archive, tmp_path: Path) -> None:
    """`list` names kernels and targets, `verify` what is missing, and a folder without an archive is refused."""
    done = command("list", archive.folder)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "add  sm_90 sm_121")
    done = command("verify", archive.folder, "--model", "qwen2-tiny", "--sm", 90)
    assert done.returncode == 1
    assert "silu_gate for sm_90: not in the index" in done.stdout.splitlines()
    assert "--model" in done.stderr
    done = command("verify", tmp_path / "none")
    assert done.returncode == 2
    assert "archive build" in done.stderr
    index = json.loads((archive.folder / INDEX).read_text())
    assert sorted(index) == ["compiler", "format", "images"]


def test_the_archive_of_one_kernel_drops_the_others(archive: Archive) -> None:
    build(archive.folder, [add()], [90])
    assert sorted(contents(archive.folder)) == [INDEX, "sm_90/add.cubin"]
