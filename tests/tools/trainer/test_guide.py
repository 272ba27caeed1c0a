"""docs/trainers.md: its trainer and its TOML file work as they are, and its tables are complete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tools.trainer.output_events import EventKind
from harness.tools.trainer.trainer_file import _VALUES, GIVEN
from tests.cli.harness_command import harness
from tests.tools.trainer.trainers import ROOT

GUIDE = (ROOT / "docs" / "trainers.md").read_text()


def block(language: str) -> str:
    """The first code block in a language."""
    found, *_ = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return str(found)


def rows(title: str) -> dict[str, list[str]]:
    """The values between backquotes in a table: first column to second column."""
    table = GUIDE.partition(f"| {title} |")[2].partition("\n\n")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return {re.findall("`([^`]+)`", first)[0]: re.findall("`([^`]+)`", second) for _, first, second, *_ in cells}


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Path]:
    """The TOML file in the project, with the trainer beside it."""
    folder = ROOT / "tests" / "tools" / "trainer" / f"guide-{tmp_path.parent.name}"
    folder.mkdir()
    (folder / "train.py").write_text(block("python"))
    place = folder.relative_to(ROOT).as_posix()
    (folder / "train.toml").write_text(block("toml").replace("trainers/train.py", f"{place}/train.py"))
    try:
        yield folder / "train.toml"
    finally:
        shutil.rmtree(folder)


def judged(folder: Path, claim: str, *options: str) -> tuple[int, dict[str, str]]:
    """Exit status, and the outcome of every clause."""
    words = ["run", claim, "--device", "cpu", "--evidence", str(folder), "--no-mutants", *options]
    done = harness(ROOT, *words, "--json", "-", home=folder, seconds=300)
    (record,) = json.loads(done.stdout)["records"]
    return done.returncode, {clause["id"]: clause["outcome"] for clause in record["clauses"]}


def test_the_trainer_of_the_guide(trainer: Path, tmp_path: Path) -> None:
    """Every clause of MAXSTEPS is judged, and the finished run can be judged too."""
    (make,) = re.findall(r"python -c \"(.*)\"`", GUIDE)
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    student = ["-P", f"student={tmp_path / 'start.safetensors'}"]
    running = ["--profile", "reduced", "--subject", f"command:{trainer}", *student, "-P", "checkpoint_every=1"]
    status, outcomes = judged(tmp_path / "one", "F-DISTILL-MAXSTEPS-001", *running)
    assert (status, set(outcomes.values())) == (0, {"PASS"}), outcomes

    run = tmp_path / "tuesday"
    words = [str(trainer.with_name("train.py")), "--student", str(tmp_path / "start.safetensors"), "--out", str(run)]
    said = subprocess.run([sys.executable, *words, "--every", "1"], check=True, capture_output=True, text=True).stdout
    (run / "train.log").write_text(said)
    over = ["--profile", "reduced", "--subject", f"recorded:{trainer}", "-P", f"dir={run}", "-P", "steps=50", *student]
    status, outcomes = judged(tmp_path / "two", "F-DISTILL-CKPT-EXPORT-001", *over, "--accept", "not-visible")
    assert outcomes.pop("resolved.device") == "NOT_MEASURED"  # its own word, which only the policy accepts
    assert (status, set(outcomes.values())) == (0, {"PASS"}), outcomes
    (run / "ckpt-step-000050.safetensors").unlink()
    status, outcomes = judged(tmp_path / "three", "F-DISTILL-CKPT-EXPORT-001", *over, "--accept", "not-visible")
    assert (status, "FAIL" in outcomes.values()) == (3, False), "a file that could be there is not accepted"


def test_the_tables_of_the_guide() -> None:
    """The tables have every placeholder and every event, with its values."""
    assert {f"{{{name}}}" for name in GIVEN} <= rows("placeholder").keys()
    events = {str(kind): sorted(_VALUES.get(kind, ["step"] if kind is EventKind.STEP else ())) for kind in EventKind}
    told = {kind: sorted(set(names) - {"loss"}) for kind, names in rows("event").items()}
    assert told == events
