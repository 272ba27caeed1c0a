"""The temporary folders of `--scratch`: how many stay, and which are never removed."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.evidence.atomic_dir import KEPT, scratch_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def seal(folder: Path) -> Path:
    """Put a bundle there, as far as this matters here."""
    place = folder / "DEMO-1" / "F-DEMO-001" / "run"
    place.mkdir(parents=True)
    (place / "MANIFEST.sha256").touch()
    return folder


def finished() -> Path:
    """The folder of a run that has ended."""
    with scratch_folder() as folder:
        return seal(folder)


def test_the_newest_stay(temporary: Path) -> None:
    """The folders are below one folder, which only its user can read."""
    made = [finished() for _ in range(KEPT + 2)]
    assert [folder for folder in made if folder.exists()] == made[-KEPT:]
    (above,) = temporary.iterdir()
    assert {folder.parent for folder in made} == {above}
    assert above.stat().st_mode & 0o777 == 0o700


def test_ten_follows_nine() -> None:
    """The order is that of numbers."""
    made = [finished() for _ in range(12)]
    assert [folder for folder in made if folder.exists()] == made[-KEPT:]


def test_the_folder_of_a_running_run_stays() -> None:
    """It is removed once the run has ended."""
    with ExitStack() as running:
        old = seal(running.enter_context(scratch_folder()))
        for _ in range(KEPT + 1):
            finished()
        assert old.is_dir()
    finished()
    assert not old.exists()


def test_a_folder_without_a_bundle_is_removed() -> None:
    """Also if the run ends by an exception, or left the folder of an issue."""
    made: list[Path] = []

    def interrupted() -> None:
        with scratch_folder() as folder:
            made.append(folder / "DEMO-1" / "F-DEMO-001")
            made[0].mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not made[0].parents[1].exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_others_put_in_place_of_the_users_folder_is_refused(temporary: Path, tmp_path: Path, kind: str) -> None:
    above = finished().parent
    above.rename(temporary / "away")
    if kind == "link":
        (tmp_path / "target").mkdir()
        above.symlink_to(tmp_path / "target")
    else:
        above.touch()
    with pytest.raises(FileExistsError), scratch_folder():
        pass
    assert not (tmp_path / "target").exists() or not any((tmp_path / "target").iterdir())


def test_other_files_of_the_users_folder_stay() -> None:
    above = finished().parent
    (above / "notes").touch()
    for _ in range(KEPT + 1):
        finished()
    assert (above / "notes").exists()
