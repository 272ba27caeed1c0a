"""The texts of a run that the live view and plain lines share: plans, steps, trials, clauses and verdicts."""

from __future__ import annotations

from pathlib import Path

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract.clauses import ClauseResult
from harness.evidence.bundle_layout import COUNTEREXAMPLE
from harness.judging.record import Record
from harness.report import bound_text, number_text, reason_text
from harness.run.events import (
    SUBJECT,
    ClaimFinished,
    ClaimPlanned,
    RunFinished,
    TrialFinished,
    TrialStep,
)

__all__ = [
    "CLAUSE_HEAD",
    "bundle_text",
    "claim_lines",
    "clause_cells",
    "hidden_text",
    "idle_text",
    "interrupted_text",
    "nothing_ran",
    "plan_line",
    "shown_clauses",
    "step_text",
    "totals_text",
    "traceback_lines",
    "trial_text",
    "unjudged_text",
    "verdict_text",
]

CLAUSE_HEAD = ("clause", "outcome", "measured", "bound")


def plan_line(event: ClaimPlanned) -> str:
    """Return one line on how a claim is run."""
    device = event.device
    where = device.name if device.is_cuda else f"CPU ({device.name})"
    mutants = f"{len(event.mutants)} of {len(event.contract.mutants)} mutants"
    return f"profile {event.profile} on {where}: {event.reason}; {mutants}, {event.parallel} at a time"


def step_text(event: TrialStep, total: int | None) -> str:
    """Return a step: its number and its recorded values."""
    values = "  ".join(f"{name} {number_text.value(value)}" for name, value in event.values.items())
    memory = "" if event.memory_bytes is None else f"  memory {number_text.binary(event.memory_bytes)}"
    number = f"{event.step}/{total}" if total and event.step <= total else str(event.step)
    more = f" (asked for: {total})" if total and event.step > total else ""
    return f"step {number}{more}  {values}{memory}"


def trial_text(event: TrialFinished) -> str:
    """Return how a trial ended: the subject's outcome, or the mutant's fate with the clauses that decided it."""
    took = number_text.duration(event.seconds)
    if event.mutant is None:
        reason = reason_text.of(event.judgment.reason)
        return f"{event.judgment.outcome} in {took}{': ' + reason if reason else ''}"
    if event.mutant.fate is Fate.KILLED:
        shown, more = event.mutant.failed[:3], len(event.mutant.failed) - 3
        return f"killed in {took} by {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
    return f"{event.mutant.fate} in {took}: {reason_text.of(event.mutant.reason)}"


def traceback_lines(event: TrialFinished, verbose: bool) -> list[str]:
    """Return the traceback of the exception that ended a trial. Without `verbose`: how to see it, once for a claim."""
    if not event.traceback:
        return []
    if verbose:
        return [f"    {line}" for line in event.traceback.splitlines()]
    return ["    (-v shows the traceback, and so does `harness report`)"] if event.trial == SUBJECT else []


def claim_lines(event: ClaimFinished, verbose: bool) -> list[str]:
    """Return the table of clauses, the verdict and the bundle as plain lines. If no trial ran, there is no table."""
    record = event.record
    if nothing_ran(record):
        return [f"  {verdict_text(record)}", f"  {bundle_text(event)}"]
    shown = shown_clauses(record, verbose)
    rows = [CLAUSE_HEAD, *map(clause_cells, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}".rstrip() for row in rows
    ]
    hidden = hidden_text(record, len(shown))
    texts = (hidden, unjudged_text(record), verdict_text(record), idle_text(record), bundle_text(event))
    return [*lines, *(f"  {text}" for text in texts if text)]


def shown_clauses(record: Record, verbose: bool) -> list[ClauseResult]:
    """Return the clauses to show: without those on types that passed or that repeat the reason of a shown clause."""
    told = {(_place(clause), reason_text.of(clause.reason)) for clause in record.clauses if not _is_mere_type(clause)}
    return [
        clause
        for clause in record.clauses
        if verbose
        or not _is_mere_type(clause)
        or clause.outcome is Outcome.FAIL
        or (clause.outcome is Outcome.NOT_MEASURED and (_place(clause), reason_text.of(clause.reason)) not in told)
    ]


def _is_mere_type(clause: ClauseResult) -> bool:
    return clause.id.endswith((".type", ".closed"))


def _place(clause: ClauseResult) -> str:
    return clause.id.rpartition(".")[0]


