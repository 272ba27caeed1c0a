"""Bundles as one piece of Markdown: a comment on a pull request, or the summary of a workflow's job.

Such places cut off, or refuse, what is too long. So the text is made of blocks, each whole Markdown, the weightiest
first: counts of all bundles, a table of verdicts, what speaks against each claim, the kill tables, what was measured.
What does not fit is left out as a whole, and the last line says how much that is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract.clauses import ClauseResult
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Finding
from harness.judging.record import MutantRecord, Record
from harness.report import bound_text, number_text, reason_text
from harness.report.bundle_results import BundleResult
from harness.report.escaping import code_block, code_span, markdown, printable
from harness.report.verdict_text import Caveat, Mono, bundle_totals, caveats, narrowed, signed

__all__ = ["COMMENT", "LEAST", "MARK", "SUMMARY", "render"]

COMMENT: Final = 65_000
"""Bytes of UTF-8: GitHub takes 65,536 characters in a comment, and a workflow may add a line of its own."""
SUMMARY: Final = (1 << 20) - 1
"""Bytes below the 1 MiB that GitHub takes in GITHUB_STEP_SUMMARY, for all that a job's step appends."""
LEAST: Final = 2000
"""Bytes that are enough for the counts."""
MARK: Final = "<!-- falsifier-harness report -->"
"""Begins the text, invisibly: a workflow finds its earlier comment by it and replaces that."""

_FOR_LAST = 200
"""Bytes kept for the line that says what was left out."""
_MOST_CLAUSES = 20
_LONGEST_COMMAND = 2000
_GRAVEST = (UNSOUND, NOT_ACCEPTED, Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, Verdict.PASS)
_IN_THE_TABLE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})
"""Remarks that every row of the table says already, and that need no section of their own."""


