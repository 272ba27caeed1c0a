"""Bundles as one Markdown text, for a comment on a pull request or the summary of a workflow's job.

GitHub cuts or refuses a text that is too long. So the text consists of blocks, the most important first: the counts, a
table of verdicts, what speaks against each claim. What narrows a PASS stands in its row in a few words; the pages have
the rest. A block that does not fit is left out whole, and the last line counts the blocks that are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harness.base.shortening import cut
from harness.base.vocabulary import Fate, Verdict
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Finding
from harness.judging.record import Record
from harness.report.messages import finding_text, number_text, reason_text
from harness.report.messages.finding_text import bundle_totals
from harness.report.messages.not_finite import wrong
from harness.report.messages.qualifiers import mutants, refutation_text
from harness.tools.ci_reports.markdown_text import code_block, code_span, markdown
from harness.tools.report_text import caveats, narrowed, signed, why
from harness.tools.text_report import BundleResult, TextReport

__all__ = ["COMMENT", "LEAST", "MARK", "REPORT", "render"]

COMMENT: Final = 64_000
"""Bytes of UTF-8. GitHub accepts 65,536 characters in a comment, and a workflow adds some lines."""
LEAST: Final = 2000
"""Bytes that suffice for the counts."""
MARK: Final = "<!-- falsifier-harness report -->"
"""The invisible first line. A workflow uses it to find and replace its earlier comment."""

_HEAD = (
    "| verdict | claim | profile | device | mutants | signature | took |\n| --- | --- | --- | --- | --- | --- | --- |"
)
_FOR_LAST = 200
"""Bytes reserved for the line that says what was left out."""
_MOST_ITEMS = 20
_LONGEST, _LONGEST_COMMAND = 300, 2000
"""Characters of a text, and of a command."""
_GRAVEST = (UNSOUND, NOT_ACCEPTED, Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, Verdict.PASS)
_IN_THE_TABLE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})
"""Remarks that the table already shows in each row, so they need no section."""


def render(bundles: Sequence[BundleResult], limit: int = COMMENT) -> str:
    """Return the text: at most `limit` bytes of UTF-8, with a newline at its end.

    Args:
        limit: at least LEAST.
    """
    ordered = sorted(bundles, key=lambda bundle: (bundle.is_known, _GRAVEST.index(bundle.verification.standing)))
    head = f"{MARK}\n## Falsifier harness: {_heading(bundles)}\n\n{_denominator(bundles)}"
    room = limit - len(head.encode()) - _FOR_LAST
    rows, room = _fitting([_row(bundle) for bundle in ordered], room - 200, max(0, room // 2))
    blocks = [block for bundle in ordered if not bundle.is_known for block in _against(bundle)]
    known = [f"- {_known(bundle)}" for bundle in ordered if bundle.is_known]
    blocks += ["\n".join(["### Known refutations\n", *known])] if known else []
    shown, _ = _fitting(blocks, room, room)
    parts = [head]
    if rows:
        parts.append("\n".join([_HEAD, *rows]))
    parts += shown
    missing = [
        f"{count} {what}"
        for count, what in ((len(ordered) - len(rows), "rows"), (len(blocks) - len(shown), "sections"))
        if count
    ]
    if missing:
        parts.append(f"_Left out, because the text would be too long: {' and '.join(missing)}. The bundles have them._")
    return "\n\n".join(parts) + "\n"


def _fitting(blocks: Sequence[str], room: int, most: int) -> tuple[list[str], int]:
    """Return the blocks that fit into `room` and into `most` bytes, in order, and the bytes left of `room`."""
    shown: list[str] = []
    for block in blocks:
        size = len(block.encode()) + 40  # the separators around it
        if size <= min(room, most):
            shown.append(block)
            room, most = room - size, most - size
    return shown, room


def _heading(bundles: Sequence[BundleResult]) -> str:
    news = [bundle.verification.standing for bundle in bundles if not bundle.is_known]
    counts = [(word, news.count(word)) for word in _GRAVEST]
    counts.append(("known FAIL", len(bundles) - len(news)))
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing was measured"


def _denominator(bundles: Sequence[BundleResult]) -> str:
    claims = len({bundle.name for bundle in bundles})
    of = f"{number_text.counted(len(bundles), 'bundle')} of {number_text.counted(claims, 'claim')}"
    return f"{of}: {bundle_totals([bundle.verification for bundle in bundles])}."


def _row(bundle: BundleResult) -> str:
    """Return the row of a bundle in the table of verdicts."""
    record = bundle.record
    if record is None:
        verification = bundle.verification
        standing = f"**{verification.standing}** ({verification.verdict or 'no verdict'})"
        why = markdown(cut(bundle.problem, _LONGEST))
        return f"| {standing} | {code_span(bundle.name)} | | {why} | | {signed(verification)} | |"
    verdict = str(record.verdict) if record.verdict is Verdict.PASS else f"**{record.verdict}**"
    if bundle.refutation is not None:
        verdict += ", known" if bundle.is_known else ", **new**"
    if bundle.stands_in_for:
        verdict += ", stand-in"
    cells = (
        f"{verdict}{_beside(record, bundle.verification.remarks)}",
        f"{code_span(record.id)} {markdown(cut(record.title, _LONGEST))}",
        record.profile,
        markdown(cut(record.device.name or record.device.type, _LONGEST)),
        mutants(record),
        signed(bundle.verification),
        number_text.duration(record.seconds),
    )
    return f"| {' | '.join(cells)} |"


def _against(bundle: BundleResult) -> Iterator[str]:
    """Yield what speaks against a claim or its evidence. A PASS yields nothing."""
    record = bundle.record
    if record is None:
        verification = bundle.verification
        listed = _list(map(finding_text.line, verification.objections))
        what = "is no evidence" if not verification.sound else f"says {verification.verdict}, and is not accepted"
        place = code_span(str(bundle.path))
        yield f"### {verification.standing}: {markdown(bundle.name)}\n\n{place} {what}:\n\n{listed}"
        return
    holds = record.verdict is Verdict.PASS and bundle.refutation is not None
    if record.verdict is Verdict.PASS and not holds:
        return
    head = f"### {record.verdict}{_beside(record, bundle.verification.remarks)}: {markdown(record.id)}"
    new = "" if bundle.refutation is None else markdown(refutation_text(bundle.refutation, record.result))
    lived = [
        f"mutant {mutant.id} {mutant.fate}: {reason_text.marked(mutant.reason)}; its defect: {mutant.defect}"
        for mutant in record.mutants
        if mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED)
    ]
    _, unmeasured = wrong(record.clauses)
    claim = "" if bundle.sealed is None else f"Claimed: {markdown(cut(bundle.sealed.claim, _LONGEST))}"
    parts = [
        head,
        new,
        claim,
        _list([*([] if lived else why(record, bundle.sealed)), *filter(None, [unmeasured]), *lived]),
    ]
    parts += [_reproduce(record), f"Bundle: {code_span(bundle.path.name)}", _caveats(bundle, record)]
    yield "\n\n".join(part for part in parts if part)


def _known(bundle: BundleResult) -> str:
    """Return the line of a refutation that the contract knows."""
    if bundle.record is None or bundle.refutation is None:
        return ""
    return f"{code_span(bundle.name)} {markdown(refutation_text(bundle.refutation, bundle.record.result))}"


def _caveats(bundle: BundleResult, record: Record) -> str:
    """Return a list of what narrows the verdict; empty if nothing does."""
    remarks = [remark for remark in bundle.verification.remarks if remark.code not in _IN_THE_TABLE]
    stands_in = [f"- **Stand-in** for: {markdown(bundle.stands_in_for)}"] if bundle.stands_in_for else []
    return "\n".join(
        [
            *stands_in,
            *(f"- **{markdown(caveat.head)}**: {markdown(caveat.text)}." for caveat in caveats(record, remarks)),
        ]
    )


def _reproduce(record: Record) -> str:
    if len(record.command) > _LONGEST_COMMAND:
        return "The command that reproduces this is too long for here; record.json has it."
    return f"To reproduce, as stated by the run:\n\n{code_block(record.command, 'sh')}"


def _beside(record: Record, remarks: Iterable[Finding]) -> str:
    """Return the qualifications of a verdict in parentheses; empty if there are none."""
    qualifications = markdown(cut(", ".join(narrowed(record, remarks)), _LONGEST))
    return f" ({qualifications})" if qualifications else ""


def _list(items: Iterable[str]) -> str:
    """Return a list of texts, the first ones if there are many."""
    texts = [f"- {markdown(cut(item, _LONGEST))}" for item in items]
    more = [f"- and {len(texts) - _MOST_ITEMS} more"] if len(texts) > _MOST_ITEMS else []
    return "\n".join([*texts[:_MOST_ITEMS], *more])


REPORT = TextReport("a comment for a pull request, below 64 KB", render)
