"""`harness pack` and `harness unpack`, through the installed command."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.folders import contents
from tests.cli.harness_command import complaint, harness, start
from tests.contracts import healthy
from tests.evidence.factory import sealed
from tests.evidence.zips import Entry, write_zip

PLACE = "DEMO-1/F-DEMO-SORT-001"


def test_bundles_go_through_a_file_and_back(tmp_path: Path) -> None:
    """Each command says what it did; sha256sum and unzip agree."""
    sealed(tmp_path, run="a-pass")
    sealed(tmp_path, run="b-fail", measurements=healthy(returned=2), overrides={"steps": 4})
    told = "F-DEMO-SORT-001  reduced profile  cpu a CPU  proven"
    why = "parameters overridden: steps=4  nothing-lost: items were lost or made up"
    packed = harness(tmp_path, "pack", "evidence", "-o", "bundles.zip")
    assert (packed.returncode, packed.stderr) == (0, "")
    lines = packed.stdout.splitlines()
    assert lines[:2] == [f"PASS  {PLACE}/a-pass", f"FAIL  {PLACE}/b-fail"]
    assert lines[2].startswith("2 bundles, ")
    assert lines[2].endswith("KiB: bundles.zip")
    digest = hashlib.sha256((tmp_path / "bundles.zip").read_bytes()).hexdigest()
    assert lines[3] == f"sha256 {digest}"
    unpacked = harness(tmp_path, "unpack", "bundles.zip", "-C", "received")
    assert (unpacked.returncode, unpacked.stderr) == (0, "")
    assert unpacked.stdout.splitlines() == [
        f"PASS  {told}  received/{PLACE}/a-pass",
        f"FAIL  {told}  {why}  received/{PLACE}/b-fail",
        "2 bundles unpacked, all sound",
        "what narrows them: harness verify received; as pages: harness report received --html DIR",
    ]
    assert contents(tmp_path / "received") == contents(tmp_path / "evidence")
    again = harness(tmp_path, "unpack", "bundles.zip", "-C", "evidence")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines() == [
        f"PASS  {told}  evidence/{PLACE}/a-pass  already there, identical",
        f"FAIL  {told}  {why}  evidence/{PLACE}/b-fail  already there, identical",
        "0 bundles unpacked, 2 already there and identical, all sound",
        "what narrows them: harness verify evidence; as pages: harness report evidence --html DIR",
    ]
    assert contents(tmp_path / "evidence") == contents(tmp_path / "received")


@pytest.mark.parametrize("command", ["verify", "report", "pack"])
def test_an_archive_instead_of_a_folder_is_to_be_unpacked(
    tmp_path: Path, command: str, snapshot: SnapshotAssertion
) -> None:
    """The message says how to unpack it, because a person may pass an archive in place of a folder."""
    sealed(tmp_path)
    assert harness(tmp_path, "pack", "evidence", "-o", "a b.zip").returncode == 0
    options = {"report": ("--html", "site"), "pack": ("-o", "c.zip")}
    ended = harness(tmp_path, command, "a b.zip", *options.get(command, ()))
    assert ended.returncode == 2
    assert complaint(ended, tmp_path) == snapshot


def test_what_is_refused_exits_2_and_names_the_remedy(tmp_path: Path) -> None:
    """The disk does not change."""
    bundle = sealed(tmp_path)
    assert harness(tmp_path, "pack", "evidence", "-o", "a.zip").returncode == 0
    write_zip(tmp_path / "bad.zip", [Entry(b"../../x\x1b[2J", b"x")])
    (tmp_path / "text.zip").write_text("hello" * 100)
    shutil.copytree(tmp_path / "evidence", tmp_path / "mine")
    (tmp_path / "mine" / PLACE / bundle.name / "trials.log").write_text("mine")
    before = contents(tmp_path)
    for arguments, says in [
        (("pack", "evidence", "-o", "a.zip"), "nothing was packed: a.zip: exists already; remove it or name another"),
        (("pack", "missing", "-o", "b.zip"), "missing does not exist; name a bundle or a folder of bundles"),
        (("pack", "evidence", "-o", "no/such/b.zip"), "nothing was packed: no/such/b.zip: No such file"),
        (("unpack", "a.zip", "-C", "mine"), f"mine/{PLACE}/{bundle.name}: is there already and differs (trials.log)"),
        (("unpack", "bad.zip"), r"nothing was unpacked: bad.zip: '../../x\x1b[2J' has a backslash, a control"),
        (("unpack", "text.zip"), "is not a zip file"),
        (("unpack", "a.zip", "-C", "text.zip"), "text.zip"),
        (("unpack", "missing.zip"), "missing.zip"),
    ]:
        ended = harness(tmp_path, *arguments)
        assert (ended.returncode, ended.stdout) == (2, ""), arguments
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr
        assert "\x1b" not in ended.stderr
    assert contents(tmp_path) == before


def test_no_bundle_to_pack_exits_3(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The status is that of `verify` with nothing to verify."""
    ended = harness(tmp_path, "pack", ".", "-o", "a.zip")
    assert ended.returncode == 3
    assert complaint(ended, tmp_path) == snapshot
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_reader_leaves_no_bundle(tmp_path: Path, end: signal.Signals) -> None:
    """Ctrl-C leaves nothing. The next run removes what a killed run left."""
    for number in range(8):
        sealed(tmp_path, run=f"run{number}")
    assert harness(tmp_path, "pack", "evidence", "-o", "a.zip").returncode == 0
    before = contents(tmp_path)
    process = start(tmp_path, "unpack", "a.zip", "-C", "out")
    while not list(tmp_path.glob("out/.unpacking-*/*")) and process.poll() is None:
        time.sleep(0.001)
    os.killpg(process.pid, end)
    process.communicate(timeout=60)
    assert process.returncode == (130 if end is signal.SIGINT else -end)
    assert not list(tmp_path.glob(f"out/{PLACE}/*"))
    if end is signal.SIGINT:
        assert contents(tmp_path) == before
    assert harness(tmp_path, "unpack", "a.zip", "-C", "out").returncode == 0
    assert len(list(tmp_path.glob(f"out/{PLACE}/*"))) == 8
    assert not list(tmp_path.glob("out/.*"))


def test_unzip_reads_what_we_write(tmp_path: Path) -> None:
    """Python's own reader stands for a user without the harness."""
    sealed(tmp_path)
    assert harness(tmp_path, "pack", "evidence", "-o", "a.zip").returncode == 0
    subprocess.run(["python3", "-m", "zipfile", "-e", "a.zip", "plain"], cwd=tmp_path, check=True)
    assert contents(tmp_path / "plain") == contents(tmp_path / "evidence")
