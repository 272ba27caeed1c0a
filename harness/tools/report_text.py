"""What a verdict is worth, in words that pages, comments and CI reports share: what narrows it, and who signed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from harness.base.shortening import first
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import ReasonCode
from harness.evidence.findings import NOT_ACCEPTED, STALE, UNSOUND, Code, Finding, Verification
from harness.evidence.verification import Against
from harness.judging.record import Record
from harness.report.messages import bound_text, finding_text, number_text, qualifiers, reason_text
from harness.report.messages.finding_text import KEY_LETTERS
from harness.report.messages.not_finite import decisive, violations
from harness.report.messages.verdict_text import exceeds, undecided, words

__all__ = ["Caveat", "asked", "caveats", "narrowed", "signature", "signed", "statement", "violation", "why"]


class Caveat(NamedTuple):
    """Something that narrows a verdict."""

    head: str
    """The code of a remark, or a few words."""
    text: str
    """A sentence without the full stop."""


def caveats(record: Record, remarks: Iterable[Finding]) -> Iterator[Caveat]:
    """Yield everything that narrows a verdict, the most important first.

    Args:
        remarks: those of verifying the bundle.
    """
    if not record.proven and not record.mutants_skipped:
        why = "not every mutant that ran was killed, or none ran"
        if any(mutant.fate is Fate.INTERRUPTED for mutant in record.mutants):
            why = "the run was interrupted before all mutants had run"
        yield Caveat("unproven", f"nothing shows that this falsifier can fail ({why})")
    idle = [mutant for mutant in record.mutants if not mutant.fate.has_run]
    if idle and not record.mutants_skipped:
        reasons: dict[str, list[str]] = {}
        for mutant in idle:
            reasons.setdefault(reason_text.marked(mutant.reason), []).append(mutant.id)
        names = "; ".join(f"{', '.join(alike)}: {reason}" for reason, alike in reasons.items())
        yield Caveat(f"{len(idle)} of {len(record.mutants)} mutants not run", names)
    for remark in sorted(remarks, key=lambda finding: [*Code].index(finding.code)):
        yield Caveat(remark.code, finding_text.message(remark))


def narrowed(record: Record, remarks: Iterable[Finding]) -> list[str]:
    """Return the qualifications of a verdict, a few words each: what is not the contract's, and what weakens a PASS."""
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


def statement(record: Record, verification: Verification, remarked: Collection[str]) -> str:
    """Return the verdict as a sentence. It names the subject and parameters if they are not the contract's."""
    if verification.standing == UNSOUND:
        count = number_text.counted(len(verification.findings), "finding")
        return f"This bundle is not sound: {count}. It says {record.verdict}; do not rely on anything that it says."
    if verification.standing == NOT_ACCEPTED:
        why = "; ".join(finding_text.message(objection) for objection in verification.objections)
        return f"This bundle is sound and says {record.verdict}. It is not accepted: {why}."
    other = [f"of the subject {record.judged}"] if Code.OTHER_SUBJECT in remarked else []
    other += [f"with {qualifiers.changed(record.overrides)}"] if record.overrides else []
    failed = sum(clause.outcome is Outcome.FAIL for clause in record.clauses)
    proof = "every mutant that ran was killed" if record.proven else "no mutant shows that the falsifier can fail"
    meaning = {
        Verdict.PASS: f"no clause that was judged was violated, {'and' if record.proven else 'but'} {proof}",
        Verdict.FAIL: f"{'' if other else 'the claim is '}refuted: {failed} of {len(record.clauses)} clauses violated",
        Verdict.VOID: "the subject passed, but a mutant survived, so the PASS means nothing",
        Verdict.NOT_MEASURED: "neither confirmed nor refuted, because something prevented the measurement",
    }[record.verdict]
    sentence = f"{', '.join(other)} (not the contract's): {meaning}" if other else meaning
    unjudged = number_text.counted(len(record.unjudged), "clause")
    left = f" {unjudged} not judged: {record.left_out}." if record.unjudged else ""
    return f"{sentence[0].upper()}{sentence[1:]}.{left}"


def why(record: Record, contract: Contract | None = None) -> list[str]:
    """Return why a verdict is no proven PASS: of a FAIL each violation, else the reason; empty without one.

    Args:
        contract: its words for what the clauses read.
    """
    if record.verdict is Verdict.FAIL and (found := violations(record.clauses)):
        sentences = [(f"{clause.id}: {violation(clause, contract)}", first(others, 3)) for clause, others in found]
        return [f"{text}, which violates {others} too" if others else text for text, others in sentences]
    reason = decisive(record)
    named = reason.clauses[:1] if reason and reason.code is ReasonCode.CLAUSE else ()
    place = named[0].rpartition(".")[0] if named else ""
    bounds = {clause.id: undecided(clause) for clause in record.clauses if place == clause.id.rpartition(".")[0] != ""}
    listed = ", ".join(f"{name} ({bound})" for name, bound in bounds.items() if bound)
    clause_text = "; not decided: ".join(filter(None, (reason_text.marked(reason), listed)))
    return [clause_text] if clause_text else []


def violation(clause: ClauseResult, contract: Contract | None = None) -> str:
    """Return why a clause is no PASS: the contract's words or the reason, the value and the bound."""
    value, bound = number_text.value(clause.value, clause.unit), bound_text.of(clause.bound, clause.unit)
    shown = f"{clause.reason.place} is {value}" if clause.reason and exceeds(clause) else value
    text = ": ".join(filter(None, (words(clause, contract), "" if clause.value is None or not bound else shown)))
    return f"{text}; the bound is {bound}" if bound else text


def signed(verification: Verification) -> str:
    """Return who signed a bundle, in a few words."""
    codes = {finding.code for finding in (*verification.findings, *verification.remarks)}
    words = {
        Code.FORGED: "forged attestation",
        Code.UNSIGNED: "unsigned",
        Code.UNKNOWN_KEY: "signed by an unknown key",
    }
    keys = ", ".join(key[:KEY_LETTERS] for key in verification.signed_by)
    known = f"signed by {keys}" if keys else "no valid signature"
    return next((word for code, word in words.items() if code in codes), known)


def signature(verification: Verification) -> str:
    """Return what the signature of a bundle proves, as a sentence without the full stop."""
    by_code = {finding.code: finding for finding in reversed((*verification.findings, *verification.remarks))}
    for code in (Code.FORGED, Code.UNSIGNED, Code.UNKNOWN_KEY):
        if code in by_code:
            message = finding_text.message(by_code[code])
            return message[:1].upper() + message[1:]
    if verification.signed_by:
        return f"The signatures of trusted keys verify, over every file: {', '.join(verification.signed_by)}"
    return "A signature covers the files that the manifest lists, and the findings above contradict it"


def asked(against: Against) -> Iterator[str]:
    """Yield what the bundles were checked against, as sentences without the full stop."""
    if against.state is None:
        yield "Staleness was not checked, because this needs a project"
    else:
        revision = against.state.commit.value
        where = f"at commit {revision[:KEY_LETTERS]}" if revision else "without a commit"
        yield f"Staleness was checked against the project {where}"
    if against.trusted:
        yield f"Trusted keys: {', '.join(against.trusted)}; a bundle that none of them signed is not accepted"
    else:
        yield "No trusted key was given (--trusted-key), so no signature was checked"
