"""Running the counterexample of a bundle again, and nothing else, with the present code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract import Contract, Mutant
from harness.contract.clauses import ClauseResult
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.model import COMPLETES
from harness.contract.project import Project
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.bundle import Bundle
from harness.evidence.verification import find_bundles, verify
from harness.execution.lease import Holder, LeaseUnavailable, lease
from harness.execution.local_executor import LocalExecutor
from harness.judging.counterexample import Counterexample, judge_case
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Observation
from harness.judging.record import Record
from harness.machine.cache_folder import cache_folder
from harness.machine.host import Host
from harness.machine.process_control import adopting
from harness.running.interruption import Interruption
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest

__all__ = ["Replay", "ReplayRefused", "Sealed", "open_bundle", "replay"]


class ReplayRefused(ValueError):
    """A bundle has no counterexample to run again. The message names the reason and the remedy."""


@dataclass(frozen=True)
class Sealed:
    """A counterexample with the bundle's record of the run that found it."""

    record: Record
    contract: Contract
    """The contract of that run."""
    counterexample: Counterexample
    mutant: str | None


@dataclass(frozen=True)
class Replay:
    """The result of the counterexample with the present code."""

    subject: str
    profile: str
    device: str
    clauses: tuple[ClauseResult, ...]
    """The clauses that the counterexample can violate."""

    @property
    def outcome(self) -> Outcome:
        """FAIL if it still refutes the claim, PASS if it does not."""
        return Judgment(self.clauses).outcome


def open_bundle(bundle: Path, mutant: str | None) -> Sealed:
    """Read the counterexample of the subject, or of a mutant, from a bundle that verifies.

    Raises:
        ReplayRefused: the bundle is unsound, or has no counterexample.
    """
    inside = find_bundles([bundle])
    if bundle not in inside:
        count = f"{len(inside)} bundle{'' if len(inside) == 1 else 's'}"
        which = f"holds {count}; name one" if inside else "is not a bundle"
        raise ReplayRefused(f"{bundle} {which}")
    verification = verify(bundle)
    if not verification.sound:
        raise ReplayRefused(f"{bundle} is unsound: {verification.findings[0]}; `harness verify` says more")
    sealed = Bundle(bundle)
    killers = {name: trial.counterexample for name, trial in sealed.mutants.items() if trial.counterexample}
    case = killers.get(mutant) if mutant else sealed.counterexample
    if case is None:
        others = f"; those of mutants can be replayed: --mutant {' | '.join(sorted(killers))}" if killers else ""
        of = f"mutant {mutant} left" if mutant else "subject left"
        raise ReplayRefused(f"{bundle}: the {of} no counterexample{others}")
    return Sealed(sealed.record, sealed.contract, case, mutant)


def replay(
    sealed: Sealed, project: Project, host: Host, request: RunRequest, on_wait: Callable[[tuple[Holder, ...]], None]
) -> Replay:
    """Run the counterexample as the bundle's run did, with the changes of `request`, and judge it.

    Args:
        on_wait: gets the holders of the device if there is a wait for it.

    Raises:
        ReplayRefused: the claim has changed too much for the counterexample.
        KeyboardInterrupt: the user interrupted; WaitInterrupted during a wait for the device.
    """
    record, case = sealed.record, sealed.counterexample
    contract = project.contract(record.id)
    mutant = _recognised(sealed, contract)
    requested = replace(
        request,
        profile=record.profile,
        device="cpu" if request.device == "auto" and not record.device.is_cuda else request.device,
        parameters={**record.overrides, **(mutant.parameters if mutant else {}), **request.parameters},
        seed=record.seed,
    )
    plan = make_plan(contract, host, requested)
    own = request.subject.entry_point if request.subject else ""
    subject = own or (mutant.subject if mutant else _accused(sealed, contract, project))
    patches = mutant.patches if mutant and request.subject is None else ()
    name = f"{subject} with the patches of {mutant.id}" if mutant and patches else subject
    replayed = partial(Replay, name, plan.profile.name, plan.device.type)
    if plan.obstacle:
        return replayed(_unmeasured(case.clauses, ReasonCode.NOTHING_RAN, plan.obstacle))
    trial = replace(plan.trial(max(1, host.cpu_count)), subject=subject, patches=patches, case=case.case)
    interruption = Interruption()
    try:
        with (
            interruption,
            adopting(),
            LocalExecutor(project, contract, cache_folder(), isolated=record.isolated) as executor,
            _leases(plan, on_wait, interruption),
            interruption.immediate(),
        ):
            executor.imports()
            observation = executor.run(trial, lambda step, values, memory: None).observation
    except LeaseUnavailable as error:
        return replayed(_unmeasured(case.clauses, ReasonCode.NOTHING_RAN, str(error)))
    return replayed(_judged(contract, case, observation))


