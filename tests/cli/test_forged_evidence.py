"""`harness status` and `harness run --stale` with forged bundles and a forged cache: none shows that a claim holds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import ExitStatus
from harness.evidence import index
from tests.cli.harness_command import harness
from tests.contracts import document, write_project
from tests.evidence.factory import rewrite, set_at

CLAIM = "F-DEMO-SORT-001"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two projects of one claim: in `passed`, the subject sorts; in `failed`, it loses an item."""
    folder = tmp_path_factory.mktemp("runs")
    for name, code in (("passed", ExitStatus.PASS), ("failed", ExitStatus.FAIL)):
        root = write_project(folder / name, document(target={"type": "cpu"}))
        for package in ("falsifiers", "falsifiers/demo"):  # or Python would find those of this repository first
            (root / package / "__init__.py").touch()
        if name == "failed":
            module = root / "falsifiers" / "demo" / "sorting.py"
            module.write_text(module.read_text().replace("return sorted(items)\n", "return sorted(items)[1:]\n", 1))
        done = harness(root, "run", CLAIM, "-q")
        assert done.returncode == code, done.stdout + done.stderr
    return folder


@pytest.fixture
def passed(runs: Path, tmp_path: Path) -> Path:
    """A copy of the project with a PASS."""
    return shutil.copytree(runs / "passed", tmp_path / "passed")


@pytest.fixture
def failed(runs: Path, tmp_path: Path) -> Path:
    """A copy of the project with a FAIL."""
    return shutil.copytree(runs / "failed", tmp_path / "failed")


def bundle_of(project: Path) -> Path:
    (bundle,) = (project / "evidence" / "DEMO-1" / CLAIM).iterdir()
    return bundle


def believed(project: Path) -> tuple[int, int, str | None]:
    """The exit statuses of `status --fail-on` and of `run --stale`, and the shown status of the claim."""
    gate = harness(project, "status", "--json", "--fail-on", "falsified,stale,unrun")
    due = harness(project, "run", CLAIM, "--stale", "-q", "--evidence", str(project / "evidence"))
    shown = [claim["status"] for claim in json.loads(gate.stdout)["claims"]]
    return gate.returncode, due.returncode, shown[0]


def test_a_bundle_that_is_sound(passed: Path, failed: Path) -> None:
    """A PASS discharges the claim, and a FAIL refutes it. Neither runs again."""
    assert believed(passed) == (ExitStatus.PASS, ExitStatus.PASS, "DISCHARGED")
    assert believed(failed) == (ExitStatus.FAIL, ExitStatus.FAIL, "FALSIFIED")


def all_pass(record: dict[str, Any]) -> dict[str, Any]:
    """A record in which every clause holds and every mutant is killed."""
    clauses = [{**clause, "outcome": "PASS", "reason": None} for clause in record["clauses"]]
    mutants = [
        {**mutant, "fate": "killed", "failed": mutant["violates"], "reason": None} for mutant in record["mutants"]
    ]
    return {**record, "verdict": "PASS", "reason": None, "proven": True, "clauses": clauses, "mutants": mutants}


FORGERIES: dict[str, Callable[[Path], object]] = {
    "its record says PASS": lambda bundle: rewrite(bundle, "record.json", all_pass),
    "one value of its record": lambda bundle: rewrite(bundle, "record.json", lambda r: {**all_pass(r), "seed": 7}),
    "its contract is easier": lambda bundle: (
        rewrite(bundle, "record.json", all_pass),
        rewrite(bundle, "contract.json", set_at("rules", [])),
    ),
    "it has no mutants": lambda bundle: (
        rewrite(bundle, "record.json", all_pass),
        (bundle / "mutants.jsonl").write_text(""),
    ),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_pass_is_not_believed(failed: Path, forge: Callable[[Path], object]) -> None:
    """The bundle is named and counts for nothing: both commands refuse."""
    forge(bundle_of(failed))
    assert believed(failed) == (ExitStatus.REFUSED, ExitStatus.REFUSED, "UNRUN")
    assert "is unsound" in harness(failed, "status").stderr


def test_a_tampered_pass_is_not_believed(passed: Path) -> None:
    """Measurements that were edited with the manifest contradict the record."""
    rewrite(bundle_of(passed), "observation.json", set_at("measurements", {}))
    assert believed(passed) == (ExitStatus.REFUSED, ExitStatus.REFUSED, "UNRUN")


def test_a_sound_bundle_behind_a_forged_one_counts(failed: Path) -> None:
    """The forged PASS is newer than the sound FAIL, which decides."""
    source = bundle_of(failed)
    forged = source.with_name(f"{source.name}-again")
    shutil.copytree(source, forged)

    def later(record: dict[str, Any]) -> dict[str, Any]:
        started = datetime.fromisoformat(record["started"]) + timedelta(seconds=1)
        return {**all_pass(record), "run": forged.name, "started": started.isoformat()}

    rewrite(forged, "record.json", later)
    assert believed(failed) == (ExitStatus.REFUSED, ExitStatus.REFUSED, "FALSIFIED")


def test_a_forged_index_changes_no_answer(failed: Path) -> None:
    """The rows of the cache say PASS, with a digest that fits. The bundle says FAIL."""
    harness(failed, "status")
    (file,) = (failed / "cache").glob("index-*.json")
    text = file.read_bytes().partition(b"\n")[2]
    forged = text.replace(b"FAIL", b"PASS").replace(b"false", b"true")
    assert forged != text
    file.write_bytes(hashlib.sha256(os.fsencode(index._VERSION) + b"\n" + forged).hexdigest().encode() + b"\n" + forged)
    assert believed(failed) == (ExitStatus.FAIL, ExitStatus.FAIL, "FALSIFIED")
