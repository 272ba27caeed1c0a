"""Properties of the status of a claim that hold for any evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Status, Verdict
from harness.evidence.claim_status import speaks_for
from harness.evidence.index import Entry
from tests.evidence.entries import FAIL, STALE, TARGET, UNMEASURED, UNPROVEN, claim, entries, entry, stale, status_of


@given(entries)
def test_a_discharge_has_a_bundle_that_shows_it(found: list[Entry]) -> None:
    """The bundle is proven, full and on the target.

    It covers the present code, and has the contract's subject and parameters.
    """
    for cell in status_of(*found).cells.values():
        entry = cell.decided_by
        if cell.status is Status.DISCHARGED:
            assert entry is not None
            assert (entry.verdict, entry.proven, entry.profile, entry.overrides) == (Verdict.PASS, True, "full", {})
            assert entry.device == TARGET
            assert speaks_for(claim(), entry)
            assert not stale(entry)
        if cell.status in (Status.DISCHARGED, Status.PARTIAL, Status.FALSIFIED):
            assert entry is not None
            assert entry in found


@given(entries)
def test_no_failure_is_hidden_by_what_is_older_or_less(found: list[Entry]) -> None:
    """A FAIL that counts and covers stands until a proven PASS of at least its profile is newer."""
    for device, cell in status_of(*found).cells.items():
        here = [
            entry for entry in found if entry.device_class == device and speaks_for(claim(), entry) and not stale(entry)
        ]
        passed = [entry for entry in here if entry.verdict is Verdict.PASS and entry.proven]
        for failed in (bundle for bundle in here if bundle.verdict is Verdict.FAIL):
            enough = ("full",) if failed.profile == "full" else ("full", "reduced")
            if not any(entry.when > failed.when and entry.profile in enough for entry in passed):
                assert cell.status is Status.FALSIFIED


@given(entries, st.randoms())
def test_the_order_of_the_evidence_does_not_matter(found: list[Entry], random: Any) -> None:
    shuffled = random.sample(found, len(found))
    assert status_of(*found) == status_of(*shuffled)


@given(entries, st.integers(0, 20))
def test_what_says_nothing_changes_nothing(found: list[Entry], second: int) -> None:
    """A run that is NOT_MEASURED, unproven, overridden or of another subject does not change the status."""
    before = {device: (cell.status, cell.decided_by) for device, cell in status_of(*found).cells.items()}
    for silent in (UNMEASURED, UNPROVEN, {**FAIL, "overrides": {"steps": 9}}, {**FAIL, "subject": "mine:Other"}):
        for device, (status, decided_by) in before.items():
            plain = Device(device.type, device.name, device.compute_capability)
            after = status_of(*found, entry(second, device=plain, run="silent", **silent)).cells[device]
            assert (after.status, after.decided_by) == (status, decided_by)


@given(entries)
def test_once_everything_changed_nothing_covers(found: list[Entry]) -> None:
    """After a change of everything, each cell is STALE or UNRUN. It is STALE if and only if a run counted before."""
    for cell in status_of(*(replace(bundle, contract_digest=STALE) for bundle in found)).cells.values():
        assert cell.status in (Status.STALE, Status.UNRUN)
        assert (cell.status is Status.STALE) is (cell.decided_by is not None)
