"""The results of the trials of one claim, also of a trial that did not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase
from harness.contract.reasons import Reason, ReasonCode
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.logs import Log
from harness.execution.steps import Steps
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from harness.judging.verdict import MutantOutcome, not_run
from harness.machine.telemetry import DriverResidency, Telemetry
from harness.running.plan import Plan

__all__ = ["Trials", "silent", "unmeasured"]


@dataclass(frozen=True)
class Trials:
    """The results of the trials of one claim, before the verdict."""

    subject: TrialResult
    judgment: Judgment
    mutants: Mapping[str, TrialResult]
    """The mutants that ran, by id."""
    outcomes: Sequence[MutantOutcome]
    """The outcome of every mutant, in the contract's order."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    sources: Mapping[str, str] = field(default_factory=dict)
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    """Why GPUs failed the claim, by UUID."""
    predicted: JsonObject = field(default_factory=dict)
    """The probe's prediction for the profile's step."""
    seconds: float = 0.0
    """How long imports and trials took. Waits for a device or for other claims do not count."""
    waited_seconds: float = 0.0
    """How long the trials waited for devices that other processes held."""


def unmeasured(plan: Plan) -> Trials:
    """The results of a claim with an obstacle: judged like any others, without measurements."""
    result = silent(plan.trial(), Ending(EndingKind.NOT_MEASURED, Phase.START, plan.obstacle))
    obstacle = Reason(ReasonCode.NOTHING_RAN, text=plan.obstacle)
    outcomes = [not_run(mutant, obstacle) for mutant in plan.contract.mutants]
    return Trials(result, judge(plan.contract, result.observation), {}, outcomes)


def silent(request: TrialRequest, ending: Ending) -> TrialResult:
    """The result of a trial without any message."""
    observation = Observation(
        subject=request.subject,
        profile=request.profile,
        parameters=request.parameters,
        device=request.device,
        measurements={},
        residency=Residency(reason="no trial ran"),
        ending=ending,
        seed=request.seed,
    )
    telemetry = Telemetry((), {"seconds": "no trial ran"}, DriverResidency(None, None, "no trial ran"))
    empty = Log("", 0, sha256(b"").hexdigest())
    return TrialResult(observation, Steps(), telemetry, empty, empty, None, 0.0)
