"""Judges a bundle again: derives the record from contract and observations, and compares it with the stored record.

All fields that follow from the contract and the observations are derived. Texts of the CEL engine differ between its
versions, so they are copied from the record. So is the requirement that a machine did not meet for a mutant that did
not run, because it cannot be derived.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.base import strictjson
from harness.base.device import Device
from harness.base.shortening import cut
from harness.base.strictjson import JsonObject, pointer
from harness.base.vocabulary import Fate
from harness.contract import Contract, Mutant
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.bundle_layout import MUTANTS, OBSERVATION, RECORD
from harness.evidence.findings import Code, Detail, Finding, finding
from harness.judging.judge import judge, requested
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import ClaimVerdict, MutantOutcome, claim_verdict, fate_of

__all__ = ["Rejudgment", "rejudge"]

_ENGINE = frozenset({ReasonCode.CANNOT_BE_EVALUATED, ReasonCode.NOT_BOOLEAN})
"""Reasons whose text comes from the CEL engine."""
_UNTESTABLE = frozenset({"gpus", "modules", "disk_gib", "vulkan"})
"""Requirements that cannot be checked, because a bundle does not record whether the machine met them."""
_ITEMS = ("clauses", "mutants")
"""The lists of a record whose items are compared one by one."""


@dataclass(frozen=True)
class Rejudgment:
    """The result of judging a bundle again, and where its record differs."""

    claim: ClaimVerdict
    mutants: Mapping[str, Fate]
    findings: tuple[Finding, ...]


def rejudge(
    record: Record, contract: Contract, observation: Observation, mutants: Mapping[str, Observation]
) -> Rejudgment:
    """Judge the subject and every mutant again, and derive the record.

    Args:
        mutants: the observations in the bundle, by the mutant's id.
    """
    findings: list[Finding] = []
    profile = contract.profiles.get(record.profile)
    if profile is None:
        findings.append(_differs("/profile", Detail.NO_PROFILE, profile=record.profile))
    parameters = {**(profile.parameters if profile else {}), **record.overrides}
    subject_parameters = {**parameters, **record.subject_parameters}
    findings += _ran(observation, OBSERVATION, (), parameters=subject_parameters)
    judgment = judge(contract, observation)
    recorded, outcomes, derived = {mutant.id: mutant for mutant in record.mutants}, [], []
    for mutant in (declared.of(record.subject, record.subject_parameters) for declared in contract.mutants):
        then, observed = recorded.get(mutant.id) or _unlisted(mutant), mutants.get(mutant.id)
        again = replace(then, subject=mutant.subject, defect=mutant.defect, violates=mutant.violates)
        if observed is not None:
            outcome = fate_of(mutant, judge(contract, observed))
            reason, values = _worded(outcome.reason, then.reason), outcome.values if then.values else {}
            again = replace(again, fate=outcome.fate, failed=outcome.failed, reason=reason, values=values)
            expected = {
                "profile": record.profile,
                "seed": record.seed,
                "device": record.device,
                "subject": mutant.subject,
            }
            expected["parameters"] = {**parameters, **mutant.parameters}
            findings += _ran(observed, MUTANTS, (mutant.id, "observation"), **expected)
        elif then.fate is Fate.INCONCLUSIVE or not then.fate.has_run:
            outcome = then.outcome()
            again = replace(again, reason=_untried(then.reason, mutant, record, contract))
        else:
            findings.append(finding(Code.INCOMPLETE, Detail.NO_TRIAL, MUTANTS, mutant=mutant.id, fate=then.fate))
            outcome = MutantOutcome(mutant.id, Fate.INCONCLUSIVE, Reason(ReasonCode.NO_OBSERVATION))
        outcomes.append(outcome)
        derived.append(again)
    claim = claim_verdict(judgment, outcomes, skipped=record.mutants_skipped)
    words = {clause.id: clause.reason for clause in record.clauses}
    whole = replace(
        record,
        id=contract.id,
        issue=contract.issue,
        spec=contract.spec,
        title=contract.title,
        claim=contract.claim,
        falsifier=contract.falsifier,
        target=contract.target,
        contract_digest=contract.digest,
        subject=observation.subject,
        profile=observation.profile,
        seed=observation.seed,
        device=observation.device,
        resolved=observation.resolved,
        requested=requested(contract, record.profile, subject_parameters, observation.device.type)
        if profile
        else record.requested,
        clauses=tuple(
            replace(clause, reason=_worded(clause.reason, words.get(clause.id))) for clause in judgment.clauses
        ),
        unjudged=judgment.unjudged,
        mutants=tuple(derived),
        verdict=claim.verdict,
        reason=_worded(claim.reason, record.reason),
        proven=claim.proven,
    )
    findings += _differences(record.to_json(), whole.to_json())
    if claim.proven:
        findings += _excuses(contract, observation, outcomes, frozenset(contract.unjudged(record.profile)))
    return Rejudgment(claim, {outcome.id: outcome.fate for outcome in outcomes}, tuple(findings))


def _worded(now: Reason | None, then: Reason | None) -> Reason | None:
    """Return a reason with the record's text if that comes from the CEL engine."""
    if now is None or then is None or now.code is not then.code:
        return now
    text = then.text if now.code in _ENGINE else now.text
    return replace(now, text=text, cause=_worded(now.cause, then.cause))


