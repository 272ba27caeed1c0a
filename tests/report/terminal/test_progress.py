"""The output for people: plain lines in a pipe, a live view on a terminal, and the relay of events."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.base.vocabulary import Fate, Outcome, Phase, Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind
from harness.judging.record import Record
from harness.judging.verdict import MutantOutcome
from harness.report.messages import reason_text
from harness.report.terminal.run_lines import Lines, Shown, interrupted_text
from harness.report.terminal.run_output import json_handler, terminal_handler
from harness.report.terminal.run_text import idle_text, qualities, shown_reason
from harness.running import events
from harness.running.events import SUBJECT, Event, Relay
from harness.tools.report_text import why
from tests.contracts import contract_of, document, healthy, observe
from tests.evidence.factory import DEFECTIVE, claim_result
from tests.report.texts import with_texts

CONTRACT = contract_of(document())
CPU = Device("cpu", "x86_64")


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def story(record: Record, steps: int = 50) -> list[Event]:
    """The events of a run of one claim."""
    judgment = judge(CONTRACT, observe(healthy()))
    killed = MutantOutcome("forgets-one", Fate.KILLED, "", ("nothing-lost",))
    made = [events.TrialStep(CONTRACT.id, SUBJECT, step, {"loss": 1.5}, 3 << 20) for step in range(1, steps + 1)]
    return [
        events.RunStarted((CONTRACT.id,)),
        events.ClaimPlanned(CONTRACT, "reduced", "not full: no GPU", CPU, ("forgets-one",), limit_seconds=60.0),
        events.ClaimWaiting(CONTRACT.id, ("F-OTHER-001 (process 7)", "F-B-001 (process 8)", "F-C-001 (process 9)")),
        events.ClaimWaiting(CONTRACT.id, ("F-B-001 (process 8)",)),
        events.TrialStarted(CONTRACT.id, SUBJECT, steps),
        events.TrialStarted(CONTRACT.id, "forgets-one", steps),
        *made,
        events.TrialStep(CONTRACT.id, "forgets-one", 1, {"loss": float("nan")}, None),
        events.TrialFinished(CONTRACT.id, SUBJECT, judgment, None, 1.25),
        events.TrialFinished(CONTRACT.id, "forgets-one", judgment, killed, 0.5),
        events.ClaimFinished(record, Path("/evidence/run")),
        events.RunFinished(1, (record,), 2.0, False),
    ]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a claim that holds."""
    return claim_result(tmp_path).record


@pytest.fixture
def hostile(tmp_path: Path) -> Record:
    """A record whose texts control terminals and have several lines."""
    return with_texts(tmp_path, "\x1b[2J\nPASS F-FORGED-001\r\x00\u202e [bold]")


def plain(told: list[Event], verbose: bool = False) -> list[str]:
    """The plain lines of some events."""
    stream = io.StringIO()
    take = terminal_handler(stream, Shown(verbose))
    assert isinstance(take, Lines)
    for event in told:
        take(event)
    return stream.getvalue().splitlines()


def live(told: list[Event], verbose: bool = False) -> str:
    """The output on a terminal."""
    stream = Terminal()
    take = terminal_handler(stream, Shown(verbose))
    for event in told:
        take(event)
    return stream.getvalue()


