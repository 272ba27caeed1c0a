"""`harness history` and `harness diff` as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import complaint, environment, harness
from tests.contracts import healthy, write_project
from tests.evidence.factory import sealed

CLAIM = "F-DEMO-SORT-001"
PLACE = f"evidence/DEMO-1/{CLAIM}"
LARGEST = (3.0, 3.1, 2.9, 3.0, 3.05, 2.95, 9.5)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with seven runs of its claim. The last one measured another value."""
    write_project(tmp_path)
    for number, largest in enumerate(LARGEST):
        sealed(
            tmp_path,
            run=f"run-{number}",
            started=f"2026-11-{10 + number}T20:15:03+00:00",
            measurements=healthy(largest=largest),
        )
    (tmp_path / "contracts" / f"{CLAIM}.json").unlink()  # the factory's own, beside the project's
    return tmp_path


def test_the_newest_beside_those_before_it(project: Path) -> None:
    """There is one table per series and one line per measurement. Values outside the noise are marked."""
    done = harness(project, "history", CLAIM)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "CPU a CPU, reduced profile, subject falsifiers.demo.sorting:Sorter: 7 runs, 2026-11-10 to 2026-11-16"
    )
    cells = {line.split()[0]: " ".join(line.split()) for line in lines[1:] if line.strip()}
    assert cells["largest"] == "largest 9.5 3 ± 0.074 of 6 above the noise"
    assert cells["smallest"] == "smallest 1 1 ± 0 of 6 within the noise"
    assert cells["trial_seconds"].startswith("trial_seconds 1.25 s")
    assert lines[-1] == f"7 runs of {CLAIM}"


def test_a_code_that_passed_and_failed_is_flaky(project: Path, snapshot: SnapshotAssertion) -> None:
    """The line gives the interval of the share that fails. The FAIL is shown elsewhere as before."""
    sealed(project, run="run-7", started="2026-11-17T20:15:03+00:00", measurements=healthy(returned=2))
    done = harness(project, "history", CLAIM, "--evidence", "evidence")
    assert [line for line in done.stdout.splitlines() if line.startswith("same code")] == snapshot


def test_one_measurement_run_by_run(project: Path, snapshot: SnapshotAssertion) -> None:
    """Each run is judged against those before it."""
    lines = harness(project, "history", CLAIM, "--measurement", "largest").stdout.splitlines()
    assert lines[0].startswith("largest on CPU a CPU")
    assert [" ".join(line.split()) for line in lines[2:9:3]] == [
        "2026-11-10 20:15 PASS cccccccccc 3",
        "2026-11-13 20:15 PASS cccccccccc 3",
        "2026-11-16 20:15 PASS cccccccccc 9.5 above the noise",
    ]
    done = harness(project, "history", CLAIM, "--measurement", "larges")
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot


def test_for_machines(project: Path) -> None:
    """One object per measurement and run."""
    rows = [json.loads(line) for line in harness(project, "history", CLAIM, "--json").stdout.splitlines()]
    assert len(rows) == 7 * 5
    assert [row["value"] for row in rows if row["measurement"] == "largest"] == list(LARGEST)
    told = harness(project, "history", CLAIM, "--json", "--measurement", "largest").stdout.splitlines()
    assert [json.loads(line)["shift"] for line in told] == ["too few"] * 5 + ["within", "above"]


def test_runs_in_which_nothing_ran(project: Path, snapshot: SnapshotAssertion) -> None:
    """Such runs are counted, but they are neither a value nor a side of a comparison."""
    idle = {"measurements": {}, "trial_seconds": 0.0, "started": "2026-11-20T20:15:03+00:00"}
    sealed(project, run="run-idle", **idle)
    done = harness(project, "history", CLAIM)
    lines = {line.split()[0]: " ".join(line.split()) for line in done.stdout.splitlines() if line.strip()}
    assert lines["trial_seconds"].startswith("trial_seconds 1.25 s")
    assert done.stdout.endswith(f"8 runs of {CLAIM}; 1 measured nothing\n")
    (project / "contracts" / f"{CLAIM}.json").unlink()
    done = harness(project, "diff", CLAIM)
    assert f"B {PLACE}/run-6" in done.stdout
    assert complaint(done, project) == snapshot