def render(bundles: Sequence[BundleResult], limit: int = COMMENT) -> str:
    """The text, of at most `limit` bytes of UTF-8; it ends in a newline.

    Args:
        limit: at least LEAST.
    """
    ordered = sorted(bundles, key=_gravity)
    head = f"{MARK}\n## Falsifier harness: {_heading(bundles)}\n\n{_denominator(bundles)}"
    room = limit - len(head.encode()) - _FOR_LAST
    rows, room = _fitting([_row(bundle) for bundle in ordered], room - 200, max(0, room // 2))
    blocks = [block for bundle in ordered for block in _against(bundle)]
    blocks += [block for bundle in ordered if bundle.record for block in _kills(bundle.record)]
    blocks += [block for bundle in ordered if bundle.record for block in _measured(bundle.record)]
    shown, _ = _fitting(blocks, room, room)
    parts = [head]
    if rows:
        parts.append(
            "\n".join([_table(("verdict", "claim", "profile", "device", "mutants", "signature", "took"), []), *rows])
        )
    parts += shown
    missing = [
        f"{count} {what}"
        for count, what in ((len(ordered) - len(rows), "rows"), (len(blocks) - len(shown), "sections"))
        if count
    ]
    if missing:
        parts.append(f"_Left out, since there is no room for more: {' and '.join(missing)}. The bundles have them._")
    return "\n\n".join(parts) + "\n"


def _fitting(blocks: Sequence[str], room: int, most: int) -> tuple[list[str], int]:
    """The blocks that fit, in their order, and the bytes left of `room`; together they take at most `most`."""
    shown: list[str] = []
    for block in blocks:
        size = len(block.encode()) + 40  # the separators around it
        if size <= min(room, most):
            shown.append(block)
            room, most = room - size, most - size
    return shown, room


def _gravity(bundle: BundleResult) -> int:
    return _GRAVEST.index(bundle.verification.standing)


def _heading(bundles: Sequence[BundleResult]) -> str:
    counts = [(word, sum(bundle.verification.standing == word for bundle in bundles)) for word in _GRAVEST]
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing was measured"


def _denominator(bundles: Sequence[BundleResult]) -> str:
    claims = len({bundle.name for bundle in bundles})
    of = f"{len(bundles)} bundle{_s(len(bundles))} of {claims} claim{_s(claims)}"
    return f"{of}: {bundle_totals([bundle.verification for bundle in bundles])}."


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _row(bundle: BundleResult) -> str:
    """A bundle's line of the table of verdicts."""
    record = bundle.record
    if record is None:
        one = bundle.verification
        standing = f"**{one.standing}** ({one.verdict or 'no verdict'})"
        why = markdown(_shortened(bundle.problem))
        return f"| {standing} | {code_span(bundle.name)} | | {why} | | {signed(one)} | |"
    fates = [(fate, sum(mutant.fate is fate for mutant in record.mutants)) for fate in Fate]
    killed = dict(fates)[Fate.KILLED]
    others = "".join(f", {count} {fate}" for fate, count in fates if count and fate is not Fate.KILLED)
    device = f"{record.device.name or record.device.type}"
    cells = (
        f"{_weighty(record.verdict)}{_beside(record, bundle.verification.remarks)}",
        f"{code_span(record.id)} {markdown(_shortened(record.title))}",
        record.profile,
        markdown(_shortened(device)),
        "skipped" if record.mutants_skipped else f"{killed} of {len(record.mutants)} killed{others}",
        signed(bundle.verification),
        number_text.duration(record.seconds),
    )
    return f"| {' | '.join(cells)} |"


def _weighty(verdict: Verdict) -> str:
    """In bold, unless it is the one that is hoped for."""
    return str(verdict) if verdict is Verdict.PASS else f"**{verdict}**"


def _against(bundle: BundleResult) -> Iterator[str]:
    """What speaks against a claim, or against its evidence; nothing of a PASS that nothing narrows."""
    record = bundle.record
    if record is None:
        one = bundle.verification
        listed = "\n".join(f"- {markdown(_shortened(str(problem)))}" for problem in one.objections[:_MOST_CLAUSES])
        what = "is no evidence" if not one.sound else f"says {one.verdict}, and is not accepted"
        yield f"### {one.standing}: {markdown(bundle.name)}\n\n{code_span(str(bundle.path))} {what}:\n\n{listed}"
        return
    remarks = [remark for remark in bundle.verification.remarks if remark.code not in _IN_THE_TABLE]
    said = [f"- {_sentence(caveat)}" for caveat in caveats(record, remarks)]
    if record.verdict is Verdict.PASS and not said:
        return
    head = f"### {_verdict(record, bundle.verification.remarks)}: {markdown(record.id)}"
    parts = [head, markdown(_shortened(reason_text.of(record.reason))), "\n".join(said)]
    wrong = [clause for clause in record.clauses if clause.outcome is not Outcome.PASS]
    if wrong:
        wrong.sort(key=lambda clause: clause.outcome is not Outcome.FAIL)
        parts.append(_clause_table(wrong[:_MOST_CLAUSES]))
        if len(wrong) > _MOST_CLAUSES:
            parts.append(f"and {len(wrong) - _MOST_CLAUSES} more clauses that did not pass")
    lived = [mutant for mutant in record.mutants if mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED)]
    if lived:
        parts.append(f"Mutants that were not killed as declared:\n\n{_mutant_table(lived)}")
    if record.verdict is not Verdict.PASS:
        parts.append(_reproduce(record))
    yield "\n\n".join(part for part in parts if part)


def _kills(record: Record) -> Iterator[str]:
    """The kill table, and how to reproduce a PASS; what is none has said so above."""
    kills = _mutant_table(record.mutants) or "No mutant is declared."
    reproduce = f"\n\n{_reproduce(record)}" if record.verdict is Verdict.PASS else ""
    yield _folded(f"Mutants of {_which(record)}: {_tally(record.mutants)}", f"{kills}{reproduce}")


def _measured(record: Record) -> Iterator[str]:
    """Each clause with what was measured and its bound, but for those on types."""
    shown = [clause for clause in record.clauses if not _is_trivial(clause)]
    if shown:
        yield _folded(f"Clauses of {_which(record)}: {_judged(record.clauses)}", _clause_table(shown))


def _which(record: Record) -> str:
    return f"{record.id} on {_shortened(record.device.name)}"


def _folded(title: str, content: str) -> str:
    """Markdown behind a line that opens it."""
    # Within these tags nothing is Markdown.
    return f"<details>\n<summary>{html.escape(printable(title))}</summary>\n\n{content}\n\n</details>"


def _reproduce(record: Record) -> str:
    if len(record.command) > _LONGEST_COMMAND:
        return "The command that reproduces this is too long for here; record.json has it."
    return f"To reproduce:\n\n{code_block(record.command, 'sh')}"


def _verdict(record: Record, remarks: Iterable[Finding]) -> str:
    """The verdict, and beside it what may not stand apart from it."""
    return f"{record.verdict}{_beside(record, remarks)}"


def _beside(record: Record, remarks: Iterable[Finding]) -> str:
    """In parentheses of what else a verdict is, and what makes a PASS less; empty where nothing does."""
    said = markdown(_shortened(", ".join(narrowed(record, remarks))))
    return f" ({said})" if said else ""


def _sentence(caveat: Caveat) -> str:
    """A caveat with its head in bold, and the code that `harness verify` prints for it."""
    parts = (code_span(part) if isinstance(part, Mono) else markdown(part) for part in caveat.text)
    code = f" ({code_span(caveat.code)})" if caveat.code else ""
    return f"**{caveat.head}**{code}{''.join(parts)}."


def _clause_table(clauses: Sequence[ClauseResult]) -> str:
    """Clauses with measured value and bound, in this order."""
    rows = [
        (
            code_span(clause.id),
            f"**{clause.outcome}**" if clause.outcome is not Outcome.PASS else str(clause.outcome),
            markdown(number_text.value(clause.value, clause.unit)),
            markdown(_shortened(bound_text.of(clause.bound, clause.unit))),
            markdown(_shortened(reason_text.of(clause.reason))),
        )
        for clause in clauses
    ]
    return _table(("clause", "outcome", "measured", "bound", "why"), rows)


def _is_trivial(clause: ClauseResult) -> bool:
    """Whether it says no more than that something was of the right type."""
    return clause.outcome is Outcome.PASS and clause.id.endswith((".type", ".closed"))


def _judged(clauses: Sequence[ClauseResult]) -> str:
    """How many clauses were judged, and how."""
    counts = ", ".join(f"{sum(clause.outcome is one for clause in clauses)} {one}" for one in Outcome)
    return f"{len(clauses)} judged: {counts}"


def _tally(mutants: Sequence[MutantRecord]) -> str:
    """How many mutants there are, and what became of them."""
    counts = [(fate, sum(mutant.fate is fate for mutant in mutants)) for fate in Fate]
    return f"{len(mutants)} declared, " + (", ".join(f"{count} {fate}" for fate, count in counts if count) or "none")


def _mutant_table(mutants: Sequence[MutantRecord]) -> str:
    """The kill table; empty where there are no mutants."""
    rows = [
        (
            code_span(mutant.id),
            str(mutant.fate) if mutant.fate is Fate.KILLED else f"**{mutant.fate}**",
            markdown(mutant.defect),
            ", ".join(map(code_span, mutant.violates)),
            ", ".join(map(code_span, mutant.failed)) or markdown(_shortened(reason_text.of(mutant.reason))),
            "" if mutant.seconds is None else number_text.duration(mutant.seconds),
        )
        for mutant in mutants
    ]
    return _table(("mutant", "fate", "defect", "must fail on", "failed on", "took"), rows) if rows else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shortened(text: str) -> str:
    """At most 300 characters."""
    return text if len(text) <= 300 else text[:299] + "…"
