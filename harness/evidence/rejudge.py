"""Judging a bundle again, from its contract and observations, and comparing the result with its record.

Everything in a record that follows from the contract and the observations is derived again and compared. Reasons are
compared whole, except for the words of the CEL engine, which differ between its versions. What the machine lacked for a
mutant that did not run cannot be derived: it is a statement of the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.base import strictjson
from harness.base.device import Device
from harness.base.shortening import cut
from harness.base.strictjson import JsonObject, pointer
from harness.base.vocabulary import Fate
from harness.contract import Contract, Mutant
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.bundle_layout import MUTANTS, OBSERVATION, RECORD
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.judging.judge import Judgment, judge, requested
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import ClaimVerdict, MutantOutcome, claim_verdict, fate_of

__all__ = ["Rejudgment", "rejudge"]

_ENGINE = frozenset({ReasonCode.CANNOT_BE_EVALUATED, ReasonCode.NOT_BOOLEAN})
"""Reasons whose text is the CEL engine's."""
_UNTESTABLE = frozenset({"gpus", "modules", "disk_gib", "vulkan"})
"""Requirements that cannot be checked, because a bundle does not record whether the machine met them."""


@dataclass(frozen=True)
class Rejudgment:
    """The result of judging a bundle again, and where its record differs."""

    claim: ClaimVerdict
    mutants: Mapping[str, Fate]
    findings: tuple[Finding, ...]


def rejudge(
    record: Record, contract: Contract, observation: Observation, mutants: Mapping[str, Observation]
) -> Rejudgment:
    """Judge the subject and every mutant again, and derive the verdict.

    Args:
        mutants: the observations in the bundle, by the mutant's id.
    """
    findings = [*_identity(record, contract), *_trial(record, contract, observation)]
    judgment = judge(contract, observation)
    findings += _clauses(record, judgment)
    findings += _compare("/unjudged", record.unjudged, judgment.unjudged, Detail.OTHERWISE_JUDGED)
    outcomes = []
    recorded = {mutant.id: mutant for mutant in record.mutants}
    for position, mutant in enumerate(contract.mutants):
        then = recorded.get(mutant.id)
        if then is None:
            findings.append(_differs("/mutants", Detail.MUTANT_LEFT_OUT, mutant=mutant.id))
            then = _unlisted(mutant)
        outcome, found = _mutant(then, position, mutant, record, contract, mutants.get(mutant.id))
        outcomes.append(outcome)
        findings += found
    findings += _order(record, contract)
    claim = claim_verdict(judgment, outcomes, skipped=record.mutants_skipped)
    findings += _verdict(record, claim)
    if claim.proven:
        findings += _excuses(contract, observation, outcomes, frozenset(contract.unjudged(record.profile)))
    return Rejudgment(claim, {one.id: one.fate for one in outcomes}, tuple(findings))


def _identity(record: Record, contract: Contract) -> Iterator[Finding]:
    """Compare the record's fields about the contract with the bundle's contract."""
    names = ("id", "issue", "spec", "title", "claim", "falsifier", "target")
    yield from _fields("", names, record, contract, Detail.OTHER_THAN_CONTRACT)
    yield from _compare("/contract_digest", record.contract_digest, contract.digest, Detail.OTHER_THAN_CONTRACT)


def _trial(record: Record, contract: Contract, observation: Observation) -> Iterator[Finding]:
    """Compare the record with the observation, and the observation with the contract and the overrides."""
    names = ("subject", "profile", "seed", "device", "resolved")
    yield from _fields("", names, record, observation, Detail.OTHER_THAN_OBSERVATION)
    if record.profile not in contract.profiles:
        yield _differs("/profile", Detail.NO_PROFILE, profile=record.profile)
        return
    expected = {**contract.profiles[record.profile].parameters, **record.overrides, **record.subject_parameters}
    if not _same(observation.parameters, expected):
        yield finding(
            Code.REJUDGED_DIFFERENTLY,
            Detail.OTHER_PARAMETERS,
            OBSERVATION,
            "/parameters",
            profile=record.profile,
            **_which(observation.parameters, expected),
        )
    asked = requested(contract, record.profile, expected, observation.device.type)
    yield from _compare("/requested", record.requested, asked, Detail.OTHERWISE_REQUESTED)


