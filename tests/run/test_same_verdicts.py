"""Claims have the same results one trial at a time and scheduled, in real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.contracts import document, write_project
from tests.run.same_verdicts import SERIAL, differences, outcomes

HEALTHY, SHORT, FORGETFUL = (f"falsifiers.demo.sorting:{name}" for name in ("Healthy", "Short", "Forgetful"))
SUBJECTS = "\n\nclass Healthy(Sorter):\n    pass\n\n\nclass Short(Forgetful):\n    pass\n"
MUTANTS = [
    {"id": name, "subject": subject, "violates": ["nothing-lost"], "defect": "drops the first item"}
    for name, subject in (("first", FORGETFUL), ("second", FORGETFUL), ("none", HEALTHY))
]
PROFILES = document()["profiles"]
CLAIMS = {
    "F-DEMO-FAIL-001": {"subject": SHORT, "mutants": MUTANTS[:1]},
    "F-DEMO-PASS-001": {"mutants": MUTANTS[:2]},
    "F-DEMO-TIME-001": {"mutants": MUTANTS[:2], "lease": "exclusive"},
    "F-DEMO-VOID-001": {"mutants": MUTANTS[1:]},
    "F-DEMO-CUDA-001": {"profiles": {"full": {**PROFILES["full"], "requires": {"device": "any", "memory_gib": 1e6}}}},
}
VERDICTS = {
    "F-DEMO-CUDA-001": "NOT_MEASURED",
    "F-DEMO-FAIL-001": "FAIL",
    "F-DEMO-PASS-001": "PASS",
    "F-DEMO-TIME-001": "PASS",
    "F-DEMO-VOID-001": "VOID",
}


def test_serial_and_scheduled_runs_find_the_same(tmp_path: Path) -> None:
    """Every verdict, clause and fate of a mutant is the same, for claims with every verdict."""
    write_project(tmp_path, *(document(id=name, **changes) for name, changes in CLAIMS.items()))
    for package in ("falsifiers", "falsifiers/demo"):  # or Python would find those of this repository first
        (tmp_path / package / "__init__.py").touch()
    with (tmp_path / "falsifiers" / "demo" / "sorting.py").open("a") as module:
        module.write(SUBJECTS)
    found: list[dict[str, Any]] = []
    for way in (SERIAL, ("-j", "3")):
        done = harness(tmp_path, "run", "--all", *way, "--json", "run.json")
        assert done.returncode == ExitStatus.FAIL, done.stdout + done.stderr
        found.append(outcomes(json.loads((tmp_path / "run.json").read_text())["records"]))
    assert {claim: parts["verdict"] for claim, parts in sorted(found[0].items())} == VERDICTS
    assert found[0]["F-DEMO-VOID-001"]["mutant none"] == "survived"
    assert differences(*found) == {}


def test_a_difference_is_named() -> None:
    """A claim that only one run has is named too."""
    alone = {"F-A": {"verdict": "PASS", "mutant m": "killed"}, "F-B": {"verdict": "PASS"}}
    other = {"F-A": {"verdict": "VOID", "mutant m": "survived"}}
    assert differences(alone, other) == {
        "F-A": ["mutant m: killed, survived", "verdict: PASS, VOID"],
        "F-B": ["verdict: PASS, None"],
    }
