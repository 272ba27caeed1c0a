"""What a reader must know before taking a verdict for more than it is; every report for people says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.base.vocabulary import Fate, Verdict
from harness.evidence import findings
from harness.evidence.findings import Finding
from harness.judging.record import MutantRecord, Record
from harness.report import reason_text

__all__ = ["Caveat", "Code", "caveats", "changed", "narrowed"]


class Code(str):
    """A text that stands in a monospaced face: a name, a digest, a parameter with its value."""

    __slots__ = ()


@dataclass(frozen=True)
class Caveat:
    """A heading of a few words and what follows it, up to and without the full stop."""

    head: str
    text: tuple[str, ...]
    """Parts to be written one after the other; each is plain, or `Code`."""
    code: findings.Code | None = None
    """Of the remark that says so; None where no remark does."""


_HEADS = {
    findings.Code.MUTANTS_SKIPPED: "Unproven",
    findings.Code.OVERRIDDEN: "Overridden",
    findings.Code.OTHER_SUBJECT: "Another subject",
    findings.Code.STALE_CONTRACT: "Stale contract",
    findings.Code.STALE_FALSIFIER: "Stale falsifier",
    findings.Code.STALE_SUBJECT: "Stale subject",
    findings.Code.REDUCED_PROFILE: "Reduced profile",
    findings.Code.WRONG_TARGET: "Not the claim's hardware",
    findings.Code.DIRTY_TREE: "Uncommitted changes",
    findings.Code.COMMIT_NOT_IN_HISTORY: "Not in this history",
    findings.Code.CLOCK_AHEAD: "From the future",
    findings.Code.OTHER_HARNESS: "Another harness",
    findings.Code.UNKNOWN_KEY: "Signed by an unknown key",
    findings.Code.UNSIGNED: "Unsigned",
}
"""What each remark is called, the weightiest first."""
_STALE = frozenset({findings.Code.STALE_CONTRACT, findings.Code.STALE_FALSIFIER, findings.Code.STALE_SUBJECT})
_MOST_CHANGED = 4


def caveats(record: Record, remarks: Iterable[Finding]) -> Iterator[Caveat]:
    """Everything that narrows what the run says, weightiest first.

    Args:
        remarks: what verifying the bundle remarked; of one that is just being sealed, what its record says itself
            (`harness.evidence.staleness.coverage`).
    """
    if not record.proven and not record.mutants_skipped:
        why = "not every mutant that ran was killed, or none ran"
        if any(mutant.fate is Fate.INTERRUPTED for mutant in record.mutants):
            why = "the run was interrupted before all mutants had run"
        yield Caveat("Unproven", (f": nothing shows that this falsifier could have failed ({why})",))
    idle = [mutant for mutant in record.mutants if not mutant.fate.has_run]
    if idle and not record.mutants_skipped:
        reasons: dict[str, list[MutantRecord]] = {}
        for mutant in idle:
            reasons.setdefault(reason_text.of(mutant.reason), []).append(mutant)
        names = _listed(
            (*_listed((Code(mutant.id),) for mutant in alike), f" ({reason})") for reason, alike in reasons.items()
        )
        yield Caveat(f"{len(idle)} of {len(record.mutants)} mutants not run", (": ", *names))
    order = list(_HEADS)
    for remark in sorted(remarks, key=lambda one: order.index(one.code)):
        yield Caveat(_HEADS[remark.code], (f": {remark.message}",), remark.code)


def narrowed(record: Record, remarks: Iterable[Finding]) -> list[str]:
    """What must stand beside a verdict, in a few words each: of what else it is, and what makes a PASS less.

    Args:
        remarks: as for `caveats`.
    """
    codes = {remark.code for remark in remarks}
    of_another = {
        "another subject": findings.Code.OTHER_SUBJECT in codes,
        f"parameters overridden: {changed(record)}": bool(record.overrides),
    }
    less = {
        "unproven": not record.proven,
        f"{record.profile} profile": record.profile != "full",
        "stale": not codes.isdisjoint(_STALE),
        "not the claim's hardware": findings.Code.WRONG_TARGET in codes,
    }
    said = {**of_another, **less} if record.verdict is Verdict.PASS else of_another
    return [text for text, applies in said.items() if applies]


def changed(record: Record) -> str:
    """The parameters that are not the contract's, with their values: the first of them, where there are many."""
    shown = [f"{name}={value}"[:80] for name, value in record.overrides.items()]
    return ", ".join(shown[:_MOST_CHANGED]) + (
        f" and {len(shown) - _MOST_CHANGED} more" if len(shown) > _MOST_CHANGED else ""
    )


def _listed(items: Iterable[Sequence[str]]) -> Iterator[str]:
    """The parts of several things with commas between them."""
    for index, parts in enumerate(items):
        if index:
            yield ", "
        yield from parts
