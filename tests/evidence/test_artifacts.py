"""Secrets in what a falsifier leaves."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.beneath import Beneath
from harness.base.redaction import Redactor
from harness.evidence import artifacts
from harness.evidence.verification import verify
from harness.search.counterexample import Counterexample
from tests.evidence.factory import claim_result, sealer

TOKEN = "hf_" + "a" * 30


def test_secrets_in_text_are_masked(tmp_path: Path) -> None:
    """The index says so, and names what was masked by digest."""
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
    """In text it is masked; a file of UTF-16 that holds it is listed and not copied."""
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
    """A file that is not text, and one whose name is a secret, are listed by digest; no byte of it is sealed."""
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
    """A larger one is listed with its size."""
    (tmp_path / "one").write_bytes(b"x" * size)
    place = Beneath(tmp_path, "one")
    artifact, content = artifacts._artifact("one", place, "", artifacts._Limits(read=100, copied=5), Redactor(), "")
    assert (artifact.copied, content) == (copied, b"x" * size if copied else b"")
    assert artifact.size == size


def test_what_is_beyond_the_most_is_counted_ten_times_as_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are listed. Of the others, 19 are counted; those after them are not even looked for."""
    monkeypatch.setattr(artifacts, "MOST", 2)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(30):
            (tmp_path / name / str(number)).touch()
    entries = [entry for entry, _ in artifacts.collect(Beneath(tmp_path), Redactor())]
    assert (len(entries), entries.count(None)) == (21, 19)


def test_artifacts_lie_at_most_so_deep(tmp_path: Path) -> None:
    """A file in seven folders is listed like any other. The eighth folder is named instead of what is in it."""
    deep = tmp_path.joinpath(*"1234567")
    (deep / "8").mkdir(parents=True)
    (deep / "file").write_text("x")
    (deep / "8" / "file").write_text("x")
    entries = [entry for entry, _ in artifacts.collect(Beneath(tmp_path), Redactor()) if entry is not None]
    names = {entry.name.removeprefix("1/2/3/4/5/6/7/"): entry.copied for entry in entries}
    assert names == {"8": False, "file": True}


def test_a_counterexample_is_read_from_its_file(tmp_path: Path) -> None:
    """None if a search left none."""
    case = Counterexample({"n": 1}, ("ordered",), {"values": [2.0]})
    assert artifacts.counterexample(Beneath(tmp_path), Redactor()) is None
    (tmp_path / "counterexample.json").write_text(json.dumps(case.to_json()))
    assert artifacts.counterexample(Beneath(tmp_path), Redactor()) == case