def clause_cells(clause: ClauseResult) -> tuple[str, str, str, str]:
    """Return clause, outcome, measured value and bound as text."""
    reason = f"  ({reason_text.of(clause.reason)})" if clause.outcome is not Outcome.PASS else ""
    bound = bound_text.of(clause.bound, clause.unit)
    return clause.id, str(clause.outcome), number_text.value(clause.value, clause.unit), bound + reason


def hidden_text(record: Record, shown: int) -> str:
    """Return how many clauses a shortened table leaves out; empty for none."""
    hidden = len(record.clauses) - shown
    passed = sum(_is_mere_type(clause) and clause.outcome is Outcome.PASS for clause in record.clauses)
    told = "all PASS" if passed == hidden else f"{passed} PASS, {hidden - passed} NOT_MEASURED as above"
    return f"and {hidden} clause{'' if hidden == 1 else 's'} on types, {told} (-v shows them)" if hidden else ""


def unjudged_text(record: Record) -> str:
    """Return the clauses that the profile does not judge; empty if it judges all."""
    if not record.unjudged:
        return ""
    return f"not judged in the {record.profile} profile, which does not measure it: {record.left_out}"


def verdict_text(record: Record) -> str:
    """Return the verdict in one line, with everything that qualifies it."""
    if nothing_ran(record):
        return f"{record.verdict}  {record.id}, nothing ran: {_obstacle(record)}"
    killed = sum(mutant.fate is Fate.KILLED for mutant in record.mutants)
    parts = [
        f"{record.verdict}  {record.id}",
        f"{record.profile} profile",
        "mutants skipped" if record.mutants_skipped else f"{killed} of {len(record.mutants)} mutants killed",
    ]
    if record.unjudged:
        parts.insert(2, f"{len(record.unjudged)} clauses not judged in it")
    if not record.mutants_skipped:
        others = [fate for fate in Fate if fate is not Fate.KILLED]
        counts = [(fate, sum(mutant.fate is fate for mutant in record.mutants)) for fate in others]
        parts += [f"{count} {fate}" for fate, count in counts if count]
    if record.verdict is Verdict.PASS and not record.proven:
        parts.append("UNPROVEN")
    if record.isolated:
        parts.append("subjects isolated")
    if "--subject" in record.command.split():
        parts.append(f"another subject than the contract's: {record.judged}")
    if record.overrides:
        parts.append(
            "parameters overridden: " + ", ".join(f"{name}={value}" for name, value in record.overrides.items())
        )
    parts.append(number_text.duration(record.seconds))
    return ", ".join(parts) + (f": {reason_text.of(record.reason)}" if record.reason else "")


def idle_text(record: Record) -> str:
    """Return the mutants that did not run, by reason. Empty if all ran, if they were skipped, or if nothing ran."""
    if nothing_ran(record):
        return ""
    reasons: dict[str, list[str]] = {}
    for mutant in record.mutants:
        if not mutant.fate.has_run and not record.mutants_skipped:
            reasons.setdefault(reason_text.of(mutant.reason), []).append(mutant.id)
    told = "; ".join(f"{', '.join(ids)} ({reason})" for reason, ids in reasons.items())
    return f"not run: {told}" if told else ""


def nothing_ran(record: Record) -> bool:
    """Return whether not even the trial of the subject was started."""
    return record.trial_seconds == 0 and all(clause.outcome is Outcome.NOT_MEASURED for clause in record.clauses)


def _obstacle(record: Record) -> str:
    """Return why nothing ran: the text of the root cause, without the clause and the ending."""
    if record.reason is None:
        return ""
    return record.reason.root.text or reason_text.of(record.reason.root)


def interrupted_text(event: RunFinished) -> str:
    """Return what an interrupted run leaves."""
    wait = f" while waiting for {event.awaited}" if event.awaited else ""
    left = "what was measured is in the evidence above" if event.records else "nothing was measured"
    return f"interrupted{wait}: {left}"


def bundle_text(event: ClaimFinished) -> str:
    """Return where the evidence is, and how to replay its counterexample."""
    if event.bundle is None:
        return "no bundle was written"
    place = _shortest(event.bundle)
    again = f"; its counterexample again: harness replay {place}" if (event.bundle / COUNTEREXAMPLE).is_file() else ""
    return f"evidence: {place}{again}"


def _shortest(path: Path) -> str:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the subject has removed it
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def totals_text(declared: int, verdicts: list[str]) -> str:
    """Return the last line of every summary: how many claims were declared, and their verdicts."""
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("PASS", "FAIL", "NOT_MEASURED", "VOID"))
    return f"{declared} claim{'s' if declared != 1 else ''} declared, {len(verdicts)} evaluated: {counts}"
