"""The status of claims: which bundle decides it, and which failures stay visible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device, DeviceClass
from harness.base.vocabulary import Status, Verdict
from harness.contract.reasons import Reason
from harness.evidence.claim_status import Cell, Note, Strength, Why, speaks_for, statuses
from harness.evidence.findings import Code, Detail, finding
from harness.evidence.index import Entry
from harness.report.messages import due_text
from tests.evidence.entries import (
    CPU,
    FAIL,
    GPU,
    NOW,
    STALE,
    TARGET,
    UNMEASURED,
    UNPROVEN,
    VOID,
    claim,
    entry,
    stale,
    status_of,
)

REDUCED = {"profile": "reduced"}
KNOWN = {"since": "2026-11-20", "device": "GB10", "profile": "full", "clauses": ["nothing-lost"], "explanation": "why"}
AHEAD = {"started": "2036-11-20T20:00:00+00:00"}


def only_cell(*found: Entry, **changes: Any) -> Cell:
    """The only cell, if all evidence is of one class of device."""
    (cell,) = status_of(*found, **changes).cells.values()
    return cell


CASES: list[tuple[str, list[dict[str, Any]], Status]] = [
    ("a proven PASS on the claim's hardware", [{}], Status.DISCHARGED),
    ("a PASS on other hardware", [{"device": GPU}], Status.PARTIAL),
    ("a PASS of the reduced profile", [REDUCED], Status.PARTIAL),
    ("a FAIL", [FAIL], Status.FALSIFIED),
    ("a FAIL whose mutants were skipped", [{**FAIL, "proven": False, "mutants_skipped": True}], Status.FALSIFIED),
    ("a FAIL after a PASS", [{}, FAIL], Status.FALSIFIED),
    ("a PASS after a FAIL", [FAIL, {}], Status.DISCHARGED),
    ("an unproven PASS after a FAIL", [FAIL, UNPROVEN], Status.FALSIFIED),
    ("a PASS of the reduced profile after a FAIL of the full one", [FAIL, REDUCED], Status.FALSIFIED),
    ("a FAIL of the reduced profile after a PASS of the full one", [{}, {**FAIL, **REDUCED}], Status.FALSIFIED),
    ("a PASS of the full profile after a FAIL of the reduced one", [{**FAIL, **REDUCED}, {}], Status.DISCHARGED),
    ("what could not be measured after a FAIL", [FAIL, UNMEASURED], Status.FALSIFIED),
    ("what could not be measured after a PASS", [{}, UNMEASURED], Status.DISCHARGED),
    ("an unproven PASS", [UNPROVEN], Status.UNRUN),
    ("an unproven PASS after a proven one", [{}, UNPROVEN], Status.DISCHARGED),
    ("VOID", [VOID], Status.UNRUN),
    ("VOID after a PASS", [{}, VOID], Status.UNRUN),
    ("a PASS after VOID", [VOID, {}], Status.DISCHARGED),
    ("VOID after a PASS after a FAIL", [FAIL, {}, VOID], Status.FALSIFIED),
    ("VOID after what could not be measured after a PASS", [{}, UNMEASURED, VOID], Status.UNRUN),
    ("what could not be measured after VOID after a PASS", [{}, VOID, UNMEASURED], Status.UNRUN),
    ("VOID of the reduced profile after a PASS of the full one", [{}, {**VOID, **REDUCED}], Status.DISCHARGED),
    ("what could not be measured", [UNMEASURED], Status.UNRUN),
    ("a PASS with other parameters", [{"overrides": {"steps": 4}}], Status.UNRUN),
    ("a FAIL with other parameters after a PASS", [{}, {**FAIL, "overrides": {"steps": 4}}], Status.DISCHARGED),
    ("a PASS of another subject", [{"subject": "mine:Other"}], Status.UNRUN),
    ("a FAIL of another subject after a PASS", [{}, {**FAIL, "subject": "mine:Other"}], Status.DISCHARGED),
    ("a stale PASS", [{"contract_digest": STALE}], Status.STALE),
    ("a stale FAIL", [{**FAIL, "contract_digest": STALE}], Status.STALE),
    ("a stale FAIL after a PASS that covers", [{}, {**FAIL, "contract_digest": STALE}], Status.DISCHARGED),
    ("a stale PASS that was unproven", [{**UNPROVEN, "contract_digest": STALE}], Status.UNRUN),
    ("a stale VOID", [{**VOID, "contract_digest": STALE}], Status.UNRUN),
    (
        "what could not be measured, stale, though its mutants died",
        [{**UNMEASURED, "proven": True, "contract_digest": STALE}],
        Status.UNRUN,
    ),
    ("VOID after a stale PASS", [{"contract_digest": STALE}, VOID], Status.UNRUN),
    ("a stale PASS, its subject since renamed", [{"contract_digest": STALE, "subject": "m:Old"}], Status.STALE),
    (
        "a stale PASS of another subject",
        [{"contract_digest": STALE, "subject": "m:X", "command": "harness run --subject m:X F-DEMO-SORT-001"}],
        Status.UNRUN,
    ),
]


@pytest.mark.parametrize(("runs", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_class_of_device(runs: list[dict[str, Any]], expected: Status) -> None:
    found = [entry(second, **changes) for second, changes in enumerate(runs)]
    cell = only_cell(*found)
    assert cell.status is expected
    assert cell.newest is found[-1]
    assert bool(cell.notes or cell.cause) is (expected is not Status.DISCHARGED)


def test_a_pass_of_the_same_second_hides_no_failure_of_less() -> None:
    """A failure of a smaller profile stays, because only a newer PASS shows that the defect is gone."""
    failed = entry(3, run="a", **FAIL, **REDUCED)
    for found in ((failed, entry(3, run="b")), (entry(3, run="b"), failed)):
        cell = only_cell(*found)
        assert (cell.status, cell.decided_by) == (Status.FALSIFIED, failed)
    assert only_cell(failed, entry(4)).status is Status.DISCHARGED


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([FAIL, AHEAD], Status.FALSIFIED),
        ([{}, {**FAIL, **AHEAD}], Status.FALSIFIED),
        ([{**FAIL, **AHEAD}, {}], Status.FALSIFIED),
        ([VOID, AHEAD], Status.UNRUN),
        ([{}, {**VOID, **AHEAD}], Status.UNRUN),
        ([{**FAIL, **REDUCED}, AHEAD], Status.FALSIFIED),
        ([{}, {**FAIL, **REDUCED, **AHEAD}], Status.FALSIFIED),
        ([AHEAD], Status.DISCHARGED),
        ([{"started": "2026-11-21T00:59:00+00:00"}, FAIL], Status.DISCHARGED),
        ([{"started": "2026-11-21T01:01:00+00:00"}, FAIL], Status.FALSIFIED),
    ],
)
def test_a_run_from_the_future_hides_nothing(runs: list[dict[str, Any]], expected: Status) -> None:
    """The clock was ahead by an unknown time. So a PASS counts as the oldest run, and a FAIL or VOID as the newest."""
    cell = only_cell(*(entry(second, **changes) for second, changes in enumerate(runs)))
    assert cell.status is expected
    blocked = any("2036" in run.get("started", "") and run.get("verdict") for run in runs)
    assert (Note(Why.CLOCK_AHEAD, "2036-11-20") in cell.notes) is blocked


def test_a_claim_without_hardware_is_never_discharged() -> None:
    """A claim without a target is never DISCHARGED. Lint warns of it."""
    cell = only_cell(entry(), target=...)
    assert (cell.status, cell.notes) == (Status.PARTIAL, (Note(Why.NO_HARDWARE),))


def test_why_the_contracts_own_subject_does_not_count() -> None:
    """A later run of another subject is not the reason."""
    cell = only_cell(entry(1, **UNPROVEN), entry(2, subject="mine:Other"))
    assert (cell.status, cell.cause) == (Status.UNRUN, UNPROVEN["reason"])


_HARDWARE = "NVIDIA GB10, compute capability 12.1"


@pytest.mark.parametrize(
    ("runs", "cause", "strength", "decided_by"),
    [
        pytest.param([{}], None, Strength.TARGET, 0, id="pass"),
        pytest.param([FAIL, {**UNPROVEN}], FAIL["reason"], Strength.TARGET, 0, id="fail"),
        pytest.param([{**FAIL, **AHEAD}], FAIL["reason"], Strength.TARGET, 0, id="fail in the future"),
        pytest.param([{**FAIL, **REDUCED}], FAIL["reason"], Strength.REDUCED, 0, id="reduced fail"),
        pytest.param([{"device": GPU}], None, Strength.FULL, 0, id="other hardware"),
        pytest.param([{"device": GPU}, {"device": GPU, **REDUCED}], None, Strength.FULL, 0, id="full before reduced"),
        pytest.param([REDUCED], None, Strength.REDUCED, 0, id="reduced pass"),
        pytest.param([{}, VOID], VOID["reason"], Strength.NONE, None, id="void"),
        pytest.param([UNMEASURED], UNMEASURED["reason"], Strength.NONE, None, id="not measured"),
        pytest.param([UNPROVEN], UNPROVEN["reason"], Strength.NONE, None, id="unproven"),
        pytest.param(
            [{"overrides": {"steps": 4, "size": 1}, "subject": "mine:Other"}], None, Strength.NONE, None, id="overrides"
        ),
        pytest.param([{"subject": "mine:Other"}], None, Strength.NONE, None, id="other subject"),
        pytest.param([{"contract_digest": STALE}], None, Strength.TARGET, 0, id="stale"),
        pytest.param(
            [{"contract_digest": STALE}, {"contract_digest": STALE}, {"contract_digest": STALE, **REDUCED}],
            None,
            Strength.TARGET,
            1,
            id="newest of the strongest stale",
        ),
        pytest.param(
            [{"contract_digest": STALE, "device": GPU, **REDUCED}, {**UNMEASURED, "device": GPU}],
            None,
            Strength.REDUCED,
            0,
            id="stale before not measured",
        ),
    ],
)
def test_a_cell_in_full(
    runs: list[dict[str, Any]],
    cause: Reason | None,
    strength: Strength,
    decided_by: int | None,
    snapshot: SnapshotAssertion,
) -> None:
    """A cell has a reason, its cause, its strength, the bundle that decided it, and the folder of a bundle."""
    found = [entry(second, **changes) for second, changes in enumerate(runs)]
    changed = [finding(Code.STALE_CONTRACT, Detail.CONTRACT_CHANGED), finding(Code.STALE_SUBJECT, Detail.NO_FILES)]
    (status,) = statuses([claim()], found, lambda entry: changed if entry.contract_digest == STALE else [], NOW)
    (cell,) = status.cells.values()
    decider = None if decided_by is None else found[decided_by]
    assert (cell.cause, cell.strength, cell.decided_by) == (cause, strength, decider)
    assert due_text.of_cell(replace(cell, cause=None)) == snapshot
    assert (cell.newest, cell.bundles) == (found[-1], len(found))
    assert cell.bundle == (decider or found[-1]).path
    assert (status.newest, status.deciding) == (found[-1], cell)


def test_a_device_without_evidence_of_the_claim_has_an_empty_cell() -> None:
    """An empty cell never gives the claim its status if there is other evidence."""
    status = status_of(entry(device=CPU, **UNMEASURED), entry(id="F-OTHER-001", device=GPU))
    cells = {device.name: cell for device, cell in status.cells.items()}
    assert list(cells) == ["x86_64", "NVIDIA H200"]
    assert cells["NVIDIA H200"] == Cell(Status.UNRUN, (), Strength.NONE, None, None, 0)
    assert cells["NVIDIA H200"].bundle is None
    assert status.deciding is cells["x86_64"]
    other_way = status_of(entry(device=GPU, **UNMEASURED), entry(id="F-OTHER-001", device=CPU))
    assert other_way.deciding is not None
    assert other_way.deciding.bundles == 1


def test_devices_are_listed_in_order() -> None:
    """The devices have a fixed order, whatever the order of the evidence, and include those of other claims."""
    devices = [TARGET, CPU, GPU]
    for found in (devices, devices[::-1]):
        status = status_of(*(entry(device=device) for device in found))
        assert [device.name for device in status.cells] == ["x86_64", "NVIDIA GB10", "NVIDIA H200"]


def test_the_newest_bundle_is_of_any_device_and_verdict() -> None:
    """The newest bundle is found, in whichever order the bundles are read."""
    found = [entry(3, device=CPU, **UNMEASURED), entry(1), entry(5, device=GPU, **FAIL), entry(4, device=CPU)]
    for several in (found, found[::-1]):
        assert status_of(*several).newest == found[2]
        assert status_of(*several[:2]).newest == max(several[:2], key=lambda entry: entry.started)


def test_of_runs_that_say_nothing_the_newest_is_told() -> None:
    """If no run counts, the newest one's verdict is the reason why the claim is UNRUN."""
    void, unmeasured = entry(1, **UNPROVEN), entry(2, **UNMEASURED)
    for several in ((void, unmeasured), (unmeasured, void)):
        cell = only_cell(*several)
        assert cell.notes == (Note(Why.VERDICT, Verdict.NOT_MEASURED),)
        assert cell.cause == unmeasured.reason