def _clauses(record: Record, judgment: Judgment) -> Iterator[Finding]:
    then = {clause.id: clause for clause in record.clauses}
    for position, clause in enumerate(record.clauses):
        if then[clause.id] is not clause:
            yield _differs(pointer("clauses", position), Detail.CLAUSE_TWICE, clause=clause.id)
    now = {clause.id: clause for clause in judgment.clauses}
    for clause in judgment.clauses:
        if clause.id not in then:
            yield _differs("/clauses", Detail.CLAUSE_LEFT_OUT, clause=clause.id, outcome=clause.outcome)
    for position, clause in enumerate(record.clauses):
        where = pointer("clauses", position)
        if clause.id not in now:
            yield _differs(where, Detail.NO_CLAUSE, clause=clause.id, outcome=clause.outcome)
        else:
            yield from _clause(where, clause, now[clause.id])


def _clause(where: str, then: ClauseResult, now: ClauseResult) -> Iterator[Finding]:
    if then.outcome is not now.outcome:
        yield _result(f"{where}/outcome", then.id, then.outcome, now.outcome, now.reason)
    yield from _fields(where, ("value", "bound", "unit"), then, now, Detail.OTHERWISE_JUDGED)
    yield from _reasons(f"{where}/reason", then.reason, now.reason)


def _reasons(where: str, then: Reason | None, now: Reason | None) -> Iterator[Finding]:
    if (then and then.codes) != (now and now.codes):
        yield from _compare(where, then and then.codes, now and now.codes, Detail.OTHERWISE_JUDGED)
    else:
        yield from _compare(where, _derived(then), _derived(now), Detail.OTHERWISE_JUDGED)


def _derived(reason: Reason | None) -> JsonObject | None:
    """Return the part of a reason that follows from contract and observation: all but the CEL engine's own words."""
    if reason is None:
        return None
    document = replace(reason, text="" if reason.code in _ENGINE else reason.text, cause=None).to_json()
    return document if reason.cause is None else {**document, "cause": _derived(reason.cause)}


def _mutant(
    then: MutantRecord, position: int, mutant: Mutant, record: Record, contract: Contract, seen: Observation | None
) -> tuple[MutantOutcome, list[Finding]]:
    where = pointer("mutants", position)
    findings = [*_fields(where, ("subject", "defect", "violates"), then, mutant, Detail.OTHER_THAN_CONTRACT)]
    if seen is None:
        if then.fate is Fate.INCONCLUSIVE or not then.fate.has_run:
            findings += _untried(f"{where}/reason", then.reason, mutant, record, contract)
            return then.outcome(), findings
        findings.append(finding(Code.INCOMPLETE, Detail.NO_TRIAL, MUTANTS, mutant=mutant.id, fate=then.fate))
        return MutantOutcome(mutant.id, Fate.INCONCLUSIVE, Reason(ReasonCode.NO_OBSERVATION)), findings
    now = fate_of(mutant, judge(contract, seen))
    if then.fate is not now.fate:
        findings.append(_result(f"{where}/fate", mutant.id, then.fate, now.fate, now.reason))
    names = ("failed", "values") if then.values else ("failed",)
    findings += _fields(where, names, then, now, Detail.OTHERWISE_JUDGED)
    findings += _reasons(f"{where}/reason", then.reason, now.reason)
    findings += _mutant_trial(mutant, record, contract, seen)
    return now, findings


def _untried(
    where: str, reason: Reason | None, mutant: Mutant, record: Record, contract: Contract
) -> Iterator[Finding]:
    """Compare the reason of a mutant without a trial, except for the words that say what the machine lacked."""
    if reason is None:
        return
    unjudged = contract.unjudged(record.profile) if record.profile in contract.profiles else ()
    unseen = tuple(clause for clause in mutant.violates if clause in unjudged)
    fields = {
        ReasonCode.SKIPPED: Reason(reason.code),
        ReasonCode.NEEDLESS: Reason(reason.code),
        ReasonCode.INTERRUPTED: Reason(reason.code),
        ReasonCode.NOT_JUDGED: Reason(reason.code, record.profile, clauses=unseen),
        ReasonCode.REQUIREMENT: Reason(reason.code, text=reason.text),
    }
    yield from _reasons(where, reason, fields.get(reason.code, reason))
    if reason.code is ReasonCode.SKIPPED and not record.mutants_skipped:
        yield _differs(where, Detail.MUTANT_NOT_SKIPPED, mutant=mutant.id)


