"""Names and sizes in an archive of bundles."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.evidence.bundle_layout import LARGEST_BUNDLE, MOST_FILES
from harness.evidence.packing import ArchiveError, check_sizes, files_by_bundle

PLACE = "DEMO-1/F-DEMO-SORT-001/run"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../.bashrc",
        f"{PLACE}/../../../../x",
        f"{PLACE}/./x",
        f"{PLACE}//x",
        f"{PLACE}/",
        f"{PLACE}",
        "record.json",
        "~/.ssh/authorized_keys",
        "C:/Windows/F-DEMO-SORT-001/run",
        "C:/a/run/x",
        "..\\..\\x",
        f"{PLACE}\\x",
        f"{PLACE}/a\0b",
        f"{PLACE}/a\nb",
        f"{PLACE}/\x1b[2J",
        f"{PLACE}/a\u2028b",
        f"{PLACE}/\udcff",
        ".git/hooks/run/pre-commit",
        "DEMO-1/.unfinished-x/run/record.json",
        "DEMO\u00e9/F-DEMO-SORT-001/run/record.json",
        "",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    """A name with an empty or relative part is refused too, and a name outside every bundle."""
    with pytest.raises(ArchiveError):
        files_by_bundle([name])


def refusal(names: list[str]) -> str:
    """The text with which an archive of these names is refused."""
    with pytest.raises(ArchiveError) as refused:
        files_by_bundle(names)
    return str(refused.value)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["a", "a"], id="twice"),
        pytest.param(["README", "readme"], id="case"),
        pytest.param(["caf\u00e9", "cafe\u0301"], id="composition"),
        pytest.param(["stra\u00dfe", "STRASSE"], id="sharp s"),
        pytest.param(["\u212a", "k"], id="Kelvin"),
        pytest.param(["\ufb01le", "file"], id="ligature"),
        pytest.param(["a/x", "A/y"], id="folders"),
        pytest.param(["mutants", "mutants/x/trial.json"], id="file and folder"),
        pytest.param(["Mutants", "mutants/x/trial.json"], id="file and folder by case"),
    ],
)
def test_names_that_are_one_on_some_filesystem_are_refused(names: list[str], snapshot: SnapshotAssertion) -> None:
    """A filesystem may ignore case or composition. In either order, the message has both names."""
    assert [refusal([f"{PLACE}/{name}" for name in order]) for order in (names, names[::-1])] == snapshot


def test_places_that_are_one_on_some_filesystem_are_refused(snapshot: SnapshotAssertion) -> None:
    """Two such places are refused, because two bundles would become one."""
    assert refusal(["DEMO-1/F-X-001/run/a", "demo-1/F-X-001/run/b"]) == snapshot


def test_names_beyond_what_filesystems_take_are_refused() -> None:
    """The limit counts bytes, not letters."""
    files_by_bundle([f"{PLACE}/{'a' * 255}"])
    for name in ("a" * 256, "\u00e9" * 128, "/".join(["a" * 200] * 6), "/".join("a" * 20)):
        with pytest.raises(ArchiveError, match=r"is too long|folders deep"):
            files_by_bundle([f"{PLACE}/{name}"])


def test_more_files_than_a_bundle_has_are_refused(snapshot: SnapshotAssertion) -> None:
    """More bundles than an archive may have are refused too."""
    assert refusal([f"{PLACE}/{number}" for number in range(MOST_FILES + 1)]) == snapshot(name="files")
    assert refusal([f"DEMO-1/F-X-001/run{number}/a" for number in range(1001)]) == snapshot(name="bundles")


def test_more_bytes_than_a_bundle_has_are_refused(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    """The limits hold for each bundle, and for all together."""
    check_sizes([(f"{PLACE}/a", LARGEST_BUNDLE), (f"{PLACE}2/a", LARGEST_BUNDLE)])
    with pytest.raises(ArchiveError) as bundle:
        check_sizes([(f"{PLACE}/a", LARGEST_BUNDLE), (f"{PLACE}/b", 1)])
    assert str(bundle.value) == snapshot(name="bundle")
    monkeypatch.setattr("harness.evidence.packing.LARGEST_ARCHIVE", 100)
    with pytest.raises(ArchiveError) as archive:
        check_sizes([(f"{PLACE}/a", 60), (f"{PLACE}2/a", 60)])
    assert str(archive.value) == snapshot(name="archive")


@given(st.lists(st.lists(st.text("aAbB\u00e9e\u0301\u00df./\\\0 ", max_size=4), min_size=1, max_size=3), max_size=6))
def test_what_is_accepted_has_a_file_each_whatever_the_filesystem(parts: list[list[str]]) -> None:
    """Each accepted entry has its own file in the bundle's folder, even if case and composition do not count."""
    names = [f"{PLACE}/{'/'.join(some)}" for some in parts]
    try:
        bundles = files_by_bundle(names)
    except ArchiveError:
        return
    assert [f"{'/'.join(place)}/{file}" for place, files in bundles.items() for file in files] == names
    stored = {unicodedata.normalize("NFC", name).casefold() for name in names}
    assert len(stored) == len(names)
    assert not any(one.startswith(f"{other}/") for one in stored for other in stored)
    assert not any(part in ("", ".", "..") for name in names for part in name.split("/"))
