"""`harness show ID` as a user types it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness, imported
from tests.cli.toy_claim import CLAIM
from tests.contracts import IDENTIFIER, document, write_calibrated, write_project
from tests.evidence.factory import sealed
from tests.execution import projects


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one claim, which requires a GPU and measures time."""
    full = {"requires": {"device": "cuda", "memory_gib": 4000}, "parameters": {"steps": 3}, "limits": {"seconds": 90}}
    profiles = {**document()["profiles"], "full": full}
    return write_project(tmp_path, document(profiles=profiles, lease="exclusive", target={"device": "NVIDIA GB10"}))


def test_the_page(project: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the claim, its sources, what runs, what would refute it, the mutants, and how to run it."""
    monkeypatch.setenv("COLUMNS", "100")
    done = harness(project, "show", IDENTIFIER)
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    text = done.stdout.replace(str(project), "PROJECT")
    # These parts depend on the machine that runs the test.
    text = re.sub(r"(reduced profile on the CPU) \([^)]*\)", r"\1 (MACHINE)", text)
    text = re.sub(r"(?s)not here: .*?(?=\n    at most)", "not here: …", text)
    text = re.sub(r"  with --device .*\n", "", text)
    assert text == snapshot


def test_how_long_it_took_the_last_time(tmp_path: Path) -> None:
    """The evidence has the seconds of the subject's trial and of the whole run with mutants."""
    projects.write_project(tmp_path)
    assert "the subject's took" not in harness(tmp_path, "show", CLAIM).stdout
    assert harness(tmp_path, "run", CLAIM).returncode == ExitStatus.PASS
    text = " ".join(harness(tmp_path, "show", CLAIM).stdout.split())
    assert re.search(r" a trial; the subject's took [\d.]+ s, all of them [\d.]+ s, on CPU ", text)


def test_what_a_measurement_means(tmp_path: Path) -> None:
    """The page describes each measurement, because a bound alone does not explain it."""
    contract = document()
    contract["observation"]["properties"]["values"]["description"] = "What the sorter returned."
    write_project(tmp_path, contract)
    lines = harness(tmp_path, "show", IDENTIFIER).stdout.splitlines()
    at = lines.index("      What the sorter returned.")
    assert lines[at - 1].split() == ["values", "at", "least", "1", "item"]


def test_by_what_margin_a_mutant_dies(tmp_path: Path) -> None:
    """The page has the ratios of the calibration, by profile."""
    mutant = {**document()["mutants"][0], "violates": ["ordered"]}
    write_project(tmp_path)
    write_calibrated(tmp_path, document(mutants=[mutant]), {"reduced": {mutant["id"]: {"ordered": 37.25}}})
    done = harness(tmp_path, "show", IDENTIFIER)
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    assert "37.2 times the threshold of ordered" in done.stdout


def test_notes_stand_below_the_claim(project: Path) -> None:
    """The page ends with the Markdown file next to the contract, unchanged."""
    notes = project / "contracts" / "demo" / IDENTIFIER / "notes.md"
    assert "Notes" not in harness(project, "show", IDENTIFIER).stdout.splitlines()
    notes.write_text("# Sorting\n\nWhy *three* items.\n", encoding="utf-8")
    lines = harness(project, "show", IDENTIFIER).stdout.splitlines()
    at = lines.index("Notes")
    assert lines[at + 1 : at + 4] == ["  # Sorting", "", "  Why *three* items."]


def test_a_claim_without_rules_is_refuted_by_its_bounds(tmp_path: Path) -> None:
    """The section has the built-in clauses, so it is never empty."""
    contract = document()
    contract["rules"] = []
    contract["mutants"][0]["violates"] = ["returned.minimum"]
    contract["observation"]["properties"]["returned"]["minimum"] = 1
    write_project(tmp_path, contract)
    text = harness(tmp_path, "show", IDENTIFIER).stdout
    section = text.partition("What would refute it\n")[2].partition("\n\n")[0]
    assert "subject.completes, resolved.device, resolved.steps" in " ".join(section.split())


def test_json_is_the_contract(project: Path) -> None:
    """The JSON is the text of the contract's file."""
    shown = json.loads(harness(project, "show", IDENTIFIER, "--json").stdout)
    assert shown == json.loads((project / "contracts" / "demo" / IDENTIFIER / "contract.json").read_text())


def test_the_code_of_the_claim_is_not_run(project: Path) -> None:
    """A contract may come from a stranger, so `show` imports neither its falsifier nor a framework."""
    (project / "falsifiers" / "demo" / "sorting.py").write_text(
        "falsify = Sorter = Forgetful = None\nraise SystemExit('it ran')\n"
    )
    done, modules = imported(project, "show", IDENTIFIER)
    assert (done.returncode, modules & {"torch", "numpy", "pandas", "falsifiers"}) == (ExitStatus.PASS, set())


def test_the_log_of_the_newest_run_and_of_a_bundle(tmp_path: Path) -> None:
    """Both say what the subject's trial did, beginning with where the log is."""
    write_project(tmp_path)
    refused = harness(tmp_path, "show", "F-DEMO-SORT-001", "--log")
    assert (refused.returncode, "has no bundle" in refused.stderr) == (ExitStatus.REFUSED, True)
    older, newest = (
        sealed(tmp_path, run=f"2026-11-20T20150{second}Z-cpu-3f2a9c", started=f"2026-11-20T20:15:0{second}+00:00")
        for second in (3, 4)
    )
    for argument, bundle in (("F-DEMO-SORT-001", newest), (str(older), older)):
        done = harness(tmp_path, "show", argument, "--log")
        assert done.returncode == ExitStatus.PASS, done.stderr
        assert done.stdout.splitlines() == [str(bundle), *(bundle / "trials.log").read_text().splitlines()]
    (newest / "trials.log").unlink()
    os.mkfifo(newest / "trials.log")
    assert harness(tmp_path, "show", "F-DEMO-SORT-001", "--log").returncode == ExitStatus.REFUSED
