"""The evidence of several hosts in one folder."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Verdict
from harness.evidence.findings import Code
from harness.evidence.verification import find_bundles, verify
from harness.machine.file_memory import recall
from harness.machine.provenance import harness_identity
from harness.tools.merge import merging
from harness.tools.merge.merging import Merged, merge
from tests.cli.folders import contents
from tests.cli.harness_command import harness
from tests.contracts import healthy
from tests.evidence.conftest import pristine as pristine
from tests.evidence.factory import copy_of, rewrite, sealed, set_at, tamper


def merged(folder: Path, *hosts: str) -> Merged:
    """The folders of these hosts, merged into evidence/."""
    return merge(find_bundles([folder / host for host in hosts]), folder / "evidence")


@pytest.fixture
def hosts(pristine: Path, tmp_path: Path) -> Path:
    """Two hosts: `a` has one bundle, and `b` has the same and another one that FAILs."""
    copy_of(pristine, tmp_path / "a")
    copy_of(pristine, tmp_path / "b")
    copy_of(sealed(tmp_path / "made", run="b-fail", measurements=healthy(returned=2)), tmp_path / "b")
    return tmp_path


def test_bundles_come_together_byte_for_byte(hosts: Path) -> None:
    """A FAIL is merged like a PASS. Merging again changes nothing."""
    once = merged(hosts, "a", "b")
    assert ([bundle.verdict for bundle in once.new], len(once.there), once.left_out) == (
        [Verdict.PASS, Verdict.FAIL],
        1,
        (),
    )
    assert contents(hosts / "evidence") == contents(hosts / "b")
    assert all(verify(bundle.path).sound for bundle in once.new)
    again = merged(hosts, "a", "b", "evidence")
    assert (again.new, len(again.there), again.left_out) == ((), 5, ())
    assert contents(hosts / "evidence") == contents(hosts / "b")


def test_of_two_contents_of_one_run_none_is_merged(hosts: Path, pristine: Path) -> None:
    """Neither of two sound contents is merged.

    Neither the order of the hosts nor a third host that agrees with one decides.
    """
    other = hosts.joinpath("a", *pristine.parts[-3:])
    rewrite(other, "record.json", set_at("seconds", 9.5))
    assert verify(other).sound
    copy_of(other, hosts / "c")
    for order in (("a", "b", "c"), ("c", "b", "a")):
        found = merged(hosts, *order)
        assert {(left.bundle.path.relative_to(hosts).parts[0], left.differs) for left in found.left_out} == {
            ("a", "record.json"),
            ("b", "record.json"),
            ("c", "record.json"),
        }
        assert [bundle.path.name for bundle in found.new] + [path.name for path in found.there] == ["b-fail"]


@pytest.mark.parametrize("obstacle", ["other bytes", "file", "link to the same", "added folder"])
def test_what_is_there_stays(hosts: Path, pristine: Path, obstacle: str) -> None:
    """A bundle at the place of another does not replace it, even if the existing one is unsound."""
    place = copy_of(pristine, hosts / "evidence")
    match obstacle:
        case "other bytes":
            tamper(place)
        case "added folder":
            (place / "empty").mkdir()
        case _:
            place.rename(hosts / "moved")
            place.symlink_to(hosts / "moved") if obstacle.startswith("link") else place.write_text("mine")
    before = contents(hosts / "evidence")
    found = merged(hosts, "a")
    (left,) = found.left_out
    differs = {"other bytes": "environment.json", "added folder": "empty"}.get(obstacle, ".")
    assert (found.new, found.there, left.other, left.differs) == ((), (), place, differs)
    assert contents(hosts / "evidence") == before


def test_unsound_bundles_are_left_out_and_named(hosts: Path, pristine: Path) -> None:
    """A bundle is left out if it is changed, unfinished, has a link or a pipe, or ends before its start.

    The others are merged.
    """
    run = Path(*pristine.parts[-3:])
    tamper(copy_of(pristine, hosts / "c"))
    (copy_of(pristine, hosts / "d") / "artifacts" / "link").symlink_to("/etc/passwd")
    os.mkfifo(copy_of(pristine, hosts / "e") / "pipe")
    unfinished = copy_of(pristine, hosts / "f")
    unfinished.rename(unfinished.with_name(f".unfinished-{unfinished.name}"))
    rewrite(copy_of(pristine, hosts / "g"), "record.json", set_at("seconds", -1))
    found = merged(hosts, "b", "c", "d", "e", "f", "g")
    codes = {left.bundle.path.relative_to(hosts).parts[0]: left.bundle.findings[0].code for left in found.left_out}
    assert codes == {
        "c": Code.TAMPERED, "d": Code.TAMPERED, "e": Code.TAMPERED, "f": Code.INCOMPLETE, "g": Code.INVALID
    }  # fmt: skip
    assert contents(hosts / "evidence") == contents(hosts / "b")
    (negative,) = (left for left in found.left_out if "g" in left.bundle.path.relative_to(hosts).parts)
    assert "/seconds" in [finding.pointer for finding in negative.bundle.findings]
    assert verify(hosts / "evidence" / run).sound


def test_no_link_on_the_way_is_followed(hosts: Path, pristine: Path) -> None:
    """No link is followed below a host or below the evidence."""
    (hosts / "elsewhere").mkdir()
    (hosts / "c").mkdir()
    (hosts / "c" / "link").symlink_to(hosts / "a")
    assert find_bundles([hosts / "c"]) == []
    (hosts / "evidence").mkdir()
    (hosts / "evidence" / pristine.parts[-3]).symlink_to(hosts / "elsewhere")
    with pytest.raises(OSError, match="symbolic link") as refused:
        merged(hosts, "a")
    assert refused.value.errno == errno.ELOOP
    assert list((hosts / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("failing", ["_copy", "sync_tree", "move"])
def test_after_an_error_nothing_is_left(hosts: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """After an error, not even the folder of evidence is left, if it is new."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(merging, failing, full)
    with pytest.raises(OSError, match="No space"):
        merged(hosts, "b")
    assert not (hosts / "evidence").exists()


