"""The contract of a suite that has none, and contracts that state what a suite executes now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.base.strictjson import JsonObject
from harness.suite import weakened
from harness.suite.ledger import stated

__all__ = ["LISTS", "Asked", "contract_of", "faults_of"]

LISTS: Final = {
    "failed": ("Failed tests, files that cannot be imported, and a session that ends early.", "a suite passes first"),
    "missing": ("Cells that no test has any more.", "every cell of the reference is executed"),
    "skipped": ("Cells that are skipped now, with their reasons.", "every cell of the reference is executed"),
    "expected_to_fail": ("Cells that are expected to fail now.", "every cell of the reference is executed"),
    "deselected": ("Cells that an option, conftest.py or an early end leaves out.", "every cell is executed"),
    "fewer_assertions": ("Cells in which fewer assertions of the source text hold.", "no fewer than in the reference"),
    "fewer_checks": ("Cells in which assertions hold less often.", "no less often than in the reference"),
    "unexpected": ("Cells that the contract does not state.", "the contract states all cells"),
    "deaf": ("Tests that pass although one of their assertions was made to fail.", "a failure fails its test"),
}  # fmt: skip
_COUNTS: Final = {
    "executed_cells": ("cells", "Tests that passed, each set of parameters counted."),
    "assertions": ("assertions", "Places in the source text that asserted, summed over the cells."),
    "checks": ("assertions", "How often assertions held."),
    "cells_without_assertion": ("cells", "Cells that passed and asserted nothing."),
    "skipped_cells": ("cells", "Cells that are skipped."),
    "forced_failures": ("assertions", "Assertions that were made to fail, one in a test and round."),
}
_MUTANTS: Final = {
    "mutants_killed": "Mutants of the code under test that a test notices.",
    "mutants_survived": "Mutants that no test notices, of those that were tried.",
    "mutants_timed_out": "Mutants with which the suite did not end in time.",
    "mutants_not_reached": "Mutants of statements that no test executes. They are not tried.",
    "mutants_not_tried": "Mutants that the budget of time left out, or that could not be made.",
}
_NEVER_ZERO: Final = ("executed_cells", "assertions")


@dataclass(frozen=True)
class Asked:
    """What a suite is asked."""

    name: str
    """Of the claim, such as `F-TESTS-MARKUPSAFE-001`."""
    paths: Sequence[str]
    options: Sequence[str] = ()
    rounds: int = 1
    tests: Sequence[str] = ()
    """The lines that state what it has to execute: see `harness.suite.ledger.stated`."""
    exactly: bool = False
    """Whether it may execute no other cells."""
    checks: bool = True
    """Whether it matters how often assertions hold, and not only that they do."""
    source: str = "the suite's own first run"
    """Where the lines come from."""
    seconds: float = 3600.0
    mutate: Sequence[str] = ()
    """Modules and packages whose mutants the suite should kill, by their paths."""
    budget_seconds: float = 600.0
    """After which no mutant is begun."""
    workers: int = 1
    """How many mutants are tried side by side."""
    most_survivors: float | None = None
    """The largest share of them that may survive; None for any."""


def contract_of(asked: Asked, planted: Mapping[str, str]) -> dict[str, Any]:
    """Return a contract for a suite.

    Args:
        planted: a test for each kind of defect, as `faults_of` chooses them.
    """
    parameters: JsonObject = {
        "paths": [*asked.paths], "options": [*asked.options], "exactly": asked.exactly, "checks": asked.checks,
        "rounds": asked.rounds, "fault": None, "fault_function": None, "tests": [*asked.tests],
    }  # fmt: skip
    if asked.mutate:
        code = {"mutate": [*asked.mutate], "budget_seconds": asked.budget_seconds, "workers": asked.workers}
        parameters = {**parameters, **code, "most_mutants": None}
    return {
        "id": asked.name,
        "issue": "TESTS",
        "spec": "TESTS",
        "title": f"The tests at {' '.join(asked.paths)} test what they did"[:120],
        "claim": "Every cell of the reference is executed, with no fewer assertions, and a test fails if one of its "
        "assertions does.",
        "falsifier": "harness.suite.falsifier:falsify",
        "subject": "harness.suite.session:of_project",
        "target": {"type": "cpu"},
        "profiles": {
            "full": {
                "requires": {"device": "any", "modules": ["pytest", *(["cosmic_ray"] if asked.mutate else [])]},
                "parameters": parameters,
                "limits": {"seconds": asked.seconds + 2 * asked.budget_seconds * bool(asked.mutate)},
            }
        },
        "observation": {"type": "object", "properties": _observation(asked), "examples": [_example(asked)]},
        "mutants": [*(_mutant(kind, function, asked) for kind, function in planted.items()), *_hidden(asked)],
        "sources": [{"uri": asked.source, "locator": " ".join(asked.paths)}],
    }


def faults_of(tests: Sequence[str], root: Path) -> Mapping[str, str]:
    """Return a test for each kind of defect: of those in which it can be planted, one with the most assertions."""
    expected = stated(tests, exactly=True)
    ranked = sorted((-min(places for places, _ in one.cells.values()), name) for name, one in expected.items())
    asserting = [name for places, name in ranked if places]
    found = {kind: next((name for name in asserting if _fits(kind, name, root)), None) for kind in weakened.FAULTS}
    found[weakened.COLLAPSED] = next((name for name in asserting if len(expected[name].cells) > 1), None)
    return {kind: name for kind, name in found.items() if name is not None}


def _fits(kind: str, function: str, root: Path) -> bool:
    try:
        source = (root / function.partition("::")[0]).read_text(encoding="utf-8")
        return weakened.can_plant(source, {"kind": kind, "function": function})
    except (OSError, ValueError, SyntaxError):
        return False


def _observation(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (unit, text) in _COUNTS.items():
        least = int(name in _NEVER_ZERO)
        found[name] = {"type": "integer", "minimum": least, "x-unit": unit, "description": text}
        found[name]["x-source"] = "a suite that asserts nothing tests nothing" if least else "a count"
    for name, (text, source) in LISTS.items():
        found[name] = {"type": "array", "maxItems": 0, "x-source": source, "description": text}
    if asked.mutate:
        for name, text in _MUTANTS.items():
            found[name] = {"type": "integer", "minimum": 0, "x-unit": "mutants", "x-source": "a count"}
            found[name]["description"] = text
        found["survived_share"] = {
            "type": "number", "minimum": 0, "x-unit": "ratio", "x-source": "a share",
            "description": "Survivors among the mutants that survived or were killed.",
        }  # fmt: skip
        if asked.most_survivors is not None:
            found["survived_share"] |= {"maximum": asked.most_survivors, "x-source": "what the suite is held to"}
        found["survivors"] = {
            "type": "array",
            "description": "Place of each survivor, the line there, and what it becomes.",
        }
    return found


def _example(asked: Asked) -> dict[str, Any]:
    mutants = {**dict.fromkeys(_MUTANTS, 1), "survived_share": 0.0, "survivors": []} if asked.mutate else {}
    return {**dict.fromkeys(_COUNTS, 1), **{name: [] for name in LISTS}, **mutants}


def _mutant(kind: str, function: str, asked: Asked) -> dict[str, Any]:
    changed: dict[str, Any] = {"rounds": int(kind == "failures-caught")}
    if asked.mutate:
        changed["mutate"] = []
    lines = [line for line in asked.tests if line.startswith(f"{function}: ")]
    return {
        "id": kind,
        "subject": "harness.suite.session:of_project",
        "parameters": {"fault": kind, "fault_function": function, "tests": lines, **changed},
        "violates": [weakened.FAULTS[kind].violates],
        "defect": f"{weakened.FAULTS[kind].defect}: {function}",
    }


def _hidden(asked: Asked) -> list[dict[str, Any]]:
    """Return the mutant that no mutant of the code dies in, if a share of survivors is refused. Three show it."""
    if asked.most_survivors is None:
        return []
    fault = weakened.FAULTS[weakened.HIDDEN]
    return [
        {
            "id": weakened.HIDDEN,
            "subject": "harness.suite.session:of_project",
            "parameters": {"fault": weakened.HIDDEN, "fault_function": "", "rounds": 0, "most_mutants": 3},
            "violates": [fault.violates],
            "defect": fault.defect,
        }
    ]
