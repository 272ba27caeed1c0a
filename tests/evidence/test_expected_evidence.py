"""The nightly over the evidence of this repository is green, and red after any one verdict is changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.base.device import DeviceClass
from harness.base.vocabulary import ExitStatus, Status, Verdict, exit_status
from harness.contract import Contract
from harness.contract.contract_annotations import Result, counted, refutation_of
from harness.contract.project import Project
from harness.evidence.claim_status import Cell, ClaimStatus, Stale, statuses
from harness.evidence.index import Entry
from harness.evidence.survey import Survey
from harness.running.stale_selection import Due
from tests.cli.harness_command import harness

ROOT = Path(__file__).parents[2]
REFUTED = "F-PD-SHARD-FLOOR-001"


@pytest.fixture(scope="module")
def survey() -> Survey:
    """The repository's contracts and evidence."""
    return Survey.of(Project.find(ROOT))


def verdict_of(cell: Cell, contract: Contract) -> list[Verdict]:
    """What `harness run --stale` counts for a claim that is not due."""
    return Due((), ((contract, cell),), (), (), ()).standing


def changed(entry: Entry) -> Iterator[Entry]:
    """The entry with another verdict, each as a run could give it."""
    if entry.verdict is Verdict.PASS:
        yield replace(entry, verdict=Verdict.FAIL, failed=("subject.completes",))
        return
    yield replace(entry, verdict=Verdict.PASS, failed=(), proven=True)
    yield replace(entry, failed=entry.failed[1:] or ("another",))
    yield replace(entry, failed=(*entry.failed, "another"))
    yield replace(entry, lived=True)


def outcomes(entry: Entry) -> Iterator[Result]:
    """Every other result that a run of the claim could have."""
    yield Result(Verdict.NOT_MEASURED, (), entry.lived)
    yield Result(Verdict.VOID, (), lived=True)
    yield from (other.result for other in changed(entry))


def decided(claims: tuple[ClaimStatus, ...]) -> Iterator[tuple[str, DeviceClass, Entry]]:
    """Every bundle that decides the status of a claim on a class of device."""
    for claim in claims:
        for device, cell in claim.cells.items():
            if cell.decided_by is not None and cell.status not in (Status.STALE, Status.UNRUN):
                yield claim.id, device, cell.decided_by


def stale_of(survey: Survey, new: Entry, old: Entry) -> Stale:
    """What is stale, with `new` in place of `old`."""
    return lambda entry: survey.stale(old if entry is new else entry)


def test_the_present_evidence_is_as_expected(survey: Survey) -> None:
    assert [claim.id for claim in survey.claims if claim.is_news] == []
    assert any(claim.is_known for claim in survey.claims)


def test_no_stand_in_is_discharged(survey: Survey) -> None:
    stand_ins = {contract.id for contract in survey.contracts if contract.stands_in_for}
    assert stand_ins
    assert [claim.id for claim in survey.claims if claim.id in stand_ins and claim.status is Status.DISCHARGED] == []


def test_any_changed_verdict_is_news(survey: Survey) -> None:
    """A change of a bundle that a newer one of the larger profile answers cannot be news."""
    contracts, now, tried = {contract.id: contract for contract in survey.contracts}, datetime.now(UTC), 0
    entries: dict[str, list[Entry]] = {}
    for entry in survey.contents.entries:
        entries.setdefault(entry.id, []).append(entry)
    for name, device, old in decided(survey.claims):
        for new in changed(old):
            found = [new if entry is old else entry for entry in entries[name]]
            (claim,) = statuses([contracts[name]], found, stale_of(survey, new, old), now)
            assert claim.is_news, (name, str(device), new.verdict, new.failed)
            assert verdict_of(claim.cells[device], contracts[name]) == [Verdict.FAIL]
            tried += 1
    assert tried > len(contracts) // 2


def test_a_night_in_which_every_claim_runs(survey: Survey) -> None:
    """The exit status is green if every run gives what its evidence says, and red if any one gives anything else."""
    stated = {contract.id: contract.refuted for contract in survey.contracts}
    night = [
        (refutation_of(stated[name], str(device), entry.profile), entry)
        for name, device, entry in decided(survey.claims)
    ]
    counts = [counted(refutation, entry.result) for refutation, entry in night]
    assert exit_status(counts) is ExitStatus.PASS
    tried = {
        exit_status([*counts[:index], counted(refutation, result), *counts[index + 1 :]])
        for index, (refutation, entry) in enumerate(night)
        for result in outcomes(entry)
    }
    assert tried == {ExitStatus.FAIL, ExitStatus.NOT_MEASURED, ExitStatus.VOID}


def test_the_gate_is_red_once_a_record_is_edited(tmp_path: Path) -> None:
    """The gate is green on a copy of the bundle. A record with one failed clause more is judged again, and refused."""
    copy = tmp_path / "evidence"
    for bundle in (ROOT / "evidence").glob(f"*/{REFUTED}/*"):
        shutil.copytree(bundle, copy / bundle.relative_to(ROOT / "evidence"))
    gate = ("status", REFUTED, "--evidence", str(copy), "--fail-on", "falsified")
    assert harness(ROOT, *gate, home=tmp_path).returncode == ExitStatus.PASS
    for file in copy.glob("*/*/*/record.json"):
        before = file.read_bytes()
        record = json.loads(before)
        clause = next(clause for clause in record["clauses"] if clause["outcome"] == "PASS")
        clause["outcome"] = "FAIL"
        file.write_text(json.dumps(record))
        digests = [hashlib.sha256(content).hexdigest() for content in (before, file.read_bytes())]
        manifest = file.with_name("MANIFEST.sha256")
        manifest.write_text(manifest.read_text().replace(*digests))
    assert harness(ROOT, *gate, home=tmp_path).returncode == ExitStatus.REFUSED
