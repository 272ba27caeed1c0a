"""Hostile bundles: each gives a finding, in bounded time and memory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.evidence.findings import Code, Detail, Verification
from harness.evidence.verification import verify
from harness.machine.limited_process import Limits
from harness.report.messages import finding_text
from tests.evidence.factory import found, reseal, rewrite, set_at

ROOT = Path(__file__).parents[2]


def test_a_link_is_not_followed(bundle: Path) -> None:
    """A link is not followed, not even to a copy of the file."""
    outside = bundle.parent / "outside.json"
    shutil.move(bundle / "observation.json", outside)
    (bundle / "observation.json").symlink_to(outside)
    assert (Code.TAMPERED, "observation.json") in found(verify(bundle))


@pytest.mark.parametrize("name", ["observation.json", "MANIFEST.sha256", "artifacts/pipe"])
def test_a_pipe_is_not_waited_for(bundle: Path, name: str) -> None:
    """No process ever writes into it."""
    (bundle / name).unlink(missing_ok=True)
    os.mkfifo(bundle / name)
    assert (Code.TAMPERED, name) in found(verify(bundle))


def test_a_socket_is_not_opened(bundle: Path) -> None:
    """A device is not opened either."""
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(bundle)
        try:
            listener.bind("socket")
        finally:
            os.chdir(ROOT)
        assert (Code.TAMPERED, "socket") in found(verify(bundle))


@pytest.mark.parametrize("name", ["observation.json", "artifacts/deep/header.bin", "MANIFEST.sha256", "trials.log"])
def test_a_terabyte_is_not_read(bundle: Path, name: str) -> None:
    """A sparse file costs its author nothing."""
    os.truncate(bundle / name, 1 << 40)
    (finding,) = verify(bundle, Limits(seconds=10)).findings
    assert finding.code is Code.INVALID
    assert finding.detail is not Detail.CHECK_STOPPED


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"measurements":[{"a":'])
def test_deep_json_is_refused(bundle: Path, opening: str) -> None:
    """Deep JSON is refused, even if it would overflow a parser's stack."""
    (bundle / "observation.json").write_text(opening * 200_000)
    reseal(bundle)
    assert (Code.INVALID, "observation.json") in found(verify(bundle))


def test_deep_folders_are_refused(bundle: Path) -> None:
    """Folders as deep as a path can be are refused."""
    here = os.open(bundle / "artifacts", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("x" * 50, dir_fd=here)
        below = os.open("x" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (finding,) = verify(bundle).findings
    assert finding.code is Code.INVALID
    subprocess.run(["rm", "-rf", bundle / "artifacts"], check=True)


@pytest.mark.parametrize("name", ["\x1b[31mred", "half\udcff", "two\nlines", "right\u202eleft"])
def test_names_that_steer_terminals_are_findings(bundle: Path, name: str) -> None:
    """Such names become findings that can be sent to another process."""
    (bundle / os.fsencode(name).decode(errors="surrogateescape")).touch()
    verification = verify(bundle)
    assert (Code.TAMPERED, name) in found(verification)
    assert Verification.from_json(json.loads(json.dumps(verification.to_json()))).findings == verification.findings


def test_a_manifest_cannot_name_what_lies_outside(bundle: Path) -> None:
    """The manifest is refused, and the file outside is not read."""
    text = (bundle / "MANIFEST.sha256").read_text()
    (bundle / "MANIFEST.sha256").write_text(f"{'0' * 64}  ../../../../../../../etc/passwd\n" + text)
    assert (Code.INVALID, "MANIFEST.sha256") in found(verify(bundle))


def test_a_judgment_that_never_ends_is_stopped(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """A rule, pattern or keyword that would take a year is stopped: its process is killed."""
    monkeypatch.setattr("harness.evidence.bundle_checks.rejudge", lambda *_: sum(iter(int, 1)))
    (finding,) = verify(bundle, Limits(seconds=1)).findings
    assert finding.code is Code.INVALID
    assert finding_text.message(finding) == snapshot


def test_a_document_that_eats_all_memory_is_stopped(bundle: Path) -> None:
    """Sixteen megabytes of brackets are half a gigabyte of lists. The process that reads them is stopped."""
    (bundle / "observation.json").write_text("[" + "[]," * 5_000_000 + "[]]")
    reseal(bundle)
    verification = verify(bundle, Limits(memory_bytes=200 << 20))
    assert Code.INVALID in {finding.code for finding in verification.findings}


def test_an_observation_that_is_none_is_told_of_once(bundle: Path) -> None:
    """The observation is reported as invalid, and not as missing too."""
    rewrite(bundle, "mutants.jsonl", set_at("forgets-one", "observation", {}))
    codes = {code for code, file in found(verify(bundle)) if file == "mutants.jsonl"}
    assert codes == {Code.INVALID}
