"""Tries mutants of the code under test against a suite, in copies of its folder, for a budget of time.

    score = try_mutants(suite, ["src/package"], budget=600, seed=0, workers=1, workspace=folder)
    print(score.measurements()["survived_share"], *score.survivors())

The suite first runs without a mutant in a copy, and once more with its lines traced. A statement that only runs while
tests are called is tried with these tests first, any other with all. A mutant survives only if all tests pass. A mutant
of a statement that never runs is not tried.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from harness.authoring.faults import NotMeasured
from harness.base.plugins import installation
from harness.base.strictjson import JsonObject
from harness.tools.suite.copies import copy_tree, passing, reaching, suite_of_copy
from harness.tools.suite.ledger import LONGEST
from harness.tools.suite.session import Suite

if TYPE_CHECKING:
    from cosmic_ray.work_item import WorkItem

__all__ = ["MutantResult", "Score", "missing", "try_mutants"]

NOT_REACHED: Final = "not reached"
NOT_TRIED: Final = "not tried"


@final
@dataclass(frozen=True)
class MutantResult:
    """A mutant with its fate."""

    fate: str
    place: str
    """`file:line operator`."""
    diff: str = ""

    def line(self) -> str:
        """Return the place, the line there, and what it becomes."""
        changed = [line for line in self.diff.splitlines()[2:] if line.startswith(("-", "+"))]
        return " | ".join([self.place, *(f"{line[0]} {line[1:].strip()}" for line in changed)])


@final
@dataclass(frozen=True)
class Score:
    """The mutants with their fates, in the order of the seed."""

    mutants: tuple[MutantResult, ...]

    def survivors(self) -> list[MutantResult]:
        """Return those that no test kills."""
        return [mutant for mutant in self.mutants if mutant.fate == "survived"]

    def measurements(self) -> JsonObject:
        """Return counts by fate, and the share of survivors among the killed and the survivors.

        Raises:
            NotMeasured: no mutant was killed or survived.
        """
        count = Counter(mutant.fate for mutant in self.mutants)
        decided = count["killed"] + count["survived"]
        if not decided:
            summary = ", ".join(f"{number} {fate}" for fate, number in count.items())
            raise NotMeasured(f"no mutant was killed or survived: {summary or 'there is none'}")
        names = ("killed", "survived", "timed out", NOT_REACHED, NOT_TRIED)
        return {
            **{f"mutants_{name.replace(' ', '_')}": count[name] for name in names},
            "survived_share": count["survived"] / decided,
            "survivors": [survivor.line() for survivor in self.survivors()][:LONGEST],
        }


def missing() -> str:
    """Return that Cosmic Ray is missing, with the remedy."""
    return f"cosmic-ray is not installed; {installation('mutation')}"


def try_mutants(
    suite: Suite,
    paths: Sequence[str],
    *,
    budget: float,
    seed: int,
    workers: int,
    workspace: Path,
    most: int | None = None,
) -> Score:
    """Try mutants of the modules at paths, relative to the suite's root.

    Args:
        budget: seconds after the first one's beginning, after which none is begun.
        most: how many are tried; None for all that the budget allows.

    Raises:
        NotMeasured: Cosmic Ray is missing, or the suite fails in a copy of its folder without a mutant.
    """
    if find_spec("cosmic_ray") is None:
        raise NotMeasured(missing())
    from harness.tools.suite import mutation

    copies = [workspace / f"copy-{number}" for number in range(workers)]
    for copy in copies:
        copy_tree(suite.root, copy, workspace)
    items = mutation.ordered(mutation.planned(copies[0], paths), seed)
    modules = sorted({str(item.mutations[0].module_path) for item in items})
    suites = {copy: suite_of_copy(suite, copy, modules, workspace / f"{copy.name}.runs") for copy in copies}
    begun = time.monotonic()
    tests = passing(suites[copies[0]].run())
    limit = 10 + 5 * (time.monotonic() - begun)
    # A test of memory or time can fail while it is traced; what it executed until then counts.
    traced = suites[copies[0]].run(traced={str(copies[0] / module): module for module in modules})
    chosen = {
        item.job_id: reaching(copies[0], str(mutation.module_path), mutation.start_pos[0], traced.lines, tests)
        for item in items
        for mutation in item.mutations
    }
    if not any(chosen.values()):
        raise NotMeasured(f"no test executes {', '.join(paths)} in a copy of {suite.root}; is it imported from there?")

    def one(copy: Path, item: WorkItem) -> MutantResult:
        for subset in (chosen[item.job_id], tests):
            result = mutation.attempt(copy, item, suites[copy].only(subset), limit)
            fate = mutation.fate(result)
            if fate != mutation.SURVIVED or subset == tests:
                break
        diff = (result.diff or "").replace(f"{copy}/", "").partition("\n")[2]
        return MutantResult(fate or NOT_TRIED, mutation.place(item), diff)

    used = mutation.Copies(copies, time.monotonic() + budget)
    reached = [item for item in items if chosen[item.job_id]]
    tried = {item.job_id: outcome for item, outcome in used.each(reached[:most], one)}
    fates = (
        tried.get(item.job_id, MutantResult(NOT_TRIED if chosen[item.job_id] else NOT_REACHED, mutation.place(item)))
        for item in items
    )
    return Score(tuple(fates))
