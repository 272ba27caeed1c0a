"""Tries to refute that a suite tests what it seems to test: the falsifier of `harness falsify-tests`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.authoring.trial import Trial
from harness.tools.suite.ledger import LONGEST, PASSED, Cell, Ledger, lines_of, stated
from harness.tools.suite.session import Suite
from harness.tools.suite.survivors import try_mutants
from harness.tools.suite.unnoticed import try_results

__all__ = ["EXECUTED", "MUTANTS", "NOT_EXECUTED", "deaf_tests", "falsify"]

EXECUTED: Final = "executed.txt"
"""The artifact with the cells that passed, which a later run is compared with."""
NOT_EXECUTED: Final = "not_executed.txt"
"""The artifact with the others, with their reasons."""
MUTANTS: Final = "mutants.txt"
"""The artifact with what came of every mutant of the code under test, in the order of the seed, and the survivors."""


def falsify(trial: Trial[Suite]) -> None:
    """Run the suite, compare what it executed with what is expected, and make its assertions fail one by one."""
    given, suite = trial.parameters, trial.subject
    expected = stated(given["tests"])
    if given["fault"] is not None:  # a mutant's contract expects only the cells of that test
        suite = suite.weakened({"kind": given["fault"], "function": given["fault_function"]})
    ledger = suite.run()
    trial.used(suite.files(ledger))
    _keep(trial.artifacts / EXECUTED, lines_of(ledger.no_more_than(expected)))
    others = (f"{cell.outcome}: {_what(name, text)}: {cell.reason}" for name, text, cell in ledger.cells())
    _keep(trial.artifacts / NOT_EXECUTED, (line for line in others if not line.startswith(PASSED)))
    executed = [cell for _, _, cell in ledger.cells(PASSED)]
    lacks = ledger.against(expected, exactly=given["exactly"]).measurements()
    trial.measure(
        executed_cells=len(executed),
        assertions=sum(cell.places for cell in executed),
        checks=sum(cell.held for cell in executed),
        cells_without_assertion=sum(not cell.places for cell in executed),
        skipped_cells=sum(cell.outcome == "skipped" for _, _, cell in ledger.cells()),
        failed=[*ledger.broken, *(_what(name, text) for name, text, _ in ledger.cells("failed"))][:LONGEST],
        **{**lacks, **({} if given["checks"] else {"fewer_checks": []})},
    )
    trial.measure(**deaf_tests(suite, ledger, given["rounds"], trial.seed))
    if given.get("mutate"):
        score = try_mutants(
            suite,
            given["mutate"],
            budget=given["budget_seconds"],
            most=given.get("most_mutants"),
            seed=trial.seed,
            workers=given["workers"],
            workspace=trial.workspace / "mutants",
        )
        report_lines = [f"{mutant.fate}: {mutant.place}\n" for mutant in score.mutants]
        report_lines += [f"\n{survivor.place}\n{survivor.diff}\n" for survivor in score.survivors()]
        unnoticed, replacements = try_results(suite, given["mutate"], workspace=trial.workspace / "results")
        report_lines += ["\n", *(f"unnoticed: {place}\n" for place in unnoticed)]
        (trial.artifacts / MUTANTS).write_text("".join(report_lines), encoding="utf-8")
        trial.measure(**score.measurements(), replacements=replacements, unnoticed_results=unnoticed[:LONGEST])
    trial.resolve(device=trial.device.partition(":")[0])


def _keep(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")


def deaf_tests(suite: Suite, ledger: Ledger, rounds: int, seed: int) -> dict[str, object]:
    """Make assertions fail where they held, one in each test and round, and return the tests that pass all the same.

    Args:
        ledger: what the suite executed.
        rounds: how many sessions run; those of a test with fewer assertions are fewer.
    """
    deaf: list[str] = []
    forced_failures = 0
    for number in range(rounds):
        places = {cell.identifier: _place(cell, number, seed) for _, _, cell in ledger.cells(PASSED)}
        forced = {identifier: place for identifier, place in places.items() if place is not None}
        if not forced:
            break
        now = suite.run(forced=forced)
        for name, text, cell in now.cells():
            if cell.identifier in forced and forced[cell.identifier] in cell.forcible:
                forced_failures += 1
                if cell.outcome != "failed":
                    deaf.append(f"{_what(name, text)}: {cell.outcome} though {forced[cell.identifier]} failed")
        if now.status == 0 and any(now.cells("failed")):
            deaf.append("pytest ended with status 0 though tests failed")
    return {"forced_failures": forced_failures, "deaf": deaf[:LONGEST]}


def _place(cell: Cell, number: int, seed: int) -> str | None:
    """Return the assertion of a cell that is made to fail in a round. The seed decides the order of the assertions."""
    if number >= len(cell.forcible):
        return None
    start = int.from_bytes(hashlib.sha256(f"{seed} {cell.identifier}".encode()).digest()[:8])
    return cell.forcible[(start + number) % len(cell.forcible)]


def _what(name: str, text: str) -> str:
    return f"{name} [{text}]" if text else name