def test_the_text_of_a_run(record: Record, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The text has plan, wait, steps, trials, clauses, verdict with its qualifications, evidence and total."""
    unsure = {**DEFECTIVE, "forgets-one": {"given": ...}}
    others = {
        "another subject": replace(record, command="harness run --subject demo:Other F", subject="demo:Other"),
        "overridden": claim_result(tmp_path / "a", overrides={"steps": 5}).record,
        "unproven": claim_result(tmp_path / "b", skipped=True).record,
        "FAIL": claim_result(tmp_path / "c", measurements=healthy(returned=2)).record,
        "VOID": claim_result(tmp_path / "d", mutants={**DEFECTIVE, "forgets-one": {}}).record,
        "NOT_MEASURED": claim_result(tmp_path / "e", measurements={}).record,
        "an inconclusive mutant": claim_result(tmp_path / "f", mutants=unsure).record,
        "interrupted": claim_result(tmp_path / "g", mutants={}, cut_short=True).record,
    }
    texts = {
        "run": plain(story(record)),
        "verbose": plain(story(record, steps=2), verbose=True),
        **{name: plain([events.ClaimFinished(other, Path("/evidence/run"))]) for name, other in others.items()},
        "verdicts": {name: [qualities(other), shown_reason(other), idle_text(other)] for name, other in others.items()},
        "no bundle": plain([events.ClaimFinished(record, None)])[-1:],
        "interrupted run": plain([events.RunFinished(1, (), 0.0, True), events.RunFinished(1, (record,), 0.0, True)]),
        "interrupted wait": plain([events.RunFinished(1, (), 0.0, True, "F-OTHER-001 (pid 7, me, exclusive)")]),
    }
    assert texts == snapshot


@pytest.mark.parametrize("told", [plain, lambda story: live(story).splitlines()], ids=["plain", "live"])
def test_claims_that_were_not_due_are_declared(told: Callable[[list[Event]], list[str]], record: Record) -> None:
    """The total includes claims that were not evaluated."""
    not_due = events.ClaimPassedOver("F-DEMO-OTHER-001", Verdict.PASS, "not due")
    assert "2 claims declared, 1 evaluated: 1 PASS" in told([not_due, *story(record)])[-1]


def test_steps_beyond_those_asked_for_are_told_rarely_and_as_such() -> None:
    """An external trainer decides how many steps it makes."""
    made = [events.TrialStep(CONTRACT.id, SUBJECT, step, {"loss": 1.5}, None) for step in range(1, 51)]
    lines = plain([events.TrialStarted(CONTRACT.id, SUBJECT, 3), *made])
    assert [line.partition("step ")[2].partition("  loss")[0] for line in lines] == [
        "1/3", "2/3", "3/3", "6 (asked for: 3)", "12 (asked for: 3)", "24 (asked for: 3)", "48 (asked for: 3)",
    ]  # fmt: skip


def test_a_traceback_is_shown_where_asked_for_and_else_where_it_is() -> None:
    """The traceback is printed with -v; otherwise the output names its place. It is shown once for each claim."""
    raised = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, "toy/stable.py:27: ValueError: boo\nand more")
    judgment = judge(CONTRACT, replace(observe(healthy()), ending=raised))
    stack = 'Traceback (most recent call last):\n  File "stable.py", line 27, in falsify\nValueError: \x1b[2Jboo\n'
    lived = MutantOutcome("forgets-one", Fate.INCONCLUSIVE, Reason(ReasonCode.FALSIFIER_FAULT, "falsifier", "boo"))
    told: list[Event] = [
        events.TrialFinished(CONTRACT.id, SUBJECT, judgment, None, 1.0, stack),
        events.TrialFinished(CONTRACT.id, "forgets-one", judgment, lived, 1.0, stack),
    ]
    hint, place = "-v shows the traceback, and so does `harness report`", "toy/stable.py:27: ValueError: boo"
    for show in (lambda verbose: "\n".join(plain(told, verbose)), lambda verbose: live(told, verbose)):
        assert [show(False).count(text) for text in ("line 27", hint, place)] == [0, 1, 1]
        assert (show(True).count("line 27"), show(True).count(hint), "\x1b[2J" in show(True)) == (2, 0, False)


@pytest.mark.parametrize("verbose", [False, True])
def test_foreign_texts_do_not_steer_a_pipe_or_forge_lines(hostile: Record, verbose: bool) -> None:
    """A claim's texts stay on one line, with control characters escaped."""
    lines = plain(story(hostile), verbose)
    assert not [line for line in lines if line.startswith("PASS F-FORGED-001")]
    assert all(line.isprintable() for line in lines)


def test_foreign_texts_do_not_steer_a_terminal(hostile: Record) -> None:
    """No foreign control sequence or markup takes effect."""
    shown = live(story(hostile), verbose=True)
    assert "\x1b[2J" not in shown
    assert "\x00" not in shown
    assert "\u202e" not in shown


def test_live(record: Record) -> None:
    """A terminal shows the same facts, and the cursor is restored."""
    shown = live(story(record))
    for fact in ("F-DEMO-SORT-001", "2 of 3 mutants killed", "/evidence/run", "1 PASS"):
        assert fact in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_live_draws_what_runs(record: Record) -> None:
    """While trials run, each has a line with its newest step."""
    stream = Terminal()
    take = terminal_handler(stream)
    told = story(record)
    for event in told[: told.index(next(event for event in told if isinstance(event, events.TrialFinished)))]:
        take(event)
    take._live.refresh()  # type: ignore[attr-defined]
    assert "step 50/50" in stream.getvalue()
    take(events.RunFinished(1, (), 0.0, True))
    assert interrupted_text(events.RunFinished(1, (), 0.0, True)) in stream.getvalue()
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Reason(ReasonCode.INTERRUPTED), reason_text.of(Reason(ReasonCode.INTERRUPTED))),
        (Reason(ReasonCode.NOT_MEASURED, text="needs a GPU: none here"), "needs a GPU: none here"),
        (Reason(ReasonCode.LOST, "start", "needs a GPU: none here"), "needs a GPU: none here"),
    ],
)
def test_what_was_in_the_way_where_nothing_ran(record: Record, reason: Reason, told: str) -> None:
    """The output shows neither a clause nor the end of a trial that never began."""
    why = Reason(ReasonCode.CLAUSE, clauses=("subject.completes",), cause=reason)
    idle = replace(record, verdict=Verdict.NOT_MEASURED, reason=why, clauses=(), trial_seconds=0.0)
    assert shown_reason(idle) == told
    assert [line.strip() for line in plain([events.ClaimFinished(idle, Path("/evidence/run"))])].count(told) == 1