def _untried(reason: Reason | None, mutant: Mutant, record: Record, contract: Contract) -> Reason | None:
    """Return the reason of a mutant without a trial. The text of an unmet requirement is copied from the record."""
    if reason is None:
        return None
    unjudged = contract.unjudged(record.profile) if record.profile in contract.profiles else ()
    unseen = tuple(clause for clause in mutant.violates if clause in unjudged)
    code = ReasonCode.NEEDLESS if reason.code is ReasonCode.SKIPPED and not record.mutants_skipped else reason.code
    match reason.code:
        case ReasonCode.SKIPPED | ReasonCode.NEEDLESS | ReasonCode.INTERRUPTED:
            return Reason(code)
        case ReasonCode.NOT_JUDGED:
            return Reason(code, record.profile, clauses=unseen)
        case ReasonCode.REQUIREMENT:
            return Reason(code, text=reason.text)
    return reason


def _ran(observation: Observation, file: str, where: tuple[str, ...], **expected: Any) -> Iterator[Finding]:
    """Check that a trial ran as requested. A mutant must run like the subject, or another difference may kill it."""
    for name, value in expected.items():
        actual = getattr(observation, name)
        if _text(actual) != _text(value):
            which = _which(actual, value) if isinstance(value, Mapping) else _which({name: actual}, {name: value})
            yield finding(Code.REJUDGED_DIFFERENTLY, Detail.RAN_OTHERWISE, file, pointer(*where, name), **which)


def _differences(then: JsonObject, now: JsonObject, where: str = "") -> Iterator[Finding]:
    """Compare the fields of two documents of one form."""
    for name in {**then, **now}:
        old, new = then.get(name), now.get(name)
        if _text(old) == _text(new):
            continue
        if name in _ITEMS:
            before, after = ([item["id"] for item in items] for items in (then[name], now[name]))
            if before == after:
                for position, (recorded, other) in enumerate(zip(then[name], now[name], strict=True)):
                    yield from _differences(recorded, other, pointer(name, position))
                continue
            old = [line for line in before if line not in after] or before
            new = [line for line in after if line not in before] or after
        place = f"{where}/{name}"
        yield _differs(place, Detail.OTHERWISE_DERIVED, then=cut(_text(old), 120), now=cut(_text(new), 120))


def _excuses(
    contract: Contract, observation: Observation, outcomes: list[MutantOutcome], unjudged: frozenset[str]
) -> Iterator[Finding]:
    """Find mutants that were not run although the device meets their requirements."""
    for position, (mutant, outcome) in enumerate(zip(contract.mutants, outcomes, strict=True)):
        is_visible = unjudged.isdisjoint(mutant.violates)
        if outcome.fate is Fate.NOT_RUN and is_visible and _could_run(mutant, observation.device):
            where = pointer("mutants", position, "fate")
            reason = outcome.reason and outcome.reason.to_json()
            yield _differs(where, Detail.MUTANT_COULD_RUN, mutant=mutant.id, reason=reason)


def _could_run(mutant: Mutant, device: Device) -> bool:
    requires = mutant.requires
    if _UNTESTABLE & set(requires) or (requires.get("device") == "cuda" and not device.is_cuda):
        return False
    if (device.memory_bytes or 0) < requires.get("memory_gib", 0) * 2**30:
        return False
    required = requires.get("compute_capability", "0.0")
    return _capability(device.compute_capability or "0.0") >= _capability(required)


def _capability(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text[:8].split("."))


def _unlisted(mutant: Mutant) -> MutantRecord:
    reason = Reason(ReasonCode.NOT_LISTED)
    return MutantRecord(mutant.id, mutant.subject, mutant.defect, mutant.violates, Fate.INCONCLUSIVE, reason, (), None)


def _differs(where: str, detail: Detail, **fields: Any) -> Finding:
    return finding(Code.REJUDGED_DIFFERENTLY, detail, RECORD, where, **fields)


def _text(value: Any) -> str:
    plain = value.to_json() if isinstance(value, Device) else value
    return json.dumps(strictjson.tag_nonfinite(plain), sort_keys=True, default=dict)


def _which(actual: JsonObject, expected: JsonObject) -> dict[str, str | None]:
    """Return the first name whose values differ, with both values as JSON; None where there is no value."""
    actual_texts, expected_texts = (
        {name: _text(value) for name, value in mapping.items()} for mapping in (actual, expected)
    )
    name = next(name for name in sorted({*actual, *expected}) if actual_texts.get(name) != expected_texts.get(name))
    values = {"found": actual_texts.get(name), "expected": expected_texts.get(name)}
    return {"name": name, **{key: text and cut(text, 120) for key, text in values.items()}}