@contextmanager
def _leases(plan: Plan, on_wait: Callable[[tuple[Holder, ...]], None], interruption: Interruption) -> Iterator[None]:
    with ExitStack() as leases:
        for device in plan.devices.values():
            leases.enter_context(
                lease(
                    device,
                    mode="shared",
                    holder=plan.contract.id,
                    wait_seconds=plan.profile.lease_seconds,
                    on_wait=on_wait,
                    interrupted=lambda: interruption.requested,
                )
            )
        yield


def _recognised(sealed: Sealed, contract: Contract) -> Mutant | None:
    """The mutant, as the present contract has it."""
    record, then = sealed.record, sealed.contract
    if contract.falsifier != then.falsifier:
        raise ReplayRefused(
            f"{record.id} has the falsifier {contract.falsifier} now, and {then.falsifier} found the case; "
            "run the claim again"
        )
    gone = [name for name in sealed.counterexample.clauses if name not in contract.clause_ids]
    if gone:
        raise ReplayRefused(f"{record.id} has no clause {gone[0]} any more; run the claim again")
    if record.profile not in contract.profiles:
        raise ReplayRefused(f"{record.id} has no {record.profile} profile any more; run the claim again")
    if sealed.mutant is None:
        return None
    for mutant in contract.mutants:
        if mutant.id == sealed.mutant:
            return mutant
    raise ReplayRefused(f"{record.id} has no mutant {sealed.mutant} any more; name a subject with --subject")


def _accused(sealed: Sealed, contract: Contract, project: Project) -> str:
    """The subject that the case refuted: that of the present contract, unless the run had another one."""
    record = sealed.record
    if record.subject_parameters:
        raise ReplayRefused(
            f"the case refuted {record.subject_parameters.get('trainer', record.subject)}, and a replay runs no "
            "trainer: run the claim again, or name a subject with --subject"
        )
    if record.subject == sealed.contract.subject:
        return contract.subject
    try:
        locate(record.subject, project.search_of(contract.path))
    except EntryPointError as error:
        raise ReplayRefused(
            f"the case refuted {record.subject}, which is not here: {error}; name a subject with --subject"
        ) from error
    return record.subject


def _judged(contract: Contract, case: Counterexample, observation: Observation) -> tuple[ClauseResult, ...]:
    (completes,) = (clause for clause in judge(contract, observation).clauses if clause.id == COMPLETES)
    measured = _of_the_case(contract, case, observation.measurements)
    judgment = judge_case(contract, measured, observation.parameters, observation.device)
    if completes.outcome is Outcome.FAIL:
        return (completes, *judgment)
    if completes.outcome is Outcome.PASS and not judgment:
        return (completes, *_unmeasured(case.clauses, ReasonCode.NOT_TRIED))
    known = {completes.id, *(clause.id for clause in judgment)}
    lacking = [name for name in case.clauses if name not in known]
    return (completes, *judgment, *_unmeasured(lacking, ReasonCode.NOT_ON_THIS_CASE))


def _of_the_case(contract: Contract, case: Counterexample, measurements: JsonObject) -> dict[str, Any]:
    """The only item of each measured list."""
    names = case.measurements or {clause.path[0]: None for clause in contract.clauses if clause.path[1:2] == ("[]",)}
    lists = {name: measurements.get(name) for name in names}
    return {name: value[0] for name, value in lists.items() if isinstance(value, list) and len(value) == 1}


def _unmeasured(names: Iterable[str], code: ReasonCode, text: str = "") -> tuple[ClauseResult, ...]:
    return tuple(ClauseResult(name, Outcome.NOT_MEASURED, reason=Reason(code, text=text)) for name in names)