def test_of_no_evidence_nothing_is_newest() -> None:
    """Without evidence there is neither a bundle nor a deciding cell."""
    (status,) = statuses([claim()], [], stale, NOW)
    assert (status.newest, status.deciding, status.cells) == (None, None, {})
    assert (status.target, status.id) == (_HARDWARE, "F-DEMO-SORT-001")


def test_a_command_that_no_shell_would_read_is_read_all_the_same() -> None:
    """A record may have any text as its command. The option for another subject is found word by word."""
    old = {"contract_digest": STALE, "subject": "mine:Old"}
    assert speaks_for(claim(), entry(**old, command="harness run 'F-DEMO"))
    assert not speaks_for(claim(), entry(**old, command="harness run --subject mine:Old 'F-DEMO"))


OVERALL: list[tuple[str, list[dict[str, Any]], Status]] = [
    ("no evidence", [], Status.UNRUN),
    ("FALSIFIED on any device", [{}, {**FAIL, "device": GPU}], Status.FALSIFIED),
    ("discharged, and stale elsewhere", [{}, {"device": GPU, "contract_digest": STALE}], Status.DISCHARGED),
    ("stale on the target, partial elsewhere", [{"contract_digest": STALE}, {"device": GPU}], Status.STALE),
    (
        "stale where it was run in full, reduced elsewhere",
        [{"device": GPU, "contract_digest": STALE}, {"device": CPU, **REDUCED}],
        Status.STALE,
    ),
    (
        "equally strong, stale and covering",
        [{"device": GPU, "contract_digest": STALE}, {"device": replace(GPU, name="NVIDIA A100")}],
        Status.PARTIAL,
    ),
    (
        "equally strong, covering and stale",
        [{"device": replace(GPU, name="NVIDIA A100"), "contract_digest": STALE}, {"device": GPU}],
        Status.PARTIAL,
    ),
    ("FALSIFIED on the weakest device", [{}, {**FAIL, **REDUCED, "device": CPU}], Status.FALSIFIED),
]


