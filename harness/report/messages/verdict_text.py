"""What a verdict is worth, in words: what narrows it, who signed the bundle, and what verifying it found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract.bound import CLOSED, RULE
from harness.contract.builtin import CONTRADICTION, RESOLVED, UNLIKE_FILES, builtin_clauses
from harness.contract.reasons import ReasonCode
from harness.evidence.findings import NOT_ACCEPTED, STALE, UNSOUND, Code, Finding, Verification
from harness.judging.record import MutantRecord, Record
from harness.report.messages import bound_text, finding_text, number_text, qualifiers, reason_text
from harness.report.messages.not_finite import decisive

if TYPE_CHECKING:
    from harness.contract.clauses import ClauseResult
    from harness.evidence.verification import Against

__all__ = [
    "DOES_NOT_REPEAT",
    "IMPORTANCE",
    "Caveat",
    "Mono",
    "asked",
    "bundle_line",
    "bundle_totals",
    "caveats",
    "narrowed",
    "signature",
    "signed",
    "statement",
    "undecided",
    "why",
]

DOES_NOT_REPEAT = "It does not repeat: run once more, the case no longer violated all of these clauses."
"""What the reports say of such a counterexample."""


class Mono(str):
    """A text in a monospaced font: a name, a digest, or a parameter with its value."""

    __slots__ = ()


@dataclass(frozen=True)
class Caveat:
    """Something that narrows a verdict: a heading of a few words and a text without the full stop."""

    head: str
    text: tuple[str, ...]
    """The parts of the text, in order. Each is plain or `Mono`."""
    code: Code | None = None
    """The code of the remark behind it; None if there is no remark."""


_HEADS = {
    Code.MUTANTS_SKIPPED: "Unproven",
    Code.OVERRIDDEN: "Overridden",
    Code.OTHER_SUBJECT: "Another subject",
    Code.STALE_CONTRACT: "Stale contract",
    Code.STALE_FALSIFIER: "Stale falsifier",
    Code.STALE_SUBJECT: "Stale subject",
    Code.REDUCED_PROFILE: "Reduced profile",
    Code.WRONG_TARGET: "Not the claim's hardware",
    Code.DIRTY_TREE: "Uncommitted changes",
    Code.COMMIT_NOT_IN_HISTORY: "Not in this history",
    Code.CLOCK_AHEAD: "From the future",
    Code.OTHER_HARNESS: "Another harness",
    Code.UNPLANTED: "No planting score",
    Code.UNKNOWN_KEY: "Signed by an unknown key",
    Code.UNSIGNED: "Unsigned",
}
"""The heading of each remark, the most important first."""
IMPORTANCE = [str(code) for code in _HEADS]
"""The codes of remarks, the most important first."""
_BUILTIN = {*builtin_clauses(RESOLVED), CONTRADICTION, UNLIKE_FILES}
_KEY_LETTERS = 12
"""Letters of a key's id that suffice to recognize it."""


def caveats(record: Record, remarks: Iterable[Finding]) -> Iterator[Caveat]:
    """Yield everything that narrows a verdict, the most important first.

    Args:
        remarks: the remarks of verifying the bundle; while it is sealed, those that follow from its record
            (`harness.evidence.staleness.coverage`).
    """
    if not record.proven and not record.mutants_skipped:
        why = "not every mutant that ran was killed, or none ran"
        if any(mutant.fate is Fate.INTERRUPTED for mutant in record.mutants):
            why = "the run was interrupted before all mutants had run"
        yield Caveat("Unproven", (f": nothing shows that this falsifier can fail ({why})",))
    idle = [mutant for mutant in record.mutants if not mutant.fate.has_run]
    if idle and not record.mutants_skipped:
        reasons: dict[str, list[MutantRecord]] = {}
        for mutant in idle:
            why = "; ".join(filter(None, (reason_text.of(mutant.reason), reason_text.stated(mutant.reason))))
            reasons.setdefault(why, []).append(mutant)
        names = _listed(
            (*_listed((Mono(mutant.id),) for mutant in alike), f" ({reason})") for reason, alike in reasons.items()
        )
        yield Caveat(f"{len(idle)} of {len(record.mutants)} mutants not run", (": ", *names))
    order = list(_HEADS)
    for remark in sorted(remarks, key=lambda one: order.index(one.code)):
        yield Caveat(_HEADS[remark.code], (f": {finding_text.message(remark)}",), remark.code)


