"""The margin by which a falsifier is right, over many seeds: healthy runs that fail, mutants that survive, and ratios.

A ratio compares a measurement with its clause's threshold (harness/contract/ratio.py). Above 1 it violates the clause.
A healthy subject's largest ratio should be well below 1, and a mutant's smallest ratio well above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.base.vocabulary import Fate, Outcome
from harness.contract import Contract
from harness.contract.calibration import calibration_digest, calibration_path
from harness.contract.clauses import Clause
from harness.contract.ratio import has_ratio, ratio
from harness.evidence.seal import ClaimResult
from harness.execution.executor import TrialResult
from harness.judging.judge import Judgment
from harness.tools.laid_out import laid_out

__all__ = [
    "SUBJECT",
    "CalibrationError",
    "Margin",
    "Rate",
    "Spread",
    "margins",
    "measured",
    "rates",
    "spreads",
    "write",
]

SUBJECT = "(the subject)"
"""Takes the place of a mutant's id for the subject. No id has parentheses."""


class CalibrationError(ValueError):
    """A calibration was not written. The message names the reason and the remedy."""


@dataclass(frozen=True)
class Rate:
    """How often a trial had the expected result: the subject passes, or the mutant is killed."""

    trial: str
    runs: int
    """How many runs had this trial."""
    as_declared: int
    violates: tuple[str, ...] = ()
    """The clauses that a mutant must violate."""


@dataclass(frozen=True)
class Margin:
    """The smallest and the largest ratio of a trial's measurement to a clause's threshold."""

    trial: str
    clause: str
    smallest: float
    largest: float
    recorded: float | None = None
    """The ratio in the contract's calibration."""
    worst_seed: int = 0
    """The first seed with the subject's largest ratio, or with the mutant's smallest."""

    @property
    def worst(self) -> float:
        """The ratio that is nearest to the wrong outcome: the subject's largest, or the mutant's smallest."""
        return self.largest if self.trial == SUBJECT else self.smallest


@dataclass(frozen=True)
class Spread:
    """The range of a number that the subject measured."""

    measurement: str
    least: float
    mean: float
    most: float


def rates(contract: Contract, results: Sequence[ClaimResult]) -> list[Rate]:
    """The counts of the subject and then of every mutant, unless mutants were skipped."""
    outcomes = [Judgment(result.record.clauses).outcome for result in results]
    counted = [Rate(SUBJECT, len(results), outcomes.count(Outcome.PASS))]
    for mutant in () if all(result.record.mutants_skipped for result in results) else contract.mutants:
        fates = [trial.fate for result in results for trial in result.record.mutants if trial.id == mutant.id]
        ran = [fate for fate in fates if fate.has_run]
        counted.append(Rate(mutant.id, len(ran), ran.count(Fate.KILLED), mutant.violates))
    return counted


def margins(contract: Contract, results: Sequence[ClaimResult]) -> list[Margin]:
    """The ratios of the subject for every clause that has one, and of a mutant for the clauses that it must violate."""
    clauses: dict[str, Clause] = {clause.id: clause for clause in (*contract.clauses, *contract.rules)}
    with_ratio = {name: clause for name, clause in clauses.items() if has_ratio(clause)}
    profiles = {result.record.profile for result in results}
    all_margins = []
    for name, clause in with_ratio.items():
        all_margins += _margin(
            SUBJECT, name, clause, [(result.record.seed, result.subject) for result in results], None
        )
    for mutant in contract.mutants:
        seen = [(result.record.seed, result.mutants[mutant.id]) for result in results if mutant.id in result.mutants]
        recorded = {
            name: value for profile in profiles for name, value in contract.ratios(mutant.id).get(profile, {}).items()
        }
        for name in mutant.violates:
            if name in with_ratio:
                all_margins += _margin(mutant.id, name, with_ratio[name], seen, recorded.get(name))
    return all_margins


def measured(contract: Contract, results: Sequence[ClaimResult]) -> dict[str, Any]:
    """The part of a calibration file for one profile: seeds, device, and ratios with three digits.

    Infinite ratios are left out, and a mutant's ratios that do not violate the clause.

    Args:
        results: the results of at least one run of one profile, with consecutive seeds.
    """
    subject: dict[str, float] = {}
    mutants: dict[str, dict[str, float]] = {}
    for margin in margins(contract, results):
        if margin.trial == SUBJECT and math.isfinite(margin.largest):
            subject[margin.clause] = _rounded(margin.largest)
        elif margin.trial != SUBJECT and 1.0 < margin.smallest < math.inf:
            mutants.setdefault(margin.trial, {})[margin.clause] = _rounded(margin.smallest)
    return {
        "seeds": {"first": results[0].record.seed, "count": len(results)},
        "device": results[0].record.device.name,
        "subject": subject,
        "mutants": mutants,
    }


def write(contract: Contract, results: Sequence[ClaimResult]) -> Path:
    """Write the calibration of one profile beside the contract, and its digest into the contract.

    The part of the other profile stays. The contract file gets the layout of `harness fmt`.

    Returns:
        the calibration file.

    Raises:
        CalibrationError: the contract file has changed since it was loaded.
    """
    if regular_file.read(contract.path) != contract.content:
        raise CalibrationError(f"{contract.path} has changed since the runs began; run harness calibrate again")
    profiles = dict(contract.calibration)
    profiles[results[0].record.profile] = measured(contract, results)
    document: dict[str, Any] = {"id": contract.id, "profiles": {name: profiles[name] for name in sorted(profiles)}}
    if "$schema" in contract.document:
        schema = str(contract.document["$schema"]).replace("contract.schema.json", "calibration.schema.json")
        document = {"$schema": schema, **document}
    content = laid_out(document).encode()
    path = calibration_path(contract.path)
    path.write_bytes(content)
    bound = {**contract.document, "calibration": calibration_digest(content)}
    contract.path.write_bytes(laid_out(bound).encode())
    return path


def spreads(results: Sequence[ClaimResult]) -> list[Spread]:
    """The range of every number that the subject measured in any run."""
    numbers: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.subject.observation.measurements.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers.setdefault(name, []).append(float(value))
    return [Spread(name, min(values), math.fsum(values) / len(values), max(values)) for name, values in numbers.items()]


def _margin(
    trial: str, name: str, clause: Clause, seen: Iterable[tuple[int, TrialResult]], recorded: float | None
) -> list[Margin]:
    """One range; none if no run measured what the clause reads. `seen` has the seed of each trial."""
    observations = [(seed, result.observation) for seed, result in seen]
    ratios = [
        (ratio(clause, observation.measurements, observation.parameters, observation.device), seed)
        for seed, observation in observations
    ]
    measured_ratios = [(value, seed) for value, seed in ratios if value is not None]
    if not measured_ratios:
        return []
    smallest, largest = min(measured_ratios, key=itemgetter(0)), max(measured_ratios, key=itemgetter(0))
    worst = largest if trial == SUBJECT else smallest
    return [Margin(trial, name, smallest[0], largest[0], recorded, worst[1])]


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.3g}")