def test_another_subject_is_said_beside_the_verdict(record: Record) -> None:
    """An external trainer is named by its file, and the contract's own subject is not named."""
    assert record.subject not in qualities(record)
    theirs = {"subject": "demo.external:Command", "subject_parameters": {"trainer": "trainers/theirs.toml", "lr": 1}}
    text = qualities(replace(record, command="harness run --subject command:trainers/theirs.toml F", **theirs))
    assert "command:trainers/theirs.toml" in text


def steps(count: int) -> list[Event]:
    """Steps of one trial."""
    return [events.TrialStep("F", SUBJECT, step, {}, None) for step in range(count)]


def test_the_relay_keeps_the_order(record: Record) -> None:
    """Every event arrives, in the order in which it happened."""
    heard: list[Event] = []
    relay = Relay([heard.append])
    told = story(record)
    for event in told:
        relay(event)
    assert relay.close() == []
    assert heard == told


def test_a_handler_that_blocks_holds_up_nobody() -> None:
    """If a pager waits, no trial loses time, and memory stays bounded."""
    scroll, heard = threading.Event(), list[Event]()

    def pager(event: Event) -> None:
        assert scroll.wait(300)
        heard.append(event)

    relay = Relay([pager])
    for event in steps(50_000):
        relay(event)
    last = events.RunFinished(0, (), 0.0, False)
    relay(last)
    assert heard == []  # the pager still has the first one
    scroll.set()
    relay.close()
    assert len(heard) < 11_000
    assert heard[-1] is last


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("no")])
def test_a_handler_that_fails_keeps_no_other_from_hearing(error: Exception) -> None:
    """The exception is returned, and that handler gets no further event. The others do."""
    heard, calls = list[Event](), list[Event]()

    def fail(event: Event) -> Any:
        calls.append(event)
        raise error

    handlers: list[Callable[[Event], None]] = [fail, heard.append]
    relay = Relay(handlers)
    for event in steps(3):
        relay(event)
    assert [failure for _, failure in relay.close()] == [error]
    assert (len(calls), len(heard)) == (1, 3)


def finished(tmp_path: Path) -> list[events.ClaimFinished]:
    """Claims with different verdicts."""
    good = claim_result(tmp_path / "a").record
    made = {
        "A": good,
        "B": claim_result(tmp_path / "b", measurements=healthy(returned=2)).record,
        "C": claim_result(tmp_path / "c", skipped=True).record,
        "D": claim_result(tmp_path / "d", measurements={}).record,
    }
    records = [replace(record, id=f"F-{name}-001", seconds=float(ord(name))) for name, record in made.items()]
    return [events.ClaimFinished(record, Path("/evidence/run"), {"ordered": 0.33}) for record in records]


