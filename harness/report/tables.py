"""Parts of a record in Markdown: what the summary in a bundle and the comment on a pull request have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.base.vocabulary import Fate, Outcome
from harness.contract.clauses import ClauseResult
from harness.evidence.findings import Finding
from harness.judging.record import MutantRecord, Record
from harness.report import bound_text, number_text, reason_text
from harness.report.escaping import code_span, markdown
from harness.report.verdict_text import Caveat, Code, narrowed

__all__ = [
    "beside",
    "clause_table",
    "is_trivial",
    "judged",
    "mutant_table",
    "sentence",
    "shortened",
    "table",
    "tally",
    "verdict",
]


def verdict(record: Record, remarks: Iterable[Finding]) -> str:
    """The verdict, and beside it what may not stand apart from it."""
    return f"{record.verdict}{beside(record, remarks)}"


def beside(record: Record, remarks: Iterable[Finding]) -> str:
    """In parentheses of what else a verdict is, and what makes a PASS less; empty where nothing does."""
    said = markdown(shortened(", ".join(narrowed(record, remarks))))
    return f" ({said})" if said else ""


def sentence(caveat: Caveat) -> str:
    """A caveat with its head in bold, and the code that `harness verify` prints for it."""
    parts = (code_span(part) if isinstance(part, Code) else markdown(part) for part in caveat.text)
    code = f" ({code_span(caveat.code)})" if caveat.code else ""
    return f"**{caveat.head}**{code}{''.join(parts)}."


def clause_table(clauses: Sequence[ClauseResult]) -> str:
    """Clauses with measured value and bound, in this order."""
    rows = [
        (
            code_span(clause.id),
            f"**{clause.outcome}**" if clause.outcome is not Outcome.PASS else str(clause.outcome),
            markdown(number_text.value(clause.value, clause.unit)),
            markdown(shortened(bound_text.of(clause.bound, clause.unit))),
            markdown(shortened(reason_text.of(clause.reason))),
        )
        for clause in clauses
    ]
    return table(("clause", "outcome", "measured", "bound", "why"), rows)


def is_trivial(clause: ClauseResult) -> bool:
    """Whether it says no more than that something was of the right type."""
    return clause.outcome is Outcome.PASS and clause.id.endswith((".type", ".closed"))


def judged(clauses: Sequence[ClauseResult]) -> str:
    """How many clauses were judged, and how."""
    counts = ", ".join(f"{sum(clause.outcome is one for clause in clauses)} {one}" for one in Outcome)
    return f"{len(clauses)} judged: {counts}"


def tally(mutants: Sequence[MutantRecord]) -> str:
    """How many mutants there are, and what became of them."""
    counts = [(fate, sum(mutant.fate is fate for mutant in mutants)) for fate in Fate]
    return f"{len(mutants)} declared, " + (", ".join(f"{count} {fate}" for fate, count in counts if count) or "none")


def mutant_table(mutants: Sequence[MutantRecord]) -> str:
    """The kill table; empty where there are no mutants."""
    rows = [
        (
            code_span(mutant.id),
            str(mutant.fate) if mutant.fate is Fate.KILLED else f"**{mutant.fate}**",
            markdown(mutant.defect),
            ", ".join(map(code_span, mutant.violates)),
            ", ".join(map(code_span, mutant.failed)) or markdown(shortened(reason_text.of(mutant.reason))),
            "" if mutant.seconds is None else number_text.duration(mutant.seconds),
        )
        for mutant in mutants
    ]
    return table(("mutant", "fate", "defect", "must fail on", "failed on", "took"), rows) if rows else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def shortened(text: str) -> str:
    """At most 300 characters."""
    return text if len(text) <= 300 else text[:299] + "…"