@pytest.mark.parametrize(("runs", "expected"), [case[1:] for case in OVERALL], ids=[case[0] for case in OVERALL])
def test_a_claim_as_a_whole(runs: list[dict[str, Any]], expected: Status) -> None:
    """The claim has the status of its strongest evidence. A FAIL comes first."""
    status = status_of(*(entry(second, **changes) for second, changes in enumerate(runs)))
    assert status.status is expected
    deciding = status.deciding
    assert (deciding.status if deciding else Status.UNRUN) is expected


@pytest.mark.parametrize(
    ("device", "target", "meets"),
    [
        (TARGET, {"device": "NVIDIA GB10", "compute_capability": "12.1"}, True),
        (TARGET, {"compute_capability": "12.1"}, True),
        (TARGET, {"device": "GB10"}, True),
        (TARGET, {"compute_capability": "12.0"}, False),
        (GPU, {"device": "NVIDIA GB10"}, False),
        (replace(TARGET, compute_capability=None), {"compute_capability": "12.1"}, False),
        (CPU, {"device": "x86_64"}, True),
        (CPU, {}, False),
    ],
)
def test_hardware_that_a_claim_speaks_of(device: Device, target: dict[str, Any], meets: bool) -> None:
    """The target's name and compute capability must match, if the target states them."""
    assert DeviceClass.of(device).meets(target) is meets


