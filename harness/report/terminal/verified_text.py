"""Formats verified bundles: those without a sound and proven PASS first, then shared remarks once each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.base.shortening import first
from harness.base.vocabulary import Verdict
from harness.evidence.findings import Code, Verification
from harness.report.messages import finding_text
from harness.report.messages.finding_text import bundle_line
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import COLOURS, Line

__all__ = ["verified_lines"]

_MOST_MESSAGES = 3
"""Maximum different messages for one code."""
_MOST_NAMES = 4
"""Maximum claims for one message."""


def verified_lines(verifications: Sequence[Verification], verbose: bool) -> Iterator[Line]:
    """Yield a line for each bundle with its findings, and then the remarks.

    Args:
        verbose: show the remarks below each bundle instead.
    """
    alone = verbose or len(verifications) == 1
    for verification in sorted(verifications, key=_rank):
        yield bundle_line(verification), _style(verification)
        for finding in verification.findings:
            yield f"  {finding_text.line(finding)}", "red"
        for finding in verification.remarks:
            if alone or finding in verification.objections:
                yield f"  {finding_text.line(finding)}", "yellow" if finding in verification.objections else ""
    if not alone:
        yield from _remarks(verifications)


def _rank(verification: Verification) -> int:
    """Return the place of a bundle: the worse, the earlier. Equal bundles keep their order."""
    if not verification.sound:
        return 0
    if not verification.accepted:
        return 1
    order = (Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED)
    if verification.verdict in order:
        return 2 + order.index(verification.verdict)
    return 6 if verification.proven else 5


def _style(verification: Verification) -> str:
    if not verification.accepted:
        return "bold red"
    if verification.verdict is Verdict.PASS and not verification.proven:
        return "yellow"
    return COLOURS.get(str(verification.verdict), "")


def _remarks(verifications: Sequence[Verification]) -> Iterator[Line]:
    """Yield each remark once: its code, the number of bundles that have it, and its messages with the claims."""
    codes: dict[str, dict[str, list[str]]] = {}
    for verification in verifications:
        for finding in verification.remarks:
            names = codes.setdefault(str(finding.code), {}).setdefault(finding_text.message(finding), [])
            names.append(verification.id or verification.path.name)
    if codes:
        yield "", ""
        yield "Remarks", "bold"
    total = len(verifications)
    for code, messages in sorted(codes.items(), key=lambda item: [*Code].index(Code(item[0]))):
        count = sum(map(len, messages.values()))
        number = f"all {total} bundles" if count == total else counted(count, "bundle")
        ordered = sorted(messages.items(), key=lambda item: -len(item[1]))
        if len(ordered) == 1:
            yield f"  {code}, {number}: {ordered[0][0]}{_of(ordered[0][1], total)}", ""
            continue
        yield f"  {code}, {number}", ""
        for message, names in ordered[:_MOST_MESSAGES]:
            yield f"    {message}{_of(names, total)}", ""
        if len(ordered) > _MOST_MESSAGES:
            yield f"    and {len(ordered) - _MOST_MESSAGES} other messages (-v)", "dim"
    if codes:
        yield "", ""


def _of(names: Sequence[str], total: int) -> str:
    """Return the claims of a remark in brackets; empty if all bundles have it."""
    if len(names) == total:
        return ""
    return f" ({first(list(dict.fromkeys(names)), _MOST_NAMES)})"
