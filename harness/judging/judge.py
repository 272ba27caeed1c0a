"""Judges an observation by its contract: a pure, total and deterministic function.

The falsifier never decides. Equal contracts and observations give equal judgments. Judging needs neither a GPU nor
torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract
from harness.contract.bound import CLOSED, Bound
from harness.contract.clauses import ClauseResult, is_finite, judge_schema
from harness.contract.cost import Allowance
from harness.contract.model import COMPLETES, CONTRADICTION, RESOLVED, UNLIKE_FILES
from harness.contract.reasons import Reason, ReasonCode
from harness.contract.rules import Scope
from harness.judging.observation import Ending, EndingKind, Observation

__all__ = ["Judgment", "judge", "refutes", "requested"]


@dataclass(frozen=True)
class Judgment(JsonDataclass):
    """All clauses with their outcomes.

    The outcome of the whole is FAIL if a clause failed, else NOT_MEASURED if one was not measured, else PASS.
    """

    clauses: tuple[ClauseResult, ...]
    unjudged: tuple[str, ...] = ()
    """Ids of the contract's clauses without an outcome: the profile omits a measurement that they read."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the observation as a whole."""
        outcomes = {clause.outcome for clause in self.clauses}
        if Outcome.FAIL in outcomes:
            return Outcome.FAIL
        if Outcome.NOT_MEASURED in outcomes or not outcomes:
            return Outcome.NOT_MEASURED
        return Outcome.PASS

    @property
    def reason(self) -> Reason | None:
        """The reason of the first clause with the outcome of the whole. None for a PASS, and without clauses."""
        outcome = self.outcome
        if outcome is Outcome.PASS:
            return None
        decisive = (clause for clause in self.clauses if clause.outcome is outcome)
        return next((Reason(ReasonCode.CLAUSE, clauses=(clause.id,), cause=clause.reason) for clause in decisive), None)

    def with_outcome(self, outcome: Outcome) -> tuple[ClauseResult, ...]:
        """The clauses with this outcome."""
        return tuple(clause for clause in self.clauses if clause.outcome is outcome)


def judge(contract: Contract, observation: Observation) -> Judgment:
    """Judge an observation by all clauses of its contract. Never raises for a well-typed `Observation`.

    Lists can grow until a trial ends. So measurements of a trial that was interrupted, slow or lost a message are
    provisional: a clause that they violate is NOT_MEASURED. A clause that exceeds the trial's remaining
    allowance is NOT_MEASURED too; this depends on sizes, not on time.
    """
    measurements = dict(observation.measurements) if isinstance(observation.measurements, Mapping) else {}
    results = list(_builtin(contract, observation))
    undeclared = sorted(str(name) for name in measurements if name not in contract.observation["properties"])
    if undeclared:
        declared = Bound(CLOSED, sorted(contract.observation["properties"]))
        reason = Reason(ReasonCode.UNDECLARED, undeclared[0])
        results.append(ClauseResult("observation.closed", Outcome.NOT_MEASURED, undeclared, declared, reason=reason))
    finite = {name: is_finite(value) for name, value in measurements.items()}
    clauses, rules = contract.clauses, contract.rules
    hidden = observation.unseen if contract.is_outside(observation.subject) else ()
    unjudged = contract.unjudged(observation.profile, measurements, hidden)
    if unjudged:
        clauses = tuple(clause for clause in clauses if clause.id not in unjudged)
        rules = tuple(rule for rule in rules if rule.id not in unjudged)
    allowance = Allowance(len(contract.mutants))
    judged = list(judge_schema(clauses, measurements, finite, allowance))
    scope = Scope(rules, measurements, observation.parameters, observation.device, finite, allowance)
    judged.extend(rule.judge(scope) for rule in rules)
    if observation.unseen:
        reads: list[tuple[str, ...]] = [clause.path[:1] for clause in clauses]
        reads += [tuple(name for variable, name in rule.reads if variable == "self") for rule in rules]
        missing = [next((name for name in names if name not in measurements), "") for names in reads]
        judged = [
            _explained(result, observation.unseen.get(name, "")) for result, name in zip(judged, missing, strict=True)
        ]
    results += judged
    if observation.ending.kind in _PROVISIONAL:
        place = _PROVISIONAL[observation.ending.kind]
        results = [_excused(result, Reason(ReasonCode.PROVISIONAL, place, cause=result.reason)) for result in results]
    return Judgment(tuple(results), unjudged)


def refutes(contract: Contract, observation: Observation, clauses: Collection[str]) -> bool:
    """Whether an observation violates all of these clauses, whatever the trial measures afterwards.

    Without clauses: whether it violates any clause of the contract.

    A measurement is final, but a list can grow. So a violation is final if no list is read as a whole, and if a list is
    too long or repeats an item.
    """
    measured = observation.measurements
    final = {name for name, value in measured.items() if not isinstance(value, list)}
    lasting = {rule.id for rule in contract.rules if rule.measurements <= final}
    for clause in contract.clauses:
        within = clause.path[0] in final or len(clause.path) > 1 or clause.keyword in ("maxItems", "uniqueItems")
        if clause.path[0] in measured and within:
            lasting.add(clause.id)
    if not lasting or not lasting.issuperset(clauses):
        return False
    failed = {clause.id for clause in judge(contract, observation).with_outcome(Outcome.FAIL)}
    return failed.issuperset(clauses) if clauses else not failed.isdisjoint(lasting)


