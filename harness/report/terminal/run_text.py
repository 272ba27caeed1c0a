"""The texts of a run that the live view and plain lines share: plans, steps, trials and verdicts.

A line comes with its style (`harness.report.terminal.printing.styled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.base import strictjson
from harness.base.shortening import cut, first, near_path
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.contract.bound import RULE
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.bundle_layout import COUNTEREXAMPLE
from harness.judging.record import MutantRecord, Record
from harness.report.messages import bound_text, number_text, qualifiers, reason_text
from harness.report.messages.not_finite import decisive, violations
from harness.report.messages.verdict_text import DOES_NOT_REPEAT, undecided, words
from harness.report.terminal.printing import COLOURS, Block, Line, Table
from harness.running.events import (
    SUBJECT,
    ClaimFinished,
    ClaimPlanned,
    TrialFinished,
    TrialStep,
)

__all__ = [
    "TIGHTEST",
    "claim_lines",
    "clause_cells",
    "idle_text",
    "limit_text",
    "nothing_ran",
    "outside_text",
    "plan_text",
    "qualities",
    "short_reason",
    "shown_reason",
    "step_text",
    "traceback_lines",
    "trial_text",
    "unjudged_text",
    "waiting_text",
]

TIGHTEST = 5
"""Number of margins that a PASS and the summary of a run show."""
_LONGEST_CASE = 400
_LONGEST_EXCEPTION = 200
_HEAD = ("clause", "ratio", "measured", "bound")


def plan_text(event: ClaimPlanned) -> str:
    """Describe the plan of a claim."""
    device = event.device
    where = device.name if device.is_cuda else f"CPU ({device.name})"
    mutants = f"{len(event.mutants)} of {len(event.contract.mutants)} mutants"
    return f"profile {event.profile} on {where}: {event.reason}; {mutants}"


def limit_text(event: ClaimPlanned) -> str:
    """Return the time limit of a trial, and why it differs from the contract's."""
    limit = f"a trial may take {number_text.duration(event.limit_seconds)}"
    if event.pace == 1.0:
        return limit
    return f"{limit}, {event.pace:g} times as long as the contract says: its roofs make this GPU slower than an H200"


def waiting_text(holders: Sequence[str]) -> str:
    """Return the first two holders of the device that a trial waits for, and how many more there are."""
    return f"waiting for {first(holders, 2)}"


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
        return f"{event.judgment.outcome} in {took}"
    if event.mutant.fate is Fate.KILLED:
        return f"killed in {took} by {first(event.mutant.failed, 3)}"
    return f"{event.mutant.fate} in {took}"


def traceback_lines(event: TrialFinished, verbose: bool) -> list[str]:
    """Return the traceback of the exception that ended a trial.

    Without `verbose`: for the subject, the exception with its place, and how to see the traceback.
    """
    if not event.traceback:
        return []
    if verbose:
        return [f"    {line}" for line in event.traceback.splitlines()]
    if event.trial != SUBJECT:
        return []
    reason = event.judgment.reason
    raised = "" if reason is None else cut(reason.root.text.partition("\n")[0], _LONGEST_EXCEPTION)
    return [f"    {line}" for line in (raised, "(-v shows the traceback, and so does `harness report`)") if line]


def claim_lines(
    event: ClaimFinished, place: str = "", contract: Contract | None = None, *, verbose: bool = False
) -> Iterator[Block]:
    """Yield the result of a claim: verdict, reasons, margins, and the path of the evidence.

    Args:
        place: a prefix of the verdict, such as "[7/25] ".
        contract: the contract, for its texts.
    """
    record = event.record
    yield f"{place}{record.verdict}  {record.id}  {record.title}", f"bold {COLOURS[record.verdict]}"
    yield f"  {qualities(record)}", ""
    if reason := shown_reason(record):
        yield f"  {reason}", ""
    if not nothing_ran(record):
        for mutant in record.mutants:
            if mutant.fate.has_run and mutant.fate is not Fate.KILLED:
                yield f"  mutant {mutant.id} {mutant.fate}: {_why_not_killed(mutant, record)}", COLOURS[mutant.fate]
        yield from _clauses(event, contract, verbose)
        for text in (outside_text(record) or unjudged_text(record), idle_text(record)):
            if text:
                yield f"  {text}", "dim"
    yield from _evidence(event)