def test_a_fail_that_does_not_speak_for_the_claim_is_set_aside_and_named() -> None:
    """A FAIL with other parameters or another subject is set aside and named.

    A FAIL that counts and other verdicts are not.
    """
    aside = [entry(3, **FAIL, overrides={"steps": 4}), entry(2, **FAIL, subject="falsifiers.demo.sorting:Other")]
    cell = only_cell(entry(1), entry(4, overrides={"steps": 4}), *aside)
    assert (cell.status, cell.set_aside) == (Status.DISCHARGED, tuple(aside))
    counts = only_cell(entry(1), entry(2, **FAIL))
    assert (counts.status, counts.set_aside) == (Status.FALSIFIED, ())


@pytest.mark.parametrize(("dirty", "told"), [(True, [Note(Why.UNCOMMITTED)]), (False, []), (None, [])])
def test_a_status_says_that_changes_were_uncommitted(dirty: bool | None, told: list[Note]) -> None:
    commit = {"revision": "c" * 40, "dirty": dirty, "reason": None}
    assert list(only_cell(entry(1, commit=commit)).notes) == told


def test_each_other_subject_has_a_status_of_its_own() -> None:
    """By its own parameters, too: the newest run of each decides, and none changes the claim's status."""
    engine = {"subject": "mine.external:Command", "subject_parameters": {"trainer": "engine.toml", "code": "ptx"}}
    other = {**engine, "subject_parameters": {"trainer": "engine.toml", "code": "cubin"}}
    whole = status_of(entry(1), entry(2, **engine, **FAIL), entry(3, **engine), entry(4, **other, **FAIL))
    assert whole.status is Status.DISCHARGED
    rows = {row.subject: row.status for row in whole.others}
    assert rows == {
        "command:engine.toml -P code=cubin": Status.FALSIFIED,
        "command:engine.toml -P code=ptx": Status.DISCHARGED,
    }
    (named,) = statuses(
        [claim()], [entry(1), entry(2, **engine, **FAIL)], stale, NOW, {claim().id: next(reversed(rows))}
    )
    assert (named.status, [(row.subject, row.status) for row in named.others]) == (
        Status.FALSIFIED,
        [(entry().subject, Status.DISCHARGED)],
    )