def _explained(result: ClauseResult, why: str) -> ClauseResult:
    """Add the observation's reason for a missing measurement, if it has one, to a result."""
    if not why or result.outcome is not Outcome.NOT_MEASURED or result.reason is None:
        return result
    return replace(result, reason=replace(result.reason, text=why))


def requested(contract: Contract, profile: str, parameters: JsonObject, device_type: str) -> dict[str, Any]:
    """Return the requested device type, and the dtype, backend and steps among the parameters.

    The device type is "cuda" if the profile requires CUDA, else the parameter `device`, else the trial's own.
    """
    values = {"device": device_type} | {name: parameters[name] for name in ("device", *RESOLVED) if name in parameters}
    if profile in contract.profiles and contract.profiles[profile].requires.get("device") == "cuda":
        values["device"] = "cuda"
    return values


def _builtin(contract: Contract, observation: Observation) -> Iterator[ClauseResult]:
    completes = _completes(observation)
    yield completes
    expected_values = requested(contract, observation.profile, observation.parameters, observation.device.type)
    for name, expected in expected_values.items():
        actual, bound, reason = observation.resolved.get(name), Bound("const", expected), None
        if name not in observation.resolved:
            reported = observation.resolved.get("told_device") if name == "device" else None
            outcome, reason = Outcome.NOT_MEASURED, Reason(ReasonCode.NOT_READ_BACK, name, text=reported or "")
        elif type(actual) is type(expected) and actual == expected:
            outcome = Outcome.PASS
        else:
            outcome, reason = Outcome.FAIL, Reason(ReasonCode.ANOTHER_RAN, name, bound=bound, value=actual)
        yield ClauseResult(f"resolved.{name}", outcome, actual, bound, reason=reason)
    for name, key, place in ((CONTRADICTION, "contradiction", ""), (UNLIKE_FILES, "unlike_files", "files")):
        if (contradiction := observation.resolved.get(key)) is not None:
            outcome = Outcome.FAIL if contradiction else Outcome.PASS
            reason = Reason(ReasonCode.CONTRADICTION, place, text=contradiction) if contradiction else None
            yield ClauseResult(name, outcome, contradiction, Bound("const", ""), reason=reason)
    if expected_values["device"] == "cuda":
        # A trial that was ended from outside may not have started its work on the GPU.
        ended = completes.outcome is Outcome.NOT_MEASURED
        yield from (_excused(result, completes.reason) if ended else result for result in _residency(observation))


def _completes(observation: Observation) -> ClauseResult:
    ending = observation.ending
    blamed = ending.kind is EndingKind.SUBJECT_FAULT or (
        ending.kind in (EndingKind.TIMED_OUT, EndingKind.DIED) and ending.phase is Phase.SUBJECT
    )
    outcome = Outcome.PASS if ending.kind is EndingKind.COMPLETED else Outcome.FAIL if blamed else Outcome.NOT_MEASURED
    bound = Bound("const", str(EndingKind.COMPLETED))
    return ClauseResult(COMPLETES, outcome, str(ending.kind), bound, reason=_how_it_ended(ending))


def _how_it_ended(ending: Ending) -> Reason | None:
    if ending.kind is EndingKind.COMPLETED:
        return None
    # An interruption comes from outside, and "not measured" is not a fault, so the phase is irrelevant.
    place = "" if ending.kind in (EndingKind.INTERRUPTED, EndingKind.NOT_MEASURED) else str(ending.phase)
    return Reason(ReasonCode(str(ending.kind)), place, ending.reason)


_PROVISIONAL = {
    EndingKind.INTERRUPTED: "",
    EndingKind.GARBLED: str(EndingKind.GARBLED),
    EndingKind.CHANGED: str(EndingKind.CHANGED),
    EndingKind.SLOW: str(EndingKind.SLOW),
}
"""Endings after which measurements can be incomplete or from changed code, with the places of their reasons."""


def _excused(result: ClauseResult, reason: Reason | None) -> ClauseResult:
    if result.outcome is not Outcome.FAIL:
        return result
    return replace(result, outcome=Outcome.NOT_MEASURED, reason=reason)


def _residency(observation: Observation) -> Iterator[ClauseResult]:
    residency = observation.residency
    allocated = residency.allocator_peak_bytes
    if not allocated and type(reported := observation.resolved.get("allocated_bytes")) is int:
        allocated = reported  # by the driver, or by the allocator of a process that the falsifier started
    yield _resident("allocator", allocated, Bound("exclusiveMinimum", 0), "B", residency.reason or "")
    yield _resident("driver", residency.driver_seen, Bound("const", True), "", residency.reason or "")


def _resident(witness: str, value: int | None, bound: Bound, unit: str, unasked: str) -> ClauseResult:
    reason = None
    if value is None:
        outcome, reason = Outcome.NOT_MEASURED, Reason(ReasonCode.NOT_ASKED, witness, unasked)
    elif value > 0:
        outcome = Outcome.PASS
    else:
        outcome, reason = Outcome.FAIL, Reason(ReasonCode.NOT_ON_THE_GPU, witness)
    return ClauseResult(f"residency.{witness}", outcome, value, bound, unit, reason)