def qualities(record: Record) -> str:
    """Return all qualifiers of a verdict."""
    if nothing_ran(record):
        return "nothing ran"  # the reason names the profiles
    device = record.device
    parts = [f"{qualifiers.profile(record.profile)} on {device.name if device.is_cuda else 'CPU'}"]
    if record.unjudged:
        parts.append(f"{len(record.unjudged)} clauses not judged in it")
    parts.append(qualifiers.mutants(record))
    if record.verdict is Verdict.PASS and not record.proven:
        parts.append(qualifiers.UNPROVEN)
    if record.isolated:
        parts.append(qualifiers.ISOLATED)
    if "--subject" in record.command.split():
        parts.append(qualifiers.another_subject(record.judged))
    parts += [*qualifiers.overridden(record.overrides), number_text.duration(record.seconds)]
    return ", ".join(parts)


def shown_reason(record: Record) -> str:
    """Return why a verdict is not a proven PASS; empty if the lines below state it: failed clauses and mutants."""
    reason = record.reason
    if reason is None or reason.code is ReasonCode.UNPROVEN:
        return ""
    if nothing_ran(record):
        return reason.root.text or reason_text.of(reason.root)
    is_missing = reason.root.code is ReasonCode.MISSING and not reason.root.text  # for no reason that is known
    of_clause = reason.code is ReasonCode.CLAUSE
    if reason.code is ReasonCode.MUTANT or (of_clause and (record.verdict is Verdict.FAIL or is_missing)):
        return ""
    return reason_text.of(reason.cause if reason.clauses == ("subject.completes",) else reason)


def short_reason(record: Record) -> str:
    """Return why a verdict is not a proven PASS, if no line below states it."""
    return shown_reason(record) or reason_text.of(decisive(record))


def _why_not_killed(mutant: MutantRecord, record: Record) -> str:
    """Return why a mutant that ran is not killed. It does not repeat why the subject was not measured."""
    own, subject = mutant.reason, record.reason
    if own and subject and own.root.text and own.root == subject.root and subject.mutant != mutant.id:
        return "for the same reason"
    return f"{reason_text.of(own)}; its defect: {mutant.defect}"


def _clauses(event: ClaimFinished, contract: Contract | None, verbose: bool) -> Iterator[Block]:
    """Yield the clauses that failed, with -v all others, else the rules and the tightest margins of a PASS."""
    record, ratios = event.record, event.ratios
    violated = list(_violated(record, contract, ratios, verbose))
    if violated:
        notes = ["", *(note for _, note in violated)]
        columns = [column for column in zip(_HEAD, *(cells for cells, _ in violated), strict=True) if any(column[1:])]
        begin = 1 if len(columns) == 1 else 0  # names alone need no heading
        styles = ["dim", *["red"] * len(violated)]
        yield Table(list(zip(*columns, strict=True))[begin:], styles[begin:], notes=notes[begin:])
    unmeasured = [clause for clause in record.clauses if clause.outcome is Outcome.NOT_MEASURED]
    passed = [clause for clause in record.clauses if clause.outcome is Outcome.PASS]
    listed = passed
    if not verbose:
        rules = [clause for clause in passed if _is_rule(clause)]
        bounds = {clause.id: clause for clause in passed if not _is_rule(clause)}
        tightest = [bounds[name] for name in sorted(ratios, key=lambda rule_id: -ratios[rule_id]) if name in bounds]
        listed = [*rules, *tightest[:TIGHTEST]] if record.verdict is Verdict.PASS else []
    yield from _unmeasured(unmeasured, record.reason, verbose)
    if listed:
        rows: list[tuple[str, ...]] = [_HEAD, *(clause_cells(clause, ratios) for clause in listed)]
        if not any(row[1] for row in rows[1:]):
            rows = [(row[0], *row[2:]) for row in rows]
        yield Table(rows, ["dim"])
    if hidden := len(passed) - len(listed):
        yield f"  {'and ' if listed else ''}{number_text.counted(hidden, 'clause')} PASS (-v shows them)", "dim"