def _mutant_trial(mutant: Mutant, record: Record, contract: Contract, seen: Observation) -> Iterator[Finding]:
    """Check that a mutant ran like the subject. Any other difference could be what killed it."""
    profile = contract.profiles.get(record.profile)
    expected = {
        "subject": mutant.subject,
        "profile": record.profile,
        "seed": record.seed,
        "device": record.device.to_json(),
        "parameters": {**(profile.parameters if profile else {}), **record.overrides, **mutant.parameters},
    }
    ran = {**vars(seen), "device": seen.device.to_json()}
    for name, value in expected.items():
        got = ran[name]
        if not _same(got, value):
            which = _which(got, value) if isinstance(value, Mapping) else _which({name: got}, {name: value})
            where = pointer(mutant.id, "observation", name)
            yield finding(
                Code.REJUDGED_DIFFERENTLY, Detail.MUTANT_RAN_OTHERWISE, MUTANTS, where, mutant=mutant.id, **which
            )


def _order(record: Record, contract: Contract) -> Iterator[Finding]:
    declared = [mutant.id for mutant in contract.mutants]
    for position, mutant in enumerate(record.mutants):
        if mutant.id not in declared:
            yield _differs(pointer("mutants", position), Detail.NO_MUTANT, mutant=mutant.id)
    listed = [mutant.id for mutant in record.mutants]
    if len(set(listed)) != len(listed):
        yield _differs("/mutants", Detail.MUTANT_TWICE)
    elif set(listed) == set(declared) and listed != declared:
        yield _differs("/mutants", Detail.MUTANT_ORDER)


def _verdict(record: Record, now: ClaimVerdict) -> Iterator[Finding]:
    if record.verdict is not now.verdict:
        yield _result("/verdict", "verdict", record.verdict, now.verdict, now.reason)
    if record.proven is not now.proven:
        yield _result("/proven", "proven", record.proven, now.proven, None)
    yield from _reasons("/reason", record.reason, now.reason)


def _excuses(
    contract: Contract, observation: Observation, outcomes: list[MutantOutcome], unjudged: frozenset[str]
) -> Iterator[Finding]:
    """Find mutants that were not run although the device meets their requirements."""
    for position, (mutant, outcome) in enumerate(zip(contract.mutants, outcomes, strict=True)):
        seen = unjudged.isdisjoint(mutant.violates)
        if outcome.fate is Fate.NOT_RUN and seen and _could_run(mutant, observation.device):
            where = pointer("mutants", position, "fate")
            reason = outcome.reason and outcome.reason.to_json()
            yield _differs(where, Detail.MUTANT_COULD_RUN, mutant=mutant.id, reason=reason)


def _could_run(mutant: Mutant, device: Device) -> bool:
    requires = mutant.requires
    if _UNTESTABLE & set(requires) or (requires.get("device") == "cuda" and not device.is_cuda):
        return False
    if (device.memory_bytes or 0) < requires.get("memory_gib", 0) * 2**30:
        return False
    wanted = requires.get("compute_capability", "0.0")
    return _capability(device.compute_capability or "0.0") >= _capability(wanted)


def _capability(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text[:8].split("."))


def _unlisted(mutant: Mutant) -> MutantRecord:
    reason = Reason(ReasonCode.NOT_LISTED)
    return MutantRecord(mutant.id, mutant.subject, mutant.defect, mutant.violates, Fate.INCONCLUSIVE, reason, (), None)


def _fields(where: str, names: Iterable[str], then: object, now: object, detail: Detail) -> Iterator[Finding]:
    """Compare the fields of these names."""
    for name in names:
        yield from _compare(f"{where}/{name}", getattr(then, name), getattr(now, name), detail)


def _compare(where: str, then: Any, now: Any, detail: Detail) -> Iterator[Finding]:
    if not _same(then, now):
        yield _differs(where, detail, then=cut(_text(then), 120), now=cut(_text(now), 120))


def _result(where: str, of: str, then: str | bool, now: str | bool, reason: Reason | None) -> Finding:
    return _differs(where, Detail.OTHER_RESULT, of=of, then=then, now=now, reason=reason and reason.to_json())


def _differs(where: str, detail: Detail, **fields: Any) -> Finding:
    return finding(Code.REJUDGED_DIFFERENTLY, detail, RECORD, where, **fields)


def _same(one: Any, other: Any) -> bool:
    """Whether two values have the same JSON: NaN equals NaN, and a list equals a tuple."""
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(strictjson.tag_nonfinite(value), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return value.to_json() if isinstance(value, (Bound, Device)) else dict(value)


def _which(got: JsonObject, expected: JsonObject) -> dict[str, str | None]:
    """Return the first name whose values differ, with both values as JSON; None where there is no value."""
    found, wanted = ({name: _text(value) for name, value in one.items()} for one in (got, expected))
    name = next(name for name in sorted({*got, *expected}) if found.get(name) != wanted.get(name))
    values = {"found": found.get(name), "expected": wanted.get(name)}
    return {"name": name, **{key: text and cut(text, 120) for key, text in values.items()}}
