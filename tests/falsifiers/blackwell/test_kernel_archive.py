"""The archive: builds are reproducible, and every fault is found."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from falsifiers.blackwell.archived.archive_check import NOT_IN_INDEX, check, not_reproduced
from falsifiers.blackwell.reference import engine
from falsifiers.blackwell.reference.kernel_archive import INDEX, Archive, ArchiveError, build, write_index
from falsifiers.blackwell.reference.kernels.catalogue import add, silu_gate
from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel
from tests.falsifiers.blackwell.conftest import SMS, SPECS

ADD, NORM = SPECS


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file except the lock, which is empty."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found.pop(".lock", b"") == b""
    return found


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
    entries = [
        replace(entry, source="0" * 64) if entry.kernel == ADD.key else entry for entry in archive.entries.values()
    ]
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


@pytest.mark.parametrize("damage", [endless, outside])
def test_what_never_ends_is_not_read(archive: Archive, damage: Callable[[Archive], None]) -> None:
    """Neither a check nor a load reads a file without end. A build replaces it with an image."""
    damage(archive)
    file = archive.entries[ADD.key, 121].file
    (line,) = check(archive, SPECS, [121]).absent
    assert file in line
    assert not_reproduced(archive, [(ADD, 121)]) == ["add for sm_121"]
    with pytest.raises(ArchiveError, match=re.escape(file)):
        archive.image(ADD, 121)
    build(archive.folder, SPECS, SMS)
    assert check(Archive.open(archive.folder), SPECS, SMS).sound


@pytest.mark.parametrize("name", ["../elsewhere.cubin", "/etc/passwd", "sm_121/a\0b.cubin"])
def test_an_index_leads_nowhere_else(archive: Archive, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere.cubin").write_bytes(path_of(archive).read_bytes())
    entries = [replace(entry, file=name) if entry.kernel == ADD.key else entry for entry in archive.entries.values()]
    write_index(archive.folder, archive.compiler, entries)
    opened = Archive.open(archive.folder)
    with pytest.raises(ArchiveError, match=r"archive build"):
        opened.image(ADD, 121)
    assert len(check(opened, SPECS, [121]).absent) == 1


def test_a_build_writes_and_drops_nothing_behind_a_link(archive: Archive, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    shutil.move(archive.folder / "sm_121", theirs)
    (theirs / "precious.cubin").write_bytes(b"mine")
    (archive.folder / "sm_121").symlink_to(theirs)
    before = contents(theirs)
    with pytest.raises(OSError, match="sm_121") as refused:
        build(archive.folder, SPECS, SMS)
    assert refused.value.errno == errno.EXDEV
    build(archive.folder, SPECS, [90])
    assert contents(theirs) == before


def test_two_builds_at_once_end_as_one_whole_archive(tmp_path: Path) -> None:
    """Each build removes the images that it does not name. The archive is that of the last one."""
    wholes = [[ADD], [ADD, silu_gate()]]
    line = (
        "import sys; from pathlib import Path; from falsifiers.blackwell.reference.kernel_archive import build; "
        "from falsifiers.blackwell.reference.kernels.catalogue import add, silu_gate; "
        "[build(Path(sys.argv[1]), [add(), silu_gate()][:int(sys.argv[2])], [90, 121]) for _ in range(4)]"
    )
    root = Path(__file__).parents[3]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", line, tmp_path, str(count)], cwd=root, stderr=subprocess.PIPE, text=True
        )
        for count in (1, 2)
    ]
    assert [process.communicate()[1] for process in running] == ["", ""]
    archive = Archive.open(tmp_path)
    assert check(archive, wholes[len(archive.entries) // 2 - 1], SMS).sound
    assert len(contents(tmp_path)) == 1 + len(archive.entries)


def test_what_a_killed_build_left_half_written_is_dropped(archive: Archive) -> None:
    (archive.folder / "sm_90" / ".add.cubin.4711").write_bytes(b"half")
    (archive.folder / f".{INDEX}.4711").write_bytes(b"half")
    before = contents(archive.folder)
    build(archive.folder, SPECS, SMS)
    assert sorted(before.keys() - contents(archive.folder).keys()) == [f".{INDEX}.4711", "sm_90/.add.cubin.4711"]


def test_a_kernel_or_target_that_is_not_there(archive: Archive) -> None:
    assert check(archive, [silu_gate()], SMS).absent == tuple(f"silu_gate for sm_{sm}: {NOT_IN_INDEX}" for sm in SMS)
    with pytest.raises(ArchiveError, match="90, 121"):
        archive.image(ADD, 100)


def test_nothing_is_not_sound(archive: Archive) -> None:
    assert not check(archive, [], SMS).sound


def test_an_older_compiler_is_not_compared_with(archive: Archive) -> None:
    write_index(archive.folder, "nvrtc 12.8", archive.entries.values())
    with pytest.raises(ValueError, match=r"nvrtc 12.8"):
        not_reproduced(Archive.open(archive.folder), [(ADD, 121)])


IMAGE = {"kernel": "add", "sm": 90, "source": "0", "sha256": "0", "file": "sm_90/add.cubin"}
EMPTY = {"format": 1, "compiler": "x", "images": []}
BROKEN: list[tuple[object, list[str]]] = [  # the content of the index, the place, and the values that the message names
    ("", ["line 1, column 1"]),
    (b'{"\xff', ["byte 2"]),
    ("[]", ["index", "list"]),
    ("{}", ["/format"]),
    ({"format": 2}, ["/format", "2", "1"]),
    ({**EMPTY, "format": True}, ["/format", "integer"]),
    ({**EMPTY, "compiler": None}, ["/compiler", "null"]),
    ({**EMPTY, "images": {}}, ["/images", "list", "object"]),
    ({**EMPTY, "more": 1}, ["more"]),
    ('{"format": 1, "format": 1}', ["format", "twice"]),
    ({**EMPTY, "images": ["add"]}, ["/images/0", "object"]),
    ({**EMPTY, "images": [{}]}, ["/images/0/kernel"]),
    ({**EMPTY, "images": [{**IMAGE, "more": 1}]}, ["/images/0", "more"]),
    ({**EMPTY, "images": [IMAGE, {**IMAGE, "sm": "90"}]}, ["/images/1/sm", "integer"]),
    ({**EMPTY, "images": [IMAGE, IMAGE]}, ["/images/0", "/images/1", "add for sm_90"]),
    ("[" * 100_000, ["nested"]),
    ('{"format": ' + "1" * 5000 + "}", ["digits"]),
]


@pytest.mark.parametrize(("broken", "named"), BROKEN, ids=["-".join(named) for _, named in BROKEN])
def test_an_index_that_cannot_be_read_is_refused(archive: Archive, broken: object, named: list[str]) -> None:
    data = broken if isinstance(broken, bytes) else (broken if isinstance(broken, str) else json.dumps(broken)).encode()
    (archive.folder / INDEX).write_bytes(data)
    with pytest.raises(ArchiveError, match="archive build") as refused:
        Archive.open(archive.folder)
    _, _, reason = str(refused.value).partition(f"{INDEX}: ")
    assert [part for part in named if part not in reason] == []


def test_an_index_that_never_ends_is_refused(archive: Archive) -> None:
    (archive.folder / INDEX).unlink()
    os.mkfifo(archive.folder / INDEX)
    with pytest.raises(ArchiveError, match="regular file"):
        Archive.open(archive.folder)


def test_a_full_disk_leaves_the_archive_of_before(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(archive.folder)

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space") as failed:
        build(archive.folder, [*SPECS, silu_gate()], SMS)
    assert failed.value.errno == errno.ENOSPC
    assert contents(archive.folder) == before


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "falsifiers.blackwell.archive", *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, env=os.environ, cwd=Path(__file__).parents[3]
    )


def test_the_command(archive: Archive, tmp_path: Path) -> None:
    """`list` names kernels and targets. `verify` names missing images. A folder without an archive is refused."""
    done = command("list", archive.folder)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "add  sm_90 sm_121")
    done = command("verify", archive.folder, "--model", "qwen2-tiny", "--sm", 90)
    assert done.returncode == 1
    assert f"silu_gate for sm_90: {NOT_IN_INDEX}" in done.stdout.splitlines()
    assert "--model" in done.stderr
    done = command("verify", tmp_path / "none")
    assert done.returncode == 2
    assert "archive build" in done.stderr
    index = json.loads((archive.folder / INDEX).read_text())
    assert sorted(index) == ["compiler", "format", "images"]


def test_the_archive_of_one_kernel_drops_the_others(archive: Archive) -> None:
    build(archive.folder, [add()], [90])
    assert sorted(contents(archive.folder)) == [INDEX, "sm_90/add.cubin"]


def test_another_builder_finds_nothing_in_the_cache(tmp_path: Path) -> None:
    """The folder of an engine's builds follows from every source of its package, not only from the kernels' text."""
    package = Path(engine.__file__).parent
    before = engine.code_digest(package)
    for source in ("kernel_archive.py", "kernels/nvrtc.py", "kernels/gemm.cu", "host_device.py"):
        copy = tmp_path / source.replace("/", "-")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        assert engine.code_digest(copy) == before
        (copy / source).write_text((copy / source).read_text() + "\n")
        assert engine.code_digest(copy) != before
