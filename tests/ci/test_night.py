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

from harness.base.vocabulary import ExitStatus, Status
from harness.contract.project import Project
from harness.evidence.claim_status import NOTHING
from harness.evidence.survey import Survey
from tests.ci.test_claims_of_hosts import called, hosts
from tests.ci.test_run_script import Job
from tests.cli.harness_command import COMMAND

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "contracts", "falsifiers", "trainers")
CLASS = "CPU x86_64"
KINDS = (Status.FALSIFIED, Status.DISCHARGED, Status.PARTIAL)


@pytest.fixture(scope="module")
def claims() -> dict[Status, tuple[str, str]]:
    """By status, a claim whose evidence of such a CPU covers the code in full, and a clause that could refute it."""
    if platform.machine() != "x86_64":
        pytest.skip("the evidence is that of a CPU of x86-64; elsewhere, the claims would run")
    project = Project.find(ROOT)
    clauses = {contract.id: contract.clauses[0].id for contract in project.load_all()[0]}
    found: dict[Status, tuple[str, str]] = {}
    for claim in Survey.of(project).claims:
        cell = next((cell for device, cell in claim.cells.items() if str(device) == CLASS), NOTHING)
        if cell.decided_by and cell.decided_by.profile == "full":
            found.setdefault(cell.status, (claim.id, clauses[claim.id]))
    return {status: found[status] for status in KINDS if status in found}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, claims: dict[Status, tuple[str, str]]) -> Path:
    """A copy of all claims, and of the evidence of the chosen ones."""
    copy = tmp_path_factory.mktemp("night") / "project"
    copy.mkdir()
    for name in FILES:
        copying = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copying(ROOT / name, copy / name)
    for claim, _ in claims.values():
        for bundle in (ROOT / "evidence").glob(f"*/{claim}/*"):
            shutil.copytree(bundle, copy / bundle.relative_to(ROOT))
    return copy


def night(project: Path, claims: list[str]) -> tuple[int, str]:
    """The exit status and the log of a night; the claims stand in place of `--all` and what it leaves out."""
    (host,) = [given for name, given in hosts() if name == "cpu"]
    job = Job(project)
    (job.temporary / "log").unlink(missing_ok=True)
    job.command("harness", f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    selection = re.sub(r" --except \S+", "", host["claims"]).replace("--all", " ".join(claims))
    fail_on = called("nightly.yml")["fail-on"]
    status = job.run("harness-run/run.sh", CLAIMS=selection, OPTIONS=host["options"], FAIL_ON=fail_on)
    return status, job.log


def otherwise(contract: str, clause: str) -> str:
    """A contract's text with another `refuted`: without any if it has one, else with this clause.

    A digest sees each letter of the rest.
    """
    if '"refuted": [' in contract:
        return re.sub(r',\s*"refuted": \[\{.*?\}\]', "", contract, flags=re.DOTALL)
    stated = {"device": "CPU", "profile": "full", "since": "2026-11-23", "clauses": [clause], "explanation": "False."}
    return contract.replace('"', f'"refuted": [{json.dumps(stated)}], "', 1)


def test_a_night_over_the_present_evidence_is_green(project: Path, claims: dict[Status, tuple[str, str]]) -> None:
    """Nothing is due, the FAIL is known, and the gate finds no other."""
    assert Status.FALSIFIED in claims
    status, log = night(project, [name for name, _ in claims.values()])
    assert (status, "nothing is stale" in log, "1 known, 0 new" in log) == (ExitStatus.PASS, True, True), log


@pytest.mark.parametrize("kind", KINDS)
def test_a_night_is_red_once_a_verdict_is_another(
    project: Path, claims: dict[Status, tuple[str, str]], kind: Status
) -> None:
    """The gate that follows the run of the other claims says so."""
    if kind not in claims:
        pytest.skip(f"no claim is {kind} in full by present evidence")
    claim, clause = claims[kind]
    (path,) = project.glob(f"contracts/*/{claim}/contract.json")
    before = path.read_text()
    path.write_text(otherwise(before, clause))
    try:
        status, log = night(project, [name for name, _ in claims.values() if name != claim])
        assert (status, "nothing is stale" in log, "1 new" in log) == (ExitStatus.FAIL, True, True), log
    finally:
        path.write_text(before)