@pytest.mark.parametrize("shown", [Shown(), Shown(quiet=True), Shown(slowest=1)], ids=["usual", "quiet", "durations"])
def test_a_run_of_several_claims(shown: Shown, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Each claim is printed when it has its verdict.

    The summary has the claims without a proven PASS, the slowest and the tightest.
    """
    lines: list[str] = []
    take = Lines(lambda line: lines.append(line[0]), shown, clock=lambda: 7.0)
    done = finished(tmp_path)
    take(events.RunStarted(tuple(result.record.id for result in done)))
    take(events.ClaimPlanned(CONTRACT, "reduced", "not full: no GPU", CPU, ("forgets-one",)))
    for result in done:
        take(result)
    take(events.RunFinished(5, tuple(result.record for result in done), 2.0, False))
    assert lines == snapshot
    assert "1 not run (--fail-fast)" in lines[-1]


def test_a_reason_stands_once(tmp_path: Path) -> None:
    """A falsifier that cannot measure gives its reason once. Clauses and mutants do not repeat it."""
    ending = {"subject.completes": "no such library"}
    why = Reason(ReasonCode.CLAUSE, clauses=tuple(ending), cause=Reason(ReasonCode.NOT_MEASURED, text="no library"))
    record = replace(claim_result(tmp_path, measurements={}).record, verdict=Verdict.NOT_MEASURED, reason=why)
    lines = plain([events.ClaimFinished(record, Path("/evidence/run"))])
    assert "\n".join(lines).count("no library") == 1


def test_each_reason_of_a_subject_that_did_not_end_is_told(tmp_path: Path) -> None:
    """Each reason is shown once, with its clauses. Clauses with the verdict's own reason, or none, are counted."""
    ended = Reason(ReasonCode.NOT_MEASURED, text="no library")
    missing = {"given": "it hides its input", "returned": "it hides its input", "ordered": "no library"}
    whys = {name: Reason(ReasonCode.MISSING, place=name, text=text) for name, text in missing.items()}
    made = claim_result(tmp_path, measurements={}).record
    clauses = [replace(clause, reason=whys.get(clause.id.split(".")[0], clause.reason)) for clause in made.clauses]
    completes = replace(clauses[0], id="subject.completes", outcome=Outcome.NOT_MEASURED, bound=None, reason=ended)
    why = Reason(ReasonCode.CLAUSE, clauses=("subject.completes",), cause=ended)
    record = replace(made, verdict=Verdict.NOT_MEASURED, reason=why, clauses=(completes, *clauses))
    lines = [line for line in plain([events.ClaimFinished(record, None)]) if "not measured" in line]
    unmeasured = [clause for clause in record.clauses if clause.outcome is Outcome.NOT_MEASURED]
    hidden = [clause for clause in unmeasured if clause.id.split(".")[0] in ("given", "returned")]
    assert [line.rpartition("; ")[2] for line in lines[2:]] == ["it hides its input"]
    assert [line.split()[0] for line in lines[1:2]] == [str(len(unmeasured) - len(hidden))]


def test_a_reason_names_the_bounds_that_were_not_decided(tmp_path: Path) -> None:
    """If a measurement is missing, the reason has its bounds, but not its type."""
    (record,) = [result.record for result in finished(tmp_path) if result.record.verdict is Verdict.NOT_MEASURED]
    assert why(record)[0].endswith("given.const (3)")
    assert "given.type (" not in why(record)[0]


def test_json_has_the_violated_clauses_first(tmp_path: Path) -> None:
    """Those that were not measured come last, however many they are."""
    record = claim_result(tmp_path / "a", measurements=healthy(returned=2, values=..., smallest=...)).record
    assert record.clauses[0].outcome is not Outcome.FAIL
    handle = json_handler(str(tmp_path / "records.json"))
    handle(events.RunFinished(1, (record,), 2.0, False))
    (written,) = json.loads((tmp_path / "records.json").read_text())["records"]
    outcomes = [clause["outcome"] for clause in written["clauses"]]
    assert outcomes == sorted(outcomes, key=["FAIL", "PASS", "NOT_MEASURED"].index)
    assert sorted(clause["id"] for clause in written["clauses"]) == sorted(clause.id for clause in record.clauses)