@pytest.mark.parametrize(("run", "status"), [({}, Status.PARTIAL), (REDUCED, Status.PARTIAL), (FAIL, Status.FALSIFIED)])
def test_a_stand_in_is_partial_at_best(run: dict[str, Any], status: Status) -> None:
    cell = only_cell(entry(**run), stands_in_for="a GB300")
    assert cell.status is status
    assert (Note(Why.STANDS_IN, "a GB300") in cell.notes) is (status is Status.PARTIAL)


def test_a_pass_without_all_clauses_is_partial() -> None:
    """A subject in another process leaves clauses out, whose status nobody knows."""
    cell = only_cell(entry(unjudged=("one", "two")))
    assert (cell.status, cell.notes) == (Status.PARTIAL, (Note(Why.UNJUDGED, "2"),))


@pytest.mark.parametrize(
    ("run", "known", "news"),
    [
        (FAIL, True, False),
        ({**FAIL, "failed": ("subject.completes",)}, False, True),
        ({**FAIL, "lived": True}, False, True),
        ({**FAIL, **REDUCED}, False, True),
        ({**FAIL, "device": GPU}, False, True),
        ({}, False, True),
        (REDUCED, False, False),
        ({**FAIL, "contract_digest": STALE}, False, False),
    ],
)
def test_what_a_contract_knows_is_no_news(run: dict[str, Any], known: bool, news: bool) -> None:
    """Only the very refutation that is stated is known: its clauses, its device, its profile, and no mutant lived."""
    found = status_of(entry(**run), refuted=[KNOWN])
    assert (found.is_known, found.is_news) == (known, news)
    plain = status_of(entry(**run))
    assert (found.status, plain.is_known) == (plain.status, False)
