"""A root-cause tournament: a full factorial experiment over candidate causes of a failure, with a dose response.

The contract's parameters name the candidate causes and the levels of each. The first level is the fix, which removes
the cause; the last one is the level at which the failure occurred.

    "causes": ["sequence", "modules"],
    "sequence": [2048, 8192, 32768],
    "modules": [0, 27, 195]

The falsifier runs one attempt at given levels:

    def falsify(trial: Trial[Trainer]) -> None:
        def attempt(levels: Levels) -> Attempt:
            with trial.subject_fault():
                blocks = trial.subject.upload(levels["sequence"], levels["modules"])
            return Attempt(failed=blocks < 24, severity=1 - blocks / 24)

        decide(trial, attempt)

`decide` attempts every combination of fixes, in random order. It measures:

- `baseline_fails`: whether the failure occurs without any fix, both in the experiment and once more at its end.
- `sufficient`: the causes whose fix alone removes the failure.
- `necessary`: the causes whose fix is in every set of fixes that removes the failure.
- `minimal`: the minimal sets of fixes that remove the failure.
- `surviving`: the causes in a minimal set whose levels scale the failure. With the other fixes of the set applied, the
  severity never decreases from level to level, and increases from the first to the last. Other causes are refuted.

A cause is the root cause if it alone survives and its fix is sufficient and necessary. If the failure needs two causes
together, each fix is sufficient and neither is necessary. If either of two causes produces the failure, both fixes are
necessary and neither is sufficient.

The experiment is a factorial design at two levels: Box, Hunter and Hunter, "Statistics for Experimenters", 2005,
chapter 5.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from harness.authoring.trial import Trial
from harness.base.strictjson import JsonObject

__all__ = ["Attempt", "Levels", "causes_of", "decide"]

_MOST_CAUSES = 6

Levels = Mapping[str, Any]
"""The level of each cause, by its name."""
Fixes = frozenset[str]


@dataclass(frozen=True)
class Attempt:
    """The result of one attempt.

    Attributes:
        failed: whether the failure occurred.
        severity: a finite number in any unit that grows with the failure.
    """

    failed: bool
    severity: float


def causes_of(parameters: JsonObject) -> dict[str, Sequence[Any]]:
    """Return the levels of each candidate cause, from the fix to the failure.

    Raises:
        ValueError: there are fewer than two causes or more than six, or the first and last level of one are equal.
    """
    names = parameters.get("causes", [])
    if not 2 <= len(set(names)) == len(names) <= _MOST_CAUSES:
        raise ValueError(f"the parameter causes: name two to {_MOST_CAUSES} different causes")
    causes: dict[str, Any] = {name: parameters.get(name) for name in names}
    for name, levels in causes.items():
        if not isinstance(levels, list) or len(levels) < 2 or levels[0] == levels[-1]:
            raise ValueError(f"the parameter {name}: list its levels, from that of its fix to that of the failure")
    return causes


def decide(trial: Trial[Any], attempt: Callable[[Levels], Attempt]) -> None:
    """Attempt all combinations of fixes, then the levels of each cause, and record the measurements listed above.

    Raises:
        ValueError: `causes_of` refuses the parameters, or a severity is not finite.
    """
    causes = causes_of(trial.parameters)
    order = random.Random(trial.seed)  # noqa: S311 - no secret

    def run_attempt(fixes: Fixes, **changed: Any) -> Attempt:
        levels = {name: levels[0] if name in fixes else levels[-1] for name, levels in causes.items()} | changed
        outcome = attempt(levels)
        if not math.isfinite(outcome.severity):
            raise ValueError(f"the severity of an attempt is {outcome.severity}")
        trial.log(f"{levels}: {'fails' if outcome.failed else 'holds'}, severity {outcome.severity:.4g}")
        return outcome

    design = list(_subsets(causes))
    fails = {fixes: run_attempt(fixes).failed for fixes in order.sample(design, len(design))}
    removing = [fixes for fixes in design if not fails[fixes]]
    minimal = [fixes for fixes in removing if not any(smaller < fixes for smaller in removing)]

    def scales(name: str, others: Fixes) -> bool:
        severities = [run_attempt(others, **{name: level}).severity for level in causes[name]]
        return severities[-1] > severities[0] and all(low <= high for low, high in pairwise(severities))

    trial.measure(
        sufficient=[name for name in causes if not fails[frozenset({name})]],
        necessary=[name for name in causes if removing and all(name in fixes for fixes in removing)],
        minimal=[[name for name in causes if name in fixes] for fixes in minimal],
        surviving=[name for name in causes if any(scales(name, fixes - {name}) for fixes in minimal if name in fixes)],
        baseline_fails=fails[frozenset()] and run_attempt(frozenset()).failed,
    )


def _subsets(names: Collection[str]) -> Iterator[Fixes]:
    """All sets of fixes, the smallest first."""
    for size in range(len(names) + 1):
        yield from map(frozenset, combinations(names, size))
