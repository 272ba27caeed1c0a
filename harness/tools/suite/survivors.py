"""Tries mutants of the code under test against a suite, in copies of its folder, for a budget of time.

    score = try_mutants(suite, ["src/package"], budget=600, seed=0, workers=1, workspace=folder)
    print(score.measurements()["survived_share"], *score.survivors())

The suite first runs without a mutant in a copy, and once more with its lines traced. A statement that only runs while
tests are called is tried with these tests first, any other with all. A mutant survives only if all tests pass. A mutant
of a statement that never runs is not tried.
"""

from __future__ import annotations

import ast
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from harness.authoring.faults import NotMeasured
from harness.base import regular_file
from harness.base.extras import installation
from harness.base.strictjson import JsonObject
from harness.tools.suite.ledger import LONGEST, PASSED, Ledger
from harness.tools.suite.session import Suite

if TYPE_CHECKING:
    from cosmic_ray.work_item import WorkItem

__all__ = ["Score", "Tried", "missing", "try_mutants"]

NOT_REACHED: Final = "not reached"
NOT_TRIED: Final = "not tried"
_LEFT_OUT: Final = (".git", ".hg", ".nox", ".tox", ".venv", "__pycache__", "node_modules", ".*_cache")


@final
@dataclass(frozen=True)
class Tried:
    """A mutant with its fate."""

    fate: str
    place: str
    """`file:line operator`."""
    diff: str = ""

    def line(self) -> str:
        """Return the place, the line there, and what it becomes."""
        changed = [one for one in self.diff.splitlines()[2:] if one.startswith(("-", "+"))]
        return " | ".join([self.place, *(f"{one[0]} {one[1:].strip()}" for one in changed)])


@final
@dataclass(frozen=True)
class Score:
    """The mutants with their fates, in the order of the seed."""

    mutants: tuple[Tried, ...]

    def survivors(self) -> list[Tried]:
        """Return those that no test kills."""
        return [one for one in self.mutants if one.fate == "survived"]

    def measurements(self) -> JsonObject:
        """Return counts by fate, and the share of survivors among the killed and the survivors.

        Raises:
            NotMeasured: no mutant was killed or survived.
        """
        count = Counter(one.fate for one in self.mutants)
        decided = count["killed"] + count["survived"]
        if not decided:
            told = ", ".join(f"{number} {fate}" for fate, number in count.items())
            raise NotMeasured(f"no mutant was killed or survived: {told or 'there is none'}")
        names = ("killed", "survived", "timed out", NOT_REACHED, NOT_TRIED)
        return {
            **{f"mutants_{name.replace(' ', '_')}": count[name] for name in names},
            "survived_share": count["survived"] / decided,
            "survivors": [one.line() for one in self.survivors()][:LONGEST],
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
        _copy(suite.root, copy, workspace)
    items = mutation.ordered(mutation.planned(copies[0], paths), seed)
    modules = sorted({str(item.mutations[0].module_path) for item in items})
    for copy in copies:
        outside = [
            one for one in modules if not Path(os.path.realpath(copy / one)).is_relative_to(os.path.realpath(copy))
        ]
        if outside:
            raise NotMeasured(f"{outside[0]} is a link out of {suite.root}; only a copy is mutated")
    suites = {copy: suite.copied(copy, _roots(suite.root, modules), workspace / f"{copy.name}.runs") for copy in copies}
    begun = time.monotonic()
    tests = _passing(suites[copies[0]].run())
    limit = 10 + 5 * (time.monotonic() - begun)
    # A test of memory or time can fail while it is traced; what it executed until then counts.
    traced = suites[copies[0]].run(traced={str(copies[0] / one): one for one in modules})
    chosen = _choose(copies[0], items, traced.lines, tests)
    if not any(chosen.values()):
        raise NotMeasured(f"no test executes {', '.join(paths)} in a copy of {suite.root}; is it imported from there?")

    def one(copy: Path, item: WorkItem) -> Tried:
        for some in (chosen[item.job_id], tests):
            result = mutation.attempt(copy, item, suites[copy].only(some), limit)
            found = mutation.fate(result)
            if found != mutation.SURVIVED or some == tests:
                break
        diff = (result.diff or "").replace(f"{copy}/", "").partition("\n")[2]
        return Tried(found or NOT_TRIED, mutation.place(item), diff)

    used = mutation.Copies(copies, lambda copy: None, time.monotonic() + budget)
    reached = [item for item in items if chosen[item.job_id]]
    tried = {item.job_id: told for item, told in used.each(reached[:most], one)}
    fates = (
        tried.get(item.job_id, Tried(NOT_TRIED if chosen[item.job_id] else NOT_REACHED, mutation.place(item)))
        for item in items
    )
    return Score(tuple(fates))


def _copy(root: Path, copy: Path, workspace: Path) -> None:
    def left_out(folder: str, names: list[str]) -> set[str]:
        environments = {name for name in names if (Path(folder) / name / "pyvenv.cfg").exists()}
        own = {name for name in names if os.path.realpath(Path(folder, name)) == os.path.realpath(workspace)}
        return {*shutil.ignore_patterns(*_LEFT_OUT)(folder, names), *environments, *own}

    shutil.copytree(root, copy, symlinks=True, ignore=left_out)


def _roots(root: Path, modules: Iterable[str]) -> list[Path]:
    """Return the folders from which modules are imported: those that hold no `__init__.py`."""
    found = dict.fromkeys((root / module).parent for module in modules)
    return list(
        dict.fromkeys(
            next(one for one in (folder, *folder.parents) if one == root or not (one / "__init__.py").exists())
            for folder in found
        )
    )


def _passing(ledger: Ledger) -> list[str]:
    broken = [*ledger.broken, *(cell.identifier for _, _, cell in ledger.cells("failed"))]
    if broken:
        raise NotMeasured(f"in a copy of the folder, the suite fails without a mutant: {broken[0]}")
    return [cell.identifier for _, _, cell in ledger.cells(PASSED)]


def _choose(
    tree: Path, items: Iterable[WorkItem], lines: Mapping[str, frozenset[str]], tests: list[str]
) -> Mapping[str, list[str]]:
    """Return the tests that reach each mutant, by its id: all of them if its statement runs outside of tests."""
    parsed: dict[Path, ast.Module] = {}
    chosen = {}
    for item in items:
        module, line = item.mutations[0].module_path, item.mutations[0].start_pos[0]
        if module not in parsed:
            parsed[module] = ast.parse(regular_file.read(tree / module))
        places = {f"{module}:{number}" for number in _statement(parsed[module], line)}
        reaching = [test for test in tests if not places.isdisjoint(lines.get(test, ()))]
        chosen[item.job_id] = reaching if places.isdisjoint(lines.get("", ())) else tests
    return chosen


def _statement(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement at a line; of a block, those until its body begins."""
    found = range(line, line + 1)
    size = float("inf")
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            begin = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            last = node.end_lineno or begin
            if begin <= line <= last and last - begin < size:
                size = last - begin
                inner = [one.lineno for one in ast.walk(node) if isinstance(one, ast.stmt) and one is not node]
                found = range(begin, min(inner, default=last) + 1)
    return found
