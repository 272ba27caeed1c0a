"""Entries of the index as runs of the tiny claim would leave them, and strategies for them. Nothing runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Fate, Verdict
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.claim_status import ClaimStatus, statuses
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.evidence.index import Entry
from tests.contracts import IDENTIFIER, contract_of, document

CPU = Device("cpu", "x86_64")
GPU = Device("cuda", "NVIDIA H200", "9.0")
TARGET = Device("cuda", "NVIDIA GB10", "12.1")
STALE = "0" * 64
"""The contract digest of entries that no longer cover the project."""
_CURRENT = contract_of(document()).digest
NOW = datetime(2026, 11, 21, tzinfo=UTC)
"""After all runs except those whose records are from the future."""

FAIL = {
    "verdict": Verdict.FAIL,
    "failed": ("nothing-lost",),
    "reason": Reason(ReasonCode.CLAUSE, clauses=("nothing-lost",)),
}
VOID = {
    "verdict": Verdict.VOID,
    "reason": Reason(ReasonCode.MUTANT, mutant="forgets-one", fate=Fate.SURVIVED),
    "proven": False,
}
UNMEASURED = {
    "verdict": Verdict.NOT_MEASURED,
    "reason": Reason(ReasonCode.CLAUSE, clauses=("subject.completes",)),
    "proven": False,
}
UNPROVEN = {"reason": Reason(ReasonCode.UNPROVEN), "proven": False, "mutants_skipped": True}


def claim(**changes: Any) -> Contract:
    """The tiny claim with TARGET as its target."""
    return contract_of(document(**{"target": {"device": "NVIDIA GB10", "compute_capability": "12.1"}, **changes}))


def stale(entry: Entry) -> list[Finding]:
    """Whether an entry is stale: its contract is another one."""
    return [finding(Code.STALE_CONTRACT, Detail.CONTRACT_CHANGED)] if entry.contract_digest == STALE else []


def entry(second: int = 0, **changes: Any) -> Entry:
    """A proven PASS of the full profile on TARGET, started at this second. Keyword arguments replace fields."""
    run = changes.get("run", f"2026-11-20T2015{second % 60:02}Z-{second:04}")
    fields: dict[str, Any] = {
        "path": Path("evidence", "DEMO-1", IDENTIFIER, run),
        "id": IDENTIFIER,
        "issue": "DEMO-1",
        "spec": "SPEC-DEMO-001",
        "title": "Sorting keeps every item",
        "run": run,
        "verdict": Verdict.PASS,
        "reason": "",
        "proven": True,
        "profile": "full",
        "overrides": {},
        "mutants_skipped": False,
        "falsifier": "falsifiers.demo.sorting:falsify",
        "subject": "falsifiers.demo.sorting:Sorter",
        "subject_parameters": {},
        "target": {},
        "device": TARGET,
        "seed": 0,
        "started": f"2026-11-20T20:{second // 60:02}:{second % 60:02}+00:00",
        "seconds": 4.5,
        "trial_seconds": 1.25,
        "contract_digest": _CURRENT,
        "sources": {"falsifiers/demo/sorting.py": "a" * 64},
        "harness": {"version": "0.1.0", "sha256": "b" * 64},
        "commit": {"revision": "c" * 40, "dirty": False, "reason": None},
        "command": f"harness run {IDENTIFIER}",
        "killed": ("forgets-one",),
        "failed": (),
        "lived": False,
    }
    return Entry(**{**fields, **changes})


entries: st.SearchStrategy[list[Entry]] = st.lists(
    st.builds(
        entry,
        st.integers(0, 20),
        verdict=st.sampled_from(Verdict),
        proven=st.booleans(),
        profile=st.sampled_from(["full", "reduced"]),
        device=st.sampled_from([CPU, GPU, TARGET]),
        overrides=st.sampled_from([{}, {}, {}, {"steps": 4}]),
        subject=st.sampled_from(["falsifiers.demo.sorting:Sorter"] * 3 + ["falsifiers.demo.sorting:Other"]),
        contract_digest=st.sampled_from([_CURRENT, _CURRENT, STALE]),
        run=st.uuids().map(str),
    ),
    max_size=8,
)
"""Runs of the tiny claim of every kind, in any order."""


def status_of(*found: Entry, **changes: Any) -> ClaimStatus:
    """The status of the tiny claim, from all its evidence."""
    (status,) = statuses([claim(**changes)], found, stale, NOW)
    return status
