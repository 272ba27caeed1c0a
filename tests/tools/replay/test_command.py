"""Searching falsifiers and `harness replay`, as a user sees them."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.execution.lease import CPU, lease
from tests.cli.folders import contents
from tests.cli.harness_command import complaint, harness, start
from tests.cli.outputs import assert_follows_schema
from tests.evidence.factory import mutant_lines, reseal
from tests.searching import CLAIM, CONTRACT, write_searching_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project with the searching falsifier."""
    return write_searching_project(tmp_path)


def run(folder: Path, *arguments: str) -> tuple[int, Path]:
    """Run the claim; return its exit status and its newest bundle."""
    done = harness(folder, "run", CLAIM, *arguments)
    bundles = sorted((folder / "evidence" / "TOY-2" / CLAIM).iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return done.returncode, bundles[-1]


@pytest.fixture(scope="module")
def refuted_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after a run whose subject overflows, without mutants. Tests copy it."""
    folder = write_searching_project(tmp_path_factory.mktemp("refuted"))
    status, _ = run(folder, "-P", "how=overflows", "--no-mutants")
    assert status == ExitStatus.FAIL
    return folder


@pytest.fixture
def refuted(refuted_once: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of that project, and its only bundle."""
    folder = shutil.copytree(refuted_once, tmp_path, dirs_exist_ok=True)
    (bundle,) = (folder / "evidence" / "TOY-2" / CLAIM).iterdir()
    return folder, bundle


def counterexample(bundle: Path, mutant: str = "") -> dict[str, Any]:
    """The counterexample of the subject or of a mutant."""
    if mutant:
        document: dict[str, Any] = mutant_lines(bundle)[mutant]["counterexample"]
    else:
        document = json.loads((bundle / "counterexample.json").read_text())
    return document


def test_a_search_that_finds_nothing(folder: Path, snapshot: SnapshotAssertion) -> None:
    """The claim is PASS with every case measured.

    Each mutant's counterexample is minimal, kept, and can be replayed.
    """
    status, bundle = run(folder)
    assert status == ExitStatus.PASS
    measured = json.loads((bundle / "observation.json").read_text())["measurements"]
    assert (measured["cases"], len(measured["errors"])) == (60, 60)
    assert not (bundle / "artifacts").exists()
    overflow = counterexample(bundle, "overflows")
    assert (overflow["clauses"], overflow["shrunk"]) == (["errors[].maximum"], False)
    assert sum(overflow["case"].values()) >= 256
    death = counterexample(bundle, "dies-of-large-numbers")
    assert death["clauses"] == ["subject.completes"]
    assert max(death["case"].values()) > 300
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    assert not (folder / ".hypothesis").exists()
    for mutant in ("overflows", "dies-of-large-numbers"):  # each runs against its mutant
        assert harness(folder, "replay", str(bundle), "--mutant", mutant).returncode == ExitStatus.FAIL
    refused = harness(folder, "replay", str(bundle))
    assert refused.returncode == ExitStatus.REFUSED
    assert complaint(refused, folder) == snapshot
    assert harness(folder, "replay", str(bundle), "--mutant", "no-such").returncode == ExitStatus.REFUSED


def test_equal_seeds_try_equal_cases(refuted: tuple[Path, Path]) -> None:
    """Equal seeds find the same counterexample. Another seed tries other cases."""
    overflows = ("-P", "how=overflows", "--no-mutants")
    folder, first = refuted
    again = run(folder, *overflows)[1]
    assert counterexample(first) == counterexample(again)
    measured = [json.loads((bundle / "observation.json").read_text())["measurements"] for bundle in (first, again)]
    assert measured[0] == measured[1]
    other = run(folder, *overflows, "--seed", "1")[1]
    assert json.loads((other / "observation.json").read_text())["measurements"] != measured[0]


def test_a_counterexample_is_run_again(folder: Path, snapshot: SnapshotAssertion) -> None:
    """The case refutes the claim until the subject is repaired. Replaying writes nothing."""
    done = harness(folder, "run", CLAIM, "-P", "how=overflows")
    assert done.returncode == ExitStatus.FAIL
    (bundle,) = (folder / "evidence" / "TOY-2" / CLAIM).iterdir()
    assert f"harness replay {bundle.relative_to(folder)}" in done.stdout
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    before = contents(folder)
    still = harness(folder, "replay", str(bundle))
    assert still.returncode == ExitStatus.FAIL, still.stdout + still.stderr
    assert still.stdout.replace(bundle.name, "RUN") == snapshot
    with lease(CPU, mode="exclusive", holder="F-OTHER-001", wait_seconds=0, directory=folder / "leases"):
        waiting = start(folder, "replay", str(bundle))
        assert waiting.stdout is not None
        line = waiting.stdout.readline()
        os.killpg(waiting.pid, signal.SIGINT)
        output, _ = waiting.communicate(timeout=30)
    assert line.startswith("waiting for F-OTHER-001 (pid ")
    assert (waiting.returncode, output) == (ExitStatus.INTERRUPTED, f"harness: interrupted while {line}")
    repaired = harness(folder, "replay", str(bundle), "--subject", "toy.adding:Repaired")
    assert repaired.returncode == ExitStatus.PASS, repaired.stdout + repaired.stderr
    assert "toy.adding:Repaired" in repaired.stdout
    assert harness(folder, "replay", str(bundle), "--subject", "toy.adding:NoFloats").returncode == ExitStatus.FAIL
    after = {
        name: content for name, content in contents(folder).items() if name.split("/")[0] not in ("cache", "leases")
    }
    assert after == {name: content for name, content in before.items() if name.split("/")[0] not in ("cache", "leases")}


def test_exactly_the_case_is_run(refuted: tuple[Path, Path]) -> None:
    """Only the case in the file runs."""
    folder, bundle = refuted
    done = harness(folder, "replay", str(bundle), "--json", "--subject", "toy.adding:StillWrong")
    document = json.loads(done.stdout)
    assert_follows_schema("replay", document)
    assert (done.returncode, document["outcome"]) == (ExitStatus.FAIL, "FAIL")
    assert document["counterexample"] == counterexample(bundle)
    (clause,) = [clause for clause in document["clauses"] if clause["id"] == "errors[].maximum"]
    assert clause["value"] == 1  # by which this subject is off on every case


def test_a_counterexample_of_another_subject(folder: Path, snapshot: SnapshotAssertion) -> None:
    """It runs against the subject that it was found on. If that one is gone, another must be named."""
    status, bundle = run(folder, "--subject", "toy.adding:StillWrong", "--no-mutants")
    assert status == ExitStatus.FAIL
    still = harness(folder, "replay", str(bundle))
    assert still.returncode == ExitStatus.FAIL, still.stdout + still.stderr
    assert "now  toy.adding:StillWrong" in still.stdout
    assert harness(folder, "replay", str(bundle), "--subject", CONTRACT["subject"]).returncode == ExitStatus.PASS
    module = folder / "toy" / "adding.py"
    module.write_text(module.read_text().replace("class StillWrong", "class Renamed"))
    gone = harness(folder, "replay", str(bundle))
    assert gone.returncode == ExitStatus.REFUSED
    assert complaint(gone, folder) == snapshot
    assert gone.stderr.endswith("does not define StillWrong; name a subject with --subject\n")


@pytest.mark.parametrize(
    ("how", "error"),
    [("raises", "ArithmeticError: token=[masked] too large"), ("dies", ""), ("hangs", ""), ("nan", "")],
)
def test_cases_on_which_the_subject_fails(folder: Path, how: str, error: str) -> None:
    """The subject raises, crashes, hangs or returns NaN.

    The case is kept. If the subject raises, the case is minimal.
    """
    (profile,) = CONTRACT["profiles"].values()
    write_searching_project(
        folder, profiles={"reduced": {**profile, "limits": {"seconds": 5 if how == "hangs" else 60}}}
    )
    status, bundle = run(folder, "-P", f"how={how}", "--no-mutants")
    assert status == ExitStatus.FAIL
    kept = counterexample(bundle)
    assert kept["clauses"] == (
        ["errors[].maximum", "errors[].minimum", "errors[].type"] if how == "nan" else ["subject.completes"]
    )
    if how == "raises":
        assert (sum(kept["case"].values()), kept["error"], kept["shrunk"]) == (201, error, True)
        assert "hunter2" not in "".join(path.read_text() for path in bundle.rglob("*") if path.is_file())
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    assert harness(folder, "replay", str(bundle)).returncode == ExitStatus.FAIL


def test_a_subject_that_does_not_repeat(folder: Path) -> None:
    """The run and the bundle say so."""
    done = harness(folder, "run", CLAIM, "-P", "how=is wrong once", "--no-mutants")
    assert done.returncode == ExitStatus.FAIL, done.stdout + done.stderr
    assert "It does not repeat" in done.stdout
    (bundle,) = (folder / "evidence" / "TOY-2" / CLAIM).iterdir()
    assert counterexample(bundle)["repeats"] is False
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


def test_what_ends_the_search_for_a_simpler_case_is_not_blamed(folder: Path) -> None:
    """The process ends at its first case after the sixty of the search. The case that was found stands."""
    status, bundle = run(folder, "-P", "how=is wrong and dies later", "--no-mutants")
    assert status == ExitStatus.FAIL
    clauses = json.loads((bundle / "record.json").read_text())["clauses"]
    assert [clause["id"] for clause in clauses if clause["outcome"] == "FAIL"] == ["errors[].maximum"]
    kept = counterexample(bundle)
    assert (kept["clauses"], kept["tried"], sum(kept["case"].values()) > 255) == (["errors[].maximum"], 60, True)
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


def test_a_falsifier_that_fails_leaves_no_counterexample(folder: Path) -> None:
    """The falsifier's own exception is not a counterexample, and no simpler case is searched for."""
    status, bundle = run(folder, "-P", "how=falsifier raises", "--no-mutants")
    assert status == ExitStatus.NOT_MEASURED
    assert not (bundle / "artifacts").exists()
    assert "KeyError: 'mine'" in (bundle / "observation.json").read_text()


def test_a_strategy_that_cannot_draw_as_many(folder: Path) -> None:
    """A search with fewer cases than requested is not enough for the claim."""
    status, bundle = run(folder, "-P", "largest=2", "--no-mutants")
    assert status == ExitStatus.NOT_MEASURED
    ending = json.loads((bundle / "observation.json").read_text())["ending"]
    assert (ending["kind"], re.findall(r" (\d+)", ending["reason"])) == ("falsifier fault", ["9", "60"])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"falsifier": "toy.adding:Adder"}, id="falsifier"),
        pytest.param(
            {
                "observation": {
                    "type": "object",
                    "properties": {"cases": {"type": "integer", "minimum": 1, "x-source": "-"}},
                },
                "mutants": [{**CONTRACT["mutants"][0], "violates": ["cases.minimum"]}],
            },
            id="clause",
        ),
        pytest.param({"profiles": {"full": CONTRACT["profiles"]["reduced"]}}, id="profile"),
        pytest.param({"id": "F-TOY-OTHER-001"}, id="id"),
    ],
)
def test_a_claim_that_has_changed_too_much(
    refuted: tuple[Path, Path], changes: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """It is refused with the reason."""
    folder, bundle = refuted
    if "id" in changes:
        (folder / "contracts" / CLAIM).rename(folder / "contracts" / "F-TOY-OTHER-001")
    else:
        write_searching_project(folder, **changes)
    done = harness(folder, "replay", str(bundle))
    assert done.returncode == ExitStatus.REFUSED, done.stdout
    assert complaint(done, folder) == snapshot


def test_a_changed_threshold_alone_is_allowed(refuted: tuple[Path, Path]) -> None:
    """The case is judged by the new threshold."""
    folder, bundle = refuted
    observation = copy.deepcopy(CONTRACT["observation"])
    observation["properties"]["errors"]["items"]["maximum"] = 1000
    write_searching_project(folder, observation=observation)
    assert harness(folder, "replay", str(bundle)).returncode == ExitStatus.PASS


def test_an_unsound_bundle_is_refused(refuted: tuple[Path, Path], snapshot: SnapshotAssertion) -> None:
    """A bundle is also unsound if its counterexample has more than was measured."""
    folder, bundle = refuted
    place = bundle / "counterexample.json"
    place.write_text(json.dumps({**counterexample(bundle), "measurements": {"errors": 0.0}}))
    assert " TAMPERED counterexample.json;" in harness(folder, "replay", str(bundle)).stderr
    reseal(bundle)
    done = harness(folder, "replay", str(bundle))
    assert done.returncode == ExitStatus.REFUSED
    assert complaint(done, folder) == snapshot


def test_a_folder_of_bundles(refuted: tuple[Path, Path], snapshot: SnapshotAssertion) -> None:
    """The message asks for one bundle."""
    folder, _ = refuted
    done = harness(folder, "replay", "evidence")
    assert (done.returncode, done.stderr) == (ExitStatus.REFUSED, "harness: evidence holds 1 bundle; name one\n")
    assert complaint(harness(folder, "replay", "contracts"), folder) == snapshot


def test_where_the_case_cannot_be_run(refuted: tuple[Path, Path], snapshot: SnapshotAssertion) -> None:
    """If the device does not exist, nothing is known: exit status 3."""
    folder, bundle = refuted
    done = harness(folder, "replay", str(bundle), "--device", "cuda:77")
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert done.stdout.splitlines()[-1] == snapshot
