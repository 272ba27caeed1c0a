"""An external engine judged by `harness run F-BLACKWELL-ARCHIVE-001`, from the command line to the bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.harness_command import harness
from tests.falsifiers.blackwell.archived.engines import (
    APR,
    ENGINE,
    GB10,
    OOM,
    PROJECT,
    PTX,
)
from tests.tools.trainer.trainers import changed_trainer


def command_line(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and output of `harness run`. Another test runs the mutants."""
    words = ["run", PTX, "--device", "cpu", "--no-mutants", "--evidence", str(folder / "evidence"), *options]
    done = harness(PROJECT.root, *words, home=folder, seconds=300)
    return done.returncode, done.stdout + done.stderr


def sealed(folder: Path) -> dict[str, Any]:
    """The record of the only bundle, which must be sound."""
    (path,) = (folder / "evidence").rglob("record.json")
    verified = harness(PROJECT.root, "verify", str(path.parent), home=folder)
    assert verified.returncode == 0, verified.stdout
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_from_the_command_line_an_engine_is_judged_as_far_as_it_is_seen(tmp_path: Path, code: Path) -> None:
    """The exit status is 3, because nothing failed.

    The record names the trainer's file, and the bundle has the census.
    """
    said = ["--subject", f"command:{ENGINE}", "-P", f"code={code}", "-P", "targets=[120,121]"]
    status, output = command_line(tmp_path, *said)
    assert status == 3, output
    record = sealed(tmp_path)
    assert (record["verdict"], record["resolved"]) == ("NOT_MEASURED", {"device": "cpu", "contradiction": ""})
    assert {ENGINE, "tests/tools/trainer/ptx_engine.py"} <= record["sources"].keys()
    (held,) = (tmp_path / "evidence").rglob("device-code.json")
    (inspection,) = json.loads(held.read_text())
    assert len(inspection["device_code"]) == 6


def test_from_the_command_line_the_run_on_gx10_fails(tmp_path: Path) -> None:
    """`harness run F-BLACKWELL-ARCHIVE-001 --subject recorded:trainers/apr-distill.toml -P dir=RUN` exits with 1."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "launch.log").write_bytes(GB10 + OOM)
    said = ["--subject", f"recorded:{APR}", "-P", f"dir={place}", "-P", "apr=/bin/true"]
    status, output = command_line(tmp_path, *said)
    assert status == 1, output
    assert "Block 0 upload failed" in output
    assert sealed(tmp_path)["verdict"] == "FAIL"


def test_an_engine_that_hangs_is_ended_and_was_at_fault(tmp_path: Path, code: Path) -> None:
    """The engine ends at the trial's time limit, and the hang counts against it."""
    with changed_trainer(PROJECT.root / ENGINE, "[command]\n", "[command]\nseconds = 8\n") as mine:
        said = ["--subject", f"command:{mine}", "-P", f"code={code}", "-P", "fail=hangs", "-P", "targets=[120,121]"]
        status, output = command_line(tmp_path, *said)
    assert status == 1, output
    assert "subject.completes" in output