def narrowed(record: Record, remarks: Iterable[Finding]) -> list[str]:
    """Return the qualifications of a verdict, a few words each: other subject or parameters, and what weakens a PASS.

    Args:
        remarks: as for `caveats`.
    """
    codes = {remark.code for remark in remarks}
    of_another = {
        "another subject": Code.OTHER_SUBJECT in codes,
        **dict.fromkeys(qualifiers.overridden(record.overrides), True),
    }
    less = {
        qualifiers.UNPROVEN: not record.proven,
        qualifiers.profile(record.profile): record.profile != "full",
        "stale": not codes.isdisjoint(STALE),
        "not the claim's hardware": Code.WRONG_TARGET in codes,
    }
    said = {**of_another, **less} if record.verdict is Verdict.PASS else of_another
    return [text for text, applies in said.items() if applies]


def _listed(items: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the parts of all items, with commas between the items."""
    for index, parts in enumerate(items):
        if index:
            yield ", "
        yield from parts


def statement(record: Record, verification: Verification, remarked: Collection[Code | None]) -> str:
    """Return the verdict as a sentence. It names the subject and parameters if they are not the contract's."""
    if verification.standing == UNSOUND:
        found = len(verification.findings)
        return (
            f"This bundle is not sound: {number_text.counted(found, 'finding')}. "
            f"It says {record.verdict}; do not rely on anything that it says."
        )
    if verification.standing == NOT_ACCEPTED:
        why = "; ".join(finding_text.message(one) for one in verification.objections)
        return f"This bundle is sound and says {record.verdict}. It is not accepted: {why}."
    about, said = _said(record)
    of = _other_than_the_claim(record, remarked)
    sentence = f"{of}: {said}" if of else f"{about}{said}"
    left = (
        f" {number_text.counted(len(record.unjudged), 'clause')} not judged: {record.left_out}."
        if record.unjudged
        else ""
    )
    return f"{sentence[0].upper()}{sentence[1:]}{left}"


def why(record: Record) -> str:
    """Return the reason of a verdict, with value and bound of the clause that decided it; empty without a reason.

    If the measurement is missing, its bounds, which were not decided.
    """
    reason = decisive(record)
    told = reason_text.marked(reason)
    named = reason.clauses[:1] if reason and reason.code is ReasonCode.CLAUSE else ()
    for clause in record.clauses:
        if clause.id in named and clause.bound and clause.outcome is Outcome.FAIL:
            value, bound = number_text.value(clause.value, clause.unit), bound_text.of(clause.bound, clause.unit)
            cause = clause.reason
            if cause and cause.code is ReasonCode.VIOLATED and not cause.text and clause.bound.keyword != CLOSED:
                return f"{clause.id}: {cause.place} is {value}; the bound is {bound}"
            return f"{told}: {value}; the bound is {bound}"
    place = named[0].rpartition(".")[0] if named else ""
    bounds = {clause.id: undecided(clause) for clause in record.clauses if place == clause.id.rpartition(".")[0] != ""}
    listed = ", ".join(f"{name} ({bound})" for name, bound in bounds.items() if bound)
    return "; not decided: ".join(filter(None, (told, listed)))


def undecided(clause: ClauseResult) -> str:
    """Return the bound of a clause that was not measured; empty for a rule, a type and a built-in clause."""
    if clause.outcome is not Outcome.NOT_MEASURED or clause.bound is None or clause.id in _BUILTIN:
        return ""
    return "" if clause.bound.keyword in (RULE, CLOSED, "type") else bound_text.of(clause.bound, clause.unit)


def _said(record: Record) -> tuple[str, str]:
    """Return a verdict in two parts: the beginning of the sentence, and the rest of it."""
    total = len(record.clauses)
    held = f"none of the {total} clauses that were judged was violated"
    if not record.unjudged:
        held = "no clause was violated, every clause was measured"
    match record.verdict:
        case Verdict.PASS if record.proven:
            return "", f"{held}, and every mutant that ran was killed."
        case Verdict.PASS:
            return "", f"{held}, but no mutant shows that the falsifier can fail."
        case Verdict.FAIL:
            failed = sum(clause.outcome is Outcome.FAIL for clause in record.clauses)
            return "the claim is ", f"refuted: {failed} of {total} clauses violated."
        case Verdict.VOID:
            return "", "the subject passed, but a mutant survived, so the PASS means nothing."
        case Verdict.NOT_MEASURED:
            return "the claim was ", "neither confirmed nor refuted, because something prevented the measurement."


def _other_than_the_claim(record: Record, remarked: Collection[Code | None]) -> str:
    """Return subject and parameters if they are not the contract's; else an empty text."""
    parts = []
    if Code.OTHER_SUBJECT in remarked:
        parts.append(f"of the subject {record.judged}")
    if record.overrides:
        parts.append(f"with {qualifiers.changed(record.overrides)}")
    return f"{', '.join(parts)} (not the contract's)" if parts else ""


def bundle_totals(verifications: Sequence[Verification]) -> str:
    """Return how many bundles are sound, and their verdicts."""
    sound = [one for one in verifications if one.sound]
    verdicts = ", ".join(f"{sum(one.verdict is verdict for one in sound)} {verdict}" for verdict in Verdict)
    refused = sum(one.standing == NOT_ACCEPTED for one in sound)
    return (
        f"{len(sound)} sound, {len(verifications) - len(sound)} unsound; of the sound: {verdicts}"
        f"{f'; {refused} of them not accepted' if refused else ''}"
    )


def bundle_line(one: Verification) -> str:
    """Return one line with a bundle's verdict, everything that qualifies it, and its path."""
    parts = [one.standing if one.accepted else f"{one.standing} ({one.verdict or 'no verdict'})"]
    if one.id is not None:
        parts += [one.id, qualifiers.profile(one.profile), str(one.device)]
    if one.verdict is not None:
        parts.append("proven" if one.proven else qualifiers.UNPROVEN)
    if one.signed_by:
        parts.append("signed by " + ", ".join(key[:_KEY_LETTERS] for key in one.signed_by))
    parts += qualifiers.overridden(one.overrides)
    if one.subject is not None:
        parts.append(qualifiers.another_subject(one.subject))
    if one.reason and one.reason.code is not ReasonCode.UNPROVEN:
        parts.append(reason_text.of(one.reason))
    return "  ".join([*parts, str(one.path)])


def signed(one: Verification) -> str:
    """Return who signed a bundle, in a few words."""
    codes = {finding.code for finding in (*one.findings, *one.remarks)}
    if Code.FORGED in codes:
        return "forged attestation"
    if Code.UNSIGNED in codes:
        return "unsigned"
    if Code.UNKNOWN_KEY in codes:
        return "signed by an unknown key"
    if one.signed_by:
        return f"signed by {', '.join(key[:_KEY_LETTERS] for key in one.signed_by)}"
    return "no valid signature"


def signature(one: Verification) -> Caveat:
    """Return who signed a bundle, and what the signature proves."""
    found = {finding.code: finding for finding in reversed((*one.findings, *one.remarks))}
    for code, head, more in (
        (Code.FORGED, "The attestation is forged", ""),
        (Code.UNSIGNED, "Unsigned", ""),
        (Code.UNKNOWN_KEY, "Signed by an unknown key", ". Only signatures of trusted keys were checked"),
    ):
        if code in found:
            message = finding_text.message(found[code])
            return Caveat(head, (f"{message[:1].upper()}{message[1:]}{more}",), code)
    if one.signed_by:
        keys = _monospaced(one.signed_by)
        if len(one.signed_by) > 1:
            return Caveat("Signed by trusted keys", ("Keys ", *keys, ": the signatures verify, over every file"))
        return Caveat("Signed by a trusted key", ("Key ", *keys, ": the signature verifies, over every file"))
    changed = dict.fromkeys(finding.file for finding in one.findings if finding.code is Code.TAMPERED if finding.file)
    if changed:
        covers = "A signature covers the files that the manifest lists, and these differ: "
        return Caveat("No valid signature", (covers, *_monospaced(list(changed))))
    return Caveat("No valid signature", ("The bundle is unsound, and a signature does not change that",))


def asked(against: Against) -> Iterator[Sequence[str]]:
    """Yield what the bundles were checked against, as sentences without the full stop."""
    if against.state is None:
        yield ("Staleness was not checked, because this needs a project",)
    else:
        commit = against.state.commit
        where = (" at commit ", Mono(commit.revision[:_KEY_LETTERS])) if commit.revision else (" without a commit",)
        yield ("Staleness was checked against the project", *where)
    if against.trusted:
        trusted = _monospaced(list(against.trusted))
        yield ("Trusted keys: ", *trusted, "; a bundle that none of them signed is not accepted")
    else:
        yield ("No trusted key was given (", Mono("--trusted-key"), "), so no signature was checked")


def _monospaced(names: Sequence[str]) -> list[str]:
    """Return ids of keys, or names of files, with commas between them."""
    return list(_listed([Mono(name)] for name in names))