def _violated(
    record: Record, contract: Contract | None, ratios: Mapping[str, float], verbose: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the cells of each violated clause, and what it says in words."""
    for clause, others in violations(record.clauses):
        text = words(clause, contract)
        if others:
            text += f", which violates {first(others, len(others) if verbose else 3)} too"
        yield clause_cells(clause, ratios), text


def _unmeasured(clauses: Sequence[ClauseResult], reason: Reason | None, verbose: bool) -> Iterator[Line]:
    """Yield the clauses without an outcome, by reason, those with a bound first. The verdict's is not repeated.

    Of a subject that did not end, the clauses without a reason of their own are only counted, except with -v.
    """
    colour, has_ended = COLOURS[Verdict.NOT_MEASURED], all(clause.id != "subject.completes" for clause in clauses)
    known = "" if reason is None else _why_unmeasured(reason.root)
    groups: dict[str, list[str]] = {}
    for clause in sorted(clauses, key=lambda result: not undecided(result)):
        why = _why_unmeasured(clause.reason)
        if (known and why.endswith(known)) or not (has_ended or verbose or (clause.reason and clause.reason.text)):
            why = ""
        groups.setdefault(why, []).append(f"{clause.id} ({bound})" if (bound := undecided(clause)) else clause.id)
    for why, names in sorted(groups.items(), key=lambda group: bool(group[0])):
        if not (why or has_ended or verbose):
            count, why_not = number_text.counted(len(names), "clause"), " for this reason" if known else ""
            yield f"  {count} not measured{why_not} (-v lists them)", colour
            continue
        text = first(names, len(names) if verbose else 3)
        yield f"  not measured: {text}{f'; {why}' if why else ''}", colour


def _why_unmeasured(reason: Reason | None) -> str:
    """Return why a clause was not measured, without the name of the measurement, so that the same reasons are equal."""
    if reason is None:
        return ""
    return reason.text if reason.code in (ReasonCode.MISSING, ReasonCode.NOT_MEASURED) else reason_text.of(reason)


def _is_rule(clause: ClauseResult) -> bool:
    return clause.bound is not None and clause.bound.keyword == RULE


def clause_cells(clause: ClauseResult, ratios: Mapping[str, float]) -> tuple[str, str, str, str]:
    """Return clause, the ratio of value and bound (empty if it has none), measured value, and bound."""
    ratio = ratios.get(clause.id)
    measured, bound = number_text.value(clause.value, clause.unit), bound_text.of(clause.bound, clause.unit)
    return clause.id, "" if ratio is None else f"{ratio:.3g}", measured, bound


def unjudged_text(record: Record) -> str:
    """Return the clauses that the profile does not judge; empty if it judges all."""
    if not record.unjudged:
        return ""
    return f"not judged in the {record.profile} profile, which does not measure it: {record.left_out}"


def outside_text(record: Record) -> str:
    """Return the numbers of decided clauses for an external subject, and the clauses that cannot be decided."""
    if not record.is_outside:
        return ""
    counts = Counter(clause.outcome for clause in record.clauses)
    hidden = record.not_visible
    others = counts[Outcome.NOT_MEASURED] - (len(hidden) - len(record.unjudged))
    text = f"{counts[Outcome.PASS]} PASS, {counts[Outcome.FAIL]} FAIL, {f'{others} NOT_MEASURED, ' if others else ''}"
    names = ", ".join(filter(None, (record.left_out, *hidden[len(record.unjudged) :])))
    return f"{text}{len(hidden)} not visible from outside{f': {names}' if names else ''}"


def idle_text(record: Record) -> str:
    """Return the mutants that did not run, by reason. Empty if all ran, if they were skipped, or if nothing ran."""
    if nothing_ran(record):
        return ""
    reasons: dict[str, list[str]] = {}
    for mutant in record.mutants:
        if not mutant.fate.has_run and not record.mutants_skipped:
            reasons.setdefault(reason_text.of(mutant.reason), []).append(mutant.id)
    text = "; ".join(f"{', '.join(ids)} ({reason})" for reason, ids in reasons.items())
    return f"not run: {text}" if text else ""


def nothing_ran(record: Record) -> bool:
    """Whether no trial was started, not even the subject's."""
    return record.trial_seconds == 0 and all(clause.outcome is Outcome.NOT_MEASURED for clause in record.clauses)


def _evidence(event: ClaimFinished) -> Iterator[Line]:
    """Yield the counterexample, the command that reproduces a verdict other than PASS, and where the evidence is."""
    record, bundle = event.record, event.bundle
    place = None if bundle is None else near_path(bundle)
    if bundle is not None and (bundle / COUNTEREXAMPLE).is_file():
        yield from _counterexample(bundle / COUNTEREXAMPLE)
        yield f"  the case again: harness replay {place}", ""
    if record.verdict is not Verdict.PASS and not nothing_ran(record):
        yield f"  reproduce: {record.command}", ""
    if place is not None:
        yield f"  evidence: {place}", "dim"
    else:
        yield f"  no bundle was written{f': {event.unsealed}' if event.unsealed else ''}", "yellow"


def _counterexample(path: Path) -> Iterator[Line]:
    try:
        document = strictjson.load(path)
        text, repeats = strictjson.dumps(document["case"]), document.get("repeats")
    except (OSError, strictjson.JsonError, LookupError, TypeError, AttributeError) as error:
        yield f"  counterexample: cannot be read: {error}", ""
        return
    yield f"  counterexample: {cut(text, _LONGEST_CASE)}", ""
    if repeats is False:
        yield f"  {DOES_NOT_REPEAT}", "yellow"
