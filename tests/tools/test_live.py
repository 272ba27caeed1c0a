"""The live view of claims that run side by side, with a clock that the test controls."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.judging.judge import judge
from harness.report.terminal.run_lines import Shown
from harness.running import events
from harness.running.events import SUBJECT
from harness.tools.live import Live
from tests.contracts import contract_of, document, healthy, observe

CPU = Device("cpu", "x86_64")
SORT = contract_of(document())
OTHER = replace(SORT, id="F-DEMO-OTHER-001")
WAITS = replace(SORT, id="F-DEMO-WAITS-001")
JUDGED, REFUTED = (judge(SORT, observe(healthy(returned=count))) for count in (3, 2))


@pytest.fixture
def live() -> tuple[Live, list[float]]:
    """A view, and its clock."""
    now = [0.0]
    view = Live(io.StringIO(), Shown(), clock=lambda: now[0])
    return view, now


def drawn(view: Live, width: int, height: int = 24) -> list[str]:
    """The lines of the view on a terminal of this size."""
    view._console = Console(file=io.StringIO(), width=width, height=height)
    with view._console.capture() as shown:
        view._console.print(view._view())
    return [line.rstrip() for line in shown.get().splitlines()]


def begin(view: Live, now: list[float]) -> None:
    """Begin two claims. A third one waits."""
    view(events.RunStarted((SORT.id, OTHER.id, WAITS.id)))
    view._start = lambda: None  # type: ignore[method-assign]  # no thread draws
    for contract in (SORT, OTHER, WAITS):
        view(events.ClaimPlanned(contract, "reduced", "not full: no GPU", CPU, ("forgets-one", "b")))
    view._claims[SORT.id].last = 110.0
    view(events.ClaimWaiting(WAITS.id, ("F-ELSE-001 (process 7)",)))
    view(events.TrialPhase(OTHER.id, SUBJECT, "importing"))
    now[0] = 5.0
    view(events.TrialStarted(SORT.id, SUBJECT, 50))
    view(events.TrialStarted(SORT.id, "b", None))
    view(events.TrialPhase(SORT.id, "b", "Engine.archive > compile"))
    now[0] = 83.0
    view(events.TrialStep(SORT.id, SUBJECT, 30, {"loss": 1.5}, None))


@pytest.mark.parametrize("width", [60, 120])
def test_what_runs_and_what_waits(live: tuple[Live, list[float]], width: int, snapshot: SnapshotAssertion) -> None:
    """The view has phase, elapsed time, the last run's time, and the number of the mutant. No line is too wide."""
    view, now = live
    begin(view, now)
    lines = drawn(view, width)
    assert lines == snapshot
    assert max(map(len, lines)) <= width - len("^C")


def test_the_time_of_waiting_is_not_the_claims(live: tuple[Live, list[float]]) -> None:
    """The waiting time is shown while it lasts. The claim's time does not include it."""
    view, now = live
    begin(view, now)
    assert "waiting for F-ELSE-001 (process 7), 1 min 23 s" in drawn(view, 120)[-1]
    view(events.TrialPhase(WAITS.id, SUBJECT, "importing"))
    now[0] = 90.0
    assert drawn(view, 120)[-1] == "F-DEMO-WAITS-001  7 s  importing"


def test_a_low_terminal_shows_claims_before_trials(live: tuple[Live, list[float]]) -> None:
    """The view never has more lines than the terminal."""
    view, now = live
    begin(view, now)
    for height in (4, 5, 6, 7, 24):
        assert len(drawn(view, 80, height)) <= max(2, height - 2)


def test_between_its_trials_a_claim_says_what_it_waits_for(live: tuple[Live, list[float]]) -> None:
    """The mutants wait for processors, memory, or a device that others hold. At the end, the claim is sealed."""
    view, now = live
    begin(view, now)
    view(events.RunStarted((SORT.id, OTHER.id, WAITS.id, "F-DEMO-LATER-001")))
    view(events.TrialFinished(SORT.id, "b", JUDGED, None, 1.0, ""))
    view(events.ClaimWaiting(SORT.id, ("F-ELSE-001 (process 7)",), "forgets-one"))
    assert [line for line in drawn(view, 120) if "waiting for F-ELSE-001" in line and "forgets-one (1 of 2)" in line]
    view(events.TrialStarted(SORT.id, "forgets-one", None))
    assert drawn(view, 120)[0].endswith("2 running, 1 waiting, 1 to come")
    assert not [line for line in drawn(view, 120) if "forgets-one" in line and "waiting" in line]
    view(events.TrialFinished(SORT.id, SUBJECT, JUDGED, None, 1.0, ""))
    view(events.TrialFinished(SORT.id, "forgets-one", JUDGED, None, 1.0, ""))
    assert drawn(view, 120)[1].endswith("sealing")
    view(events.TrialFinished(OTHER.id, SUBJECT, JUDGED, None, 1.0, ""))
    assert next(line for line in drawn(view, 120) if line.startswith(OTHER.id)).endswith(
        "waits for processors or memory"
    )
    view(events.TrialFinished(WAITS.id, SUBJECT, REFUTED, None, 1.0, ""))
    view(events.TrialStarted(WAITS.id, SUBJECT, None))
    view(events.TrialFinished(WAITS.id, SUBJECT, REFUTED, None, 1.0, ""))
    assert drawn(view, 120)[-1].endswith("sealing")
