"""Writers that die while they seal leave nothing that looks like a bundle, and the rest is removed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.evidence.bundle_layout import UNFINISHED
from harness.evidence.findings import Code
from harness.evidence.verification import find_bundles, verify
from tests.evidence.factory import sealed

ROOT = Path(__file__).parents[2]

SEALING = """
import os, sys, time
from pathlib import Path
from harness.evidence.seal import Sealer
from tests.evidence.factory import claim_result
folder = Path(sys.argv[1])

def slowly(record, subject, manifest):
    print("sealing", flush=True)
    time.sleep(60)
    return b""

Sealer(folder / "evidence", slowly).seal(claim_result(folder / "contracts", run="first"))
"""


def test_kill_9_in_the_middle_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    """The rest is named as unfinished, and the next seal of the claim removes it."""
    command = [sys.executable, "-c", SEALING, str(tmp_path)]
    writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "sealing\n"
    claim = tmp_path / "evidence/DEMO-1/F-DEMO-SORT-001"
    (left,) = claim.iterdir()
    assert left.name == f"{UNFINISHED}first"
    assert (left / "MANIFEST.sha256").exists()  # every file is there, except the attestation

    sealed(tmp_path, run="second")  # the writer is still alive, so its folder is left alone
    assert left.is_dir()
    writer.send_signal(signal.SIGKILL)
    writer.wait()

    assert find_bundles([tmp_path]) == [left, claim / "second"]
    assert {finding.code for finding in verify(left).findings} == {Code.INCOMPLETE}
    sealed(tmp_path, run="third")
    assert sorted(os.listdir(claim)) == ["second", "third"]


SEALING_ON_AND_ON = """
import sys
from pathlib import Path
from tests.evidence.factory import claim_result, sealer
folder = Path(sys.argv[1])
for number in range(1000):
    sealer(folder).seal(claim_result(folder / "contracts", run=f"{sys.argv[2]}-{number}"))
    print(number, flush=True)
"""


def test_killed_at_any_moment_every_bundle_is_whole(tmp_path: Path) -> None:
    """Five writers are each killed at some moment; every folder with a bundle's name is sound."""
    for round_number in range(5):
        command = [sys.executable, "-c", SEALING_ON_AND_ON, str(tmp_path), f"r{round_number}"]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.019 * round_number)
        writer.kill()
        writer.wait()
        writer.stdout.close()
    found = find_bundles([tmp_path / "evidence"])
    whole = [path for path in found if not path.name.startswith(".unfinished-")]
    assert len(whole) >= 5
    assert [path for path in whole if not verify(path).sound] == []
    sealed(tmp_path, run="last")
    assert find_bundles([tmp_path / "evidence"]) == sorted([*whole, tmp_path / "evidence/DEMO-1/F-DEMO-SORT-001/last"])


def test_without_locks_a_folder_is_left_alone_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer may be alive. Sealing takes seconds, so an hour is enough."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = tmp_path / f"evidence/DEMO-1/F-DEMO-SORT-001/{UNFINISHED}left"
    left.mkdir(parents=True)
    sealed(tmp_path, run="first")
    assert left.is_dir()
    os.utime(left, (time.time() - 4000, time.time() - 4000))
    sealed(tmp_path, run="second")
    assert not left.exists()


def test_a_link_named_unfinished_is_not_followed(tmp_path: Path) -> None:
    """A link named like an unfinished bundle is removed, and its target stays."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    claim = tmp_path / "evidence/DEMO-1/F-DEMO-SORT-001"
    claim.mkdir(parents=True)
    (claim / ".unfinished-link").symlink_to(precious)
    sealed(tmp_path)
    assert (precious / "file").exists()