def test_a_bundle_that_changes_after_it_was_verified_is_not_merged(
    hosts: Path, pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the verified bytes are merged."""
    source = hosts.joinpath("a", *pristine.parts[-3:])
    for name, moment in (("_sealed", "_sealed"), ("made", "made")):
        original = getattr(merging, name)

        def change(*arguments: object, original: object = original) -> object:
            tamper(source)
            return original(*arguments)  # type: ignore[operator]

        with monkeypatch.context() as patched:
            patched.setattr(merging, moment, change)
            with pytest.raises(OSError, match="changed") as refused:
                merged(hosts, "a")
        assert refused.value.errno == errno.EBUSY
        (source / "environment.json").write_bytes((pristine / "environment.json").read_bytes())
    assert not (hosts / "evidence").exists()


@pytest.mark.parametrize(
    ("ago", "seconds", "places"),
    [(-2, 60, ["/started"]), (2, 4 * 3600, ["/seconds"]), (2, 1e300, ["/seconds"]), (2, 2 * 3600, [])],
)
def test_a_run_of_the_future_is_merged_with_a_remark(
    tmp_path: Path, ago: int, seconds: float, places: list[str]
) -> None:
    """The run starts or ends more than an hour later than now, by this machine's clock."""
    source = sealed(tmp_path / "a")
    started = (datetime.now(UTC) - timedelta(hours=ago)).isoformat(timespec="seconds")
    rewrite(source, "record.json", lambda record: {**record, "started": started, "seconds": seconds})
    (merged,) = merge([source], tmp_path / "evidence").new
    assert [remark.pointer for remark in merged.remarks if remark.code is Code.CLOCK_AHEAD] == places


def _deleted(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def _poisoned(file: Path) -> None:
    """Change the cache: every row says that the bundle `a` has the files of the bundle that FAILs."""
    key = harness_identity()["sha256"]
    rows = recall("merged", file.parents[1] / "evidence", key)
    text = json.dumps({name: [*next(iter(rows.values()))] for name in rows})
    file.write_bytes(file.read_bytes().partition(b"\n")[0] + b"\n" + text.encode())


@pytest.mark.parametrize("spoil", [None, _deleted, _cut, _poisoned])
def test_what_an_earlier_merge_read_is_not_read_again(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None] | None
) -> None:
    """A second merge reads no bundle again, unless the cache was changed. The answer is the same."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(hosts / "cache"))
    read: list[Path] = []
    original = merging.verify_all
    monkeypatch.setattr(merging, "verify_all", lambda paths: read.extend(paths) or original(paths))
    merged(hosts, "a", "b")
    assert len(read) == 3
    read.clear()
    if spoil is not None:
        (file,) = (hosts / "cache").glob("merged-*.json")
        spoil(file)
    again = merged(hosts, "a", "b")
    assert (again.new, again.left_out, [path.name for path in again.there].count("b-fail")) == ((), (), 1)
    assert len(again.there) == 3
    assert len(read) == (0 if spoil is None else 3)


@pytest.mark.parametrize("where", ["source", "place", "file more", "link to the place", "link to its claim"])
def test_a_change_after_a_merge_is_noticed(hosts: Path, pristine: Path, where: str) -> None:
    """A change at either place is noticed, although the times of the file are put back."""
    merged(hosts, "a", "b")
    assert len(merged(hosts, "a", "b").there) == 3
    place = hosts.joinpath("evidence", *pristine.parts[-3:])
    match where:
        case "file more":
            (place / "more").write_text("")
        case "link to the place" | "link to its claim":
            moved = place if where.endswith("place") else place.parent
            moved.rename(hosts / "moved")
            moved.symlink_to(hosts / "moved")
        case _:
            file = (hosts.joinpath("a", *pristine.parts[-3:]) if where == "source" else place) / "environment.json"
            before = file.stat()
            file.write_bytes(file.read_bytes().replace(b"{", b"[", 1))
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    if where == "link to its claim":
        with pytest.raises(OSError, match="symbolic link"):
            merged(hosts, "a", "b")
        return
    found = merged(hosts, "a", "b")
    assert (len(found.left_out), len(found.there), found.new) == ((1, 2, ()) if where == "source" else (2, 1, ()))


def test_hosts_are_merged_and_what_is_left_out_is_named(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The exit status is 2 if a bundle was left out, 3 if there is none, else 0."""
    first = sealed(tmp_path / "made", run="first")
    copy_of(first, tmp_path / "a")
    copy_of(sealed(tmp_path / "made", run="second", measurements=healthy(returned=2)), tmp_path / "b")
    copy_of(first, tmp_path / "b")
    fine = harness(tmp_path, "merge", "a", "b", "--into", "evidence")
    assert (fine.returncode, fine.stderr) == (0, "")
    rewrite(copy_of(first, tmp_path / "c"), "record.json", set_at("started", "2999-01-01T00:00:00Z"))
    tamper(copy_of(first, tmp_path / "d"))
    (tmp_path / "empty").mkdir()
    left = harness(tmp_path, "merge", "b", "c", "d", "empty", "missing", "--into", "evidence")
    none = harness(tmp_path, "merge", "a", "empty", "--into", "evidence")
    assert (left.returncode, none.returncode) == (2, 3)
    now = left.stdout.partition("machine's clock it is ")[2].partition("+")[0]
    assert "\n".join(done.stdout + done.stderr for done in (fine, left)).replace(now, "NOW") == snapshot


def test_an_archive_is_merged_like_a_folder(tmp_path: Path) -> None:
    """Its bundles come to their places byte for byte. What is unsound in it is named by its place in the archive."""
    first = sealed(tmp_path / "made", run="first")
    place = copy_of(first, tmp_path / "a").relative_to(tmp_path / "a")
    shutil.make_archive(str(tmp_path / "some"), "zip", tmp_path / "a")
    done = harness(tmp_path, "merge", "some.zip", "--into", "evidence")
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "evidence") == contents(tmp_path / "a")
    tamper(tmp_path / "a" / place)
    shutil.make_archive(str(tmp_path / "bad"), "zip", tmp_path / "a")
    left = harness(tmp_path, "merge", "bad.zip", "--into", "evidence")
    assert (left.returncode, f"bad.zip/{place}" in left.stdout.replace("\n", "")) == (2, True)