def test_no_runs(project: Path) -> None:
    """A claim that never ran, a device that was never used, and an unknown claim have their own messages."""
    done = harness(project, "history", CLAIM, "--device", "GB10")
    assert (done.returncode, done.stdout) == (ExitStatus.NOT_MEASURED, f"0 runs of {CLAIM}\n")
    assert harness(project, "history", CLAIM, "--evidence", "nowhere").returncode == ExitStatus.REFUSED
    done = harness(project, "history", "F-DEMO-SORTS-001")
    assert done.returncode == ExitStatus.REFUSED
    assert f"did you mean {CLAIM}?" in done.stderr


def test_the_newest_run_against_the_one_before(project: Path) -> None:
    """Runs are named by claim, by run or by folder. The exit status is no verdict."""
    by_claim = harness(project, "diff", CLAIM)
    assert (by_claim.returncode, by_claim.stderr) == (0, "")
    assert by_claim.stdout == harness(project, "diff", "run-5", "run-6").stdout
    assert by_claim.stdout == harness(project, "diff", f"{PLACE}/run-5", f"{PLACE}/run-6").stdout
    lines = [" ".join(line.split()) for line in by_claim.stdout.splitlines()]
    assert lines[:3] == [CLAIM, f"A {PLACE}/run-5", f"B {PLACE}/run-6"]
    assert "largest 2.95 9.5 +222.0% 3 ± 0.074 of 6 above the noise" in lines
    assert "and 4 equal to the last digit" in lines
    assert "contract: the same" in lines
    assert json.loads(harness(project, "diff", "--json", CLAIM).stdout)["measurements"][0]["shift"] == "above"


def test_bundles_from_elsewhere(
    project: Path, tmp_path_factory: pytest.TempPathFactory, snapshot: SnapshotAssertion
) -> None:
    """No project is needed. The runs in the folder of B are then the earlier ones."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    place = project / PLACE
    done = harness(elsewhere, "diff", str(place / "run-0"), str(place / "run-6"))
    assert done.returncode == 0
    assert "3 ± 0.074 of 6  above the noise" in done.stdout
    done = harness(elsewhere, "diff", CLAIM)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot


@pytest.mark.parametrize(
    "arguments",
    [(), ("run-1", "run-2", "run-3"), ("run-1", "run-99"), ("run-1", "contracts"), ("F-DEMO-SORTS-001",)],
    ids=" ".join,
)
def test_what_cannot_be_compared(project: Path, arguments: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    """Runs that cannot be compared are refused with the remedy."""
    done = harness(project, "diff", *arguments)
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot


def test_different_claims_are_not_compared(project: Path, snapshot: SnapshotAssertion) -> None:
    """Runs of different claims are not compared, and neither are a run and nothing."""
    other = {"id": "F-DEMO-OTHER-001", "run": "other"}
    bundle = sealed(project, **other)
    done = harness(project, "diff", f"{PLACE}/run-1", str(bundle))
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, project) == snapshot


@pytest.mark.parametrize("arguments", [["history", CLAIM], ["diff", CLAIM]])
def test_without_pandas(project: Path, arguments: list[str]) -> None:
    """Both commands say what to install. Other commands do not need pandas."""
    hide = (
        "import sys, importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pandas' else find(name, *rest)\n"
        "sys.modules['pandas'] = None\n"
        "from harness.cli import main\n"
        "main()\n"
    )
    for words, status in ((arguments, ExitStatus.REFUSED), (["status"], ExitStatus.PASS)):
        done = subprocess.run(
            [sys.executable, "-c", hide, *words], cwd=project, env=environment(project), capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
    done = subprocess.run(
        [sys.executable, "-c", hide, *arguments], cwd=project, env=environment(project), capture_output=True, text=True
    )
    assert "[analysis]'" in done.stderr
