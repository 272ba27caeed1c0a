"""Secrets in the artifacts that a falsifier leaves."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from pathlib import Path
from typing import cast

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.beneath import Beneath
from harness.base.redaction import Redactor
from harness.evidence import artifacts
from harness.evidence.verification import verify
from harness.judging.counterexample import Counterexample
from tests.evidence.factory import claim_result, sealer

TOKEN = "hf_" + "a" * 30


def test_secrets_in_text_are_masked(tmp_path: Path) -> None:
    """The index says that the artifact is masked, and has the digest of the original."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    texts = {"notes.txt": f"logged in with {TOKEN}\n"}
    blob = b"\x00\xff weights"
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "weights.bin").write_bytes(blob)
    (folder / "plain.txt").write_text("nothing to hide")
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=folder))
    listed = {entry["name"]: entry for entry in json.loads((bundle / "artifacts/INDEX.json").read_text())["artifacts"]}
    for name, text in texts.items():
        content = (bundle / "artifacts" / name).read_bytes()
        assert TOKEN.encode() not in content
        assert b"[masked]" in content
        assert listed[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert hashlib.sha256(text.encode()).hexdigest() in listed[name]["reason"]
    assert (bundle / "artifacts/weights.bin").read_bytes() == blob
    assert (listed["weights.bin"]["reason"], listed["plain.txt"]["reason"]) == ("", "")
    assert not verify(bundle).findings


def test_no_encoded_value_of_a_variable_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In text the value is masked. A file in UTF-16 that has it is listed and not copied."""
    value = "correct horse battery"
    monkeypatch.setenv("DEPLOY_TOKEN", value)
    folder = tmp_path / "artifacts"
    folder.mkdir()
    encoded = base64.b64encode(value.encode()).decode()
    (folder / "page.html").write_text(f"<p>{encoded} {value.encode().hex()} {value[:9]}\n{value[9:]}</p>")
    (folder / "wide.txt").write_text(value, encoding="utf-16")
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=folder))
    assert (bundle / "artifacts/page.html").read_text() == "<p>[masked] [masked] [masked]</p>"
    assert not (bundle / "artifacts/wide.txt").exists()


def test_what_holds_a_secret_and_cannot_be_masked_is_not_copied(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A file that is not text, and one whose name is a secret, are listed by digest. No byte of them is sealed."""
    folder = tmp_path / "artifacts"
    (folder / TOKEN).mkdir(parents=True)
    blob = b"\x00\xff" + TOKEN.encode()
    (folder / "weights.bin").write_bytes(blob)
    (folder / f"{TOKEN}.txt").write_text("nothing to hide")
    (folder / f"{TOKEN}.link").symlink_to("weights.bin")
    (folder / TOKEN / "inside.txt").write_text("nothing to hide")
    bundle = sealer(tmp_path).seal(claim_result(tmp_path, artifacts=folder))
    listed = {entry["name"]: entry for entry in json.loads((bundle / "artifacts/INDEX.json").read_text())["artifacts"]}
    assert set(listed) == {"weights.bin", "[masked].txt", "[masked].link", "[masked]/inside.txt"}
    assert not any(entry["copied"] for entry in listed.values())
    assert listed["weights.bin"]["sha256"] == hashlib.sha256(blob).hexdigest()
    assert {name: entry["reason"] for name, entry in listed.items()} == snapshot
    for path in bundle.rglob("*"):
        assert TOKEN not in str(path.relative_to(bundle))
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path
    assert not verify(bundle).findings


@pytest.mark.parametrize(("size", "copied"), [(4, True), (5, True), (6, False)])
def test_an_artifact_is_as_large_as_its_limit_and_no_larger(tmp_path: Path, size: int, copied: bool) -> None:
    """An artifact of exactly the limit is copied. A larger one is listed with its size."""
    (tmp_path / "one").write_bytes(b"x" * size)
    place = Beneath(tmp_path, "one")
    artifact, content = artifacts._artifact("one", place, "", artifacts._Limits(read=100, copied=5), Redactor(), "")
    assert (artifact.copied, content) == (copied, b"x" * size if copied else b"")
    assert artifact.size == size


def test_what_is_beyond_the_most_is_counted_ten_times_as_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more are listed, and the next 19 are counted. The rest is not even read."""
    monkeypatch.setattr(artifacts, "MOST", 2)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(30):
            (tmp_path / name / str(number)).touch()
    entries = [entry for entry, _ in artifacts.collect(Beneath(tmp_path), Redactor())]
    assert (len(entries), entries.count(None)) == (21, 19)


def test_of_one_folder_ten_times_as_many_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST", 2)
    for number in range(30):
        (tmp_path / str(number)).touch()
    entries = [entry for entry, _ in artifacts.collect(Beneath(tmp_path), Redactor())]
    assert (len(entries), entries.count(None)) == (20, 18)


def test_artifacts_lie_at_most_so_deep(tmp_path: Path) -> None:
    """A file in seven folders is listed like any other. Instead of its files, the eighth folder is named."""
    deep = tmp_path.joinpath(*"1234567")
    (deep / "8").mkdir(parents=True)
    (deep / "file").write_text("x")
    (deep / "8" / "file").write_text("x")
    entries = [entry for entry, _ in artifacts.collect(Beneath(tmp_path), Redactor()) if entry is not None]
    names = {entry.name.removeprefix("1/2/3/4/5/6/7/"): entry.copied for entry in entries}
    assert names == {"8": False, "file": True}


def test_a_counterexample_is_read_from_its_file(tmp_path: Path) -> None:
    """The file is read if the search left one."""
    case = Counterexample({"n": 1}, ("ordered",), {"values": [2.0]})
    assert artifacts.counterexample(Beneath(tmp_path), Redactor()) is None
    (tmp_path / "counterexample.json").write_text(json.dumps(case.to_json()))
    assert artifacts.counterexample(Beneath(tmp_path), Redactor()) == case


def told(*folder: Path | str) -> list[tuple[str, bool, int | None, bool, str, bytes]]:
    """For each artifact of a folder: name, whether it is copied, size, whether it has a digest, reason and content."""
    collected = artifacts.collect(Beneath(*folder), Redactor())
    found = [(entry, content) for entry, content in collected if entry is not None]
    return [
        (artifact.name, artifact.copied, artifact.size, artifact.sha256 is not None, artifact.reason, content)
        for artifact, content in found
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that small files reach."""
    for name, value in (("LARGEST", 4), ("LARGEST_TOGETHER", 9), ("LARGEST_READ", 20), ("MOST_ARTIFACTS", 3)):
        monkeypatch.setattr(artifacts, name, value)


@pytest.mark.usefixtures("small")
def test_artifacts_share_room(tmp_path: Path) -> None:
    """A copied artifact takes room from the later ones. One that is only digested takes none."""
    for name, size in {"a": 4, "b": 5, "c": 4, "d": 2, "e": 1, "f": 0}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    assert told(tmp_path) == [
        ("a", True, 4, True, "", b"xxxx"),
        ("b", False, 5, True, "larger than the 4 bytes that artifacts may still take", b""),
        ("c", True, 4, True, "", b"xxxx"),
        ("d", False, 2, True, "larger than the 1 bytes that artifacts may still take", b""),
        ("e", True, 1, True, "", b"x"),
        ("f", False, 0, True, "a bundle has copies of at most 3 artifacts", b""),
    ]


@pytest.mark.usefixtures("small")
def test_the_counterexample_is_not_one_of_the_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterexample is copied in addition to the limited number, whether it comes first or last."""
    monkeypatch.setattr(artifacts, "LARGEST", 1000)
    monkeypatch.setattr(artifacts, "LARGEST_TOGETHER", 1000)
    monkeypatch.setattr(artifacts, "LARGEST_READ", 1000)
    for name in ("1", "2", "e", "f"):
        (tmp_path / name).touch()
    (tmp_path / "counterexample.json").write_text(json.dumps(Counterexample({}, ("a",), {"b": 1}).to_json()))
    assert [(name, copied) for name, copied, *_ in told(tmp_path)] == [
        ("1", True),
        ("2", True),
        ("counterexample.json", True),
        ("e", True),
        ("f", False),
    ]


@pytest.mark.usefixtures("small")
def test_what_was_read_for_a_digest_is_not_read_again(tmp_path: Path) -> None:
    """An empty file, a link and a file that is too large use nothing of the bytes that may still be read."""
    for name, size in {"a": 0, "c": 12, "d": 9, "e": 8, "f": 1}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "b").symlink_to("a")
    assert told(tmp_path) == [
        ("a", True, 0, True, "", b""),
        ("b", False, None, False, "a symbolic link, which is not followed", b""),
        ("c", False, 12, True, "larger than the 4 bytes that artifacts may still take", b""),
        ("d", False, 9, False, "larger than the 8 bytes that are still read for digests", b""),
        ("e", False, 8, True, "larger than the 4 bytes that artifacts may still take", b""),
        ("f", False, 1, False, "larger than the 0 bytes that are still read for digests", b""),
    ]


class Growing(io.BytesIO):
    """A file that had five bytes when it was opened, and has ten now."""

    def __init__(self, place: Path) -> None:
        super().__init__(b"0123456789")
        place.write_bytes(b"01234")
        self._opened = place.open("rb")

    def fileno(self) -> int:
        return self._opened.fileno()

    def opened(self) -> Growing:
        return self


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_a_file_that_grows_is_read_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """The size of a file is that of the moment in which it was opened."""
    monkeypatch.setattr(artifacts, "CHUNK", piece)
    place = cast(Beneath, Growing(tmp_path / "one"))
    artifact, content = artifacts._artifact("one", place, "", artifacts._Limits(10, 10), Redactor(), "")
    assert (artifact.size, artifact.sha256, content) == (5, hashlib.sha256(b"01234").hexdigest(), b"01234")


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """A pipe does not block. A missing folder has no artifacts, and a link in place of the folder is named."""
    os.mkfifo(tmp_path / "pipe")
    assert told(tmp_path) == [("pipe", False, None, False, "neither a file nor a folder", b"")]
    assert told(tmp_path / "missing") == []
    (tmp_path / "link").symlink_to(".")
    assert [(name, copied) for name, copied, *_ in told(tmp_path, "link")] == [(".", False)]


def test_some_names_are_not_copied(tmp_path: Path) -> None:
    """Names that a manifest cannot have, the index itself, and git's own names are not copied."""
    for name in ("INDEX.json", ".gitignore", "a/.git/b", "new\nline", "a.git", "INDEX.json.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {name: (copied, reason) for name, copied, _, _, reason, _ in told(tmp_path)} == {
        ".gitignore": (False, "git would take it for its own"),
        "INDEX.json": (False, "has the name of this index"),
        "INDEX.json.txt": (True, ""),
        "a.git": (True, ""),
        "a/.git/b": (False, "git would take it for its own"),
        "new\nline": (False, "its name cannot stand in a manifest"),
    }


@pytest.mark.parametrize("content", ["{", "[]", '{"inputs": 1}'])
def test_what_has_only_the_name_of_a_counterexample_is_not_copied(tmp_path: Path, content: str) -> None:
    (tmp_path / "counterexample.json").write_text(content)
    ((_, copied, size, has_digest, reason, sealed),) = told(tmp_path)
    assert (copied, size, has_digest, sealed) == (False, len(content), True, b"")
    assert reason.startswith("has the name of a counterexample but is not one: ")


def test_the_index_lists_fields_and_counts() -> None:
    entry = artifacts.Artifact("a", True, 1, "0", "")
    assert artifacts.index([entry], 3) == {
        "artifacts": [{"name": "a", "copied": True, "size": 1, "sha256": "0", "reason": ""}],
        "omitted": 3,
    }
