"""A night of the workflow on GitHub's own machine, by the script and the inputs that the workflow has.

The evidence is this repository's. A verdict is another than the expected one if the contract no longer knows a FAIL, or
if it states one where the claim holds: what a contract states of refutations makes no evidence stale.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from tests.ci.test_claims_of_hosts import called, hosts
from tests.ci.test_run_script import Job
from tests.cli.harness_command import COMMAND

ROOT = Path(__file__).parents[2]
REFUTED = "F-PD-SHARD-FLOOR-001"
HOLDS = {
    "F-HSTU-MFU-SUBSTR-001": "peak_errors[].maximum",
    "F-HSTU-DISPATCH-001": "wrong_operators[].maximum",
}
"""Claims that pass on a CPU, one DISCHARGED and one PARTIAL, each with a clause that could refute it."""
FILES = ("pyproject.toml", "contracts", "falsifiers", "trainers")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the claims, and of the evidence of a few."""
    if platform.machine() != "x86_64":
        pytest.skip("the evidence is that of a CPU of x86-64; elsewhere, the claims would run")
    copy = tmp_path_factory.mktemp("night") / "project"
    copy.mkdir()
    for name in FILES:
        copying = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copying(ROOT / name, copy / name)
    for claim in (REFUTED, *HOLDS):
        for bundle in (ROOT / "evidence").glob(f"*/{claim}/*"):
            shutil.copytree(bundle, copy / bundle.relative_to(ROOT))
    return copy


def night(project: Path, claims: tuple[str, ...]) -> tuple[int, str]:
    """The exit status and the log of a night; the claims stand in place of `--all`."""
    (host,) = [given for name, given in hosts() if name == "cpu"]
    job = Job(project)
    (job.temporary / "log").unlink(missing_ok=True)
    job.command("harness", f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    asked = host["claims"].replace("--all", " ".join(claims))
    fail_on = called("nightly.yml")["fail-on"]
    status = job.run("harness-run/run.sh", CLAIMS=asked, OPTIONS=host["options"], FAIL_ON=fail_on)
    return status, job.log


def otherwise(contract: str, clause: str) -> str:
    """A contract's text with another `refuted`: with this clause, or without any. Digests see each other letter."""
    if not clause:
        return re.sub(r',\s*"refuted": \[\{.*?\}\]', "", contract, flags=re.DOTALL)
    stated = {
        "since": "2026-11-23",
        "device": "CPU",
        "profile": "full",
        "clauses": [clause],
        "explanation": "It is false.",
    }
    return contract.replace('"', f'"refuted": [{json.dumps(stated)}], "', 1)


def test_a_night_over_the_present_evidence_is_green(project: Path) -> None:
    """Nothing is due, the FAIL is known, and the gate finds no other."""
    status, log = night(project, (REFUTED, *HOLDS))
    assert (status, "nothing is stale" in log, "1 known, 0 new" in log) == (ExitStatus.PASS, True, True), log


@pytest.mark.parametrize(("claim", "clause"), [(REFUTED, ""), *HOLDS.items()])
def test_a_night_is_red_once_a_verdict_is_another(project: Path, claim: str, clause: str) -> None:
    """The gate that follows the run of the other claims says so."""
    (path,) = project.glob(f"contracts/*/{claim}/contract.json")
    before = path.read_text()
    path.write_text(otherwise(before, clause))
    try:
        status, log = night(project, tuple({REFUTED, *HOLDS} - {claim}))
        assert (status, "nothing is stale" in log, "1 new" in log) == (ExitStatus.FAIL, True, True), log
    finally:
        path.write_text(before)
