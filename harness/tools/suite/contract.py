"""The contract of a suite that has none, and contracts that state what a suite executes now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from harness.base import regular_file, strictjson
from harness.base.strictjson import JsonObject
from harness.tools.suite import weakened
from harness.tools.suite.ledger import stated

__all__ = ["LISTS", "SuiteSettings", "choose_faults", "contract_of"]

_TEMPLATE: Final = strictjson.loads(files("harness.tools.suite").joinpath("contract.template.json").read_bytes())
"""What the contracts of all suites have in common."""
LISTS: Final = frozenset(
    name for name, schema in _TEMPLATE["observation"]["properties"].items() if schema.get("maxItems") == 0
)
"""The measurements that list what refutes a suite."""
_MUTANT_PREFIXES: Final = ("mutants_", "surviv", "replacements", "unnoticed_")
"""The prefixes of the measurements that only --mutate takes."""


@dataclass(frozen=True)
class SuiteSettings:
    """The options of one run of `harness falsify-tests`."""

    name: str
    """The id of the claim, such as `F-TESTS-MARKUPSAFE-001`."""
    paths: Sequence[str]
    options: Sequence[str] = ()
    rounds: int = 1
    tests: Sequence[str] = ()
    """The lines that state what it has to execute: see `harness.tools.suite.ledger.stated`."""
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
    """Seconds after which no further mutant is begun."""
    workers: int = 1
    """How many mutants are tried side by side."""
    most_survivors: float | None = None
    """The largest share of them that may survive; None for any."""


def contract_of(settings: SuiteSettings, planted: Mapping[str, str]) -> dict[str, Any]:
    """Return a contract for a suite.

    Args:
        planted: a test for each kind of defect, as `choose_faults` chooses them.
    """
    parameters: JsonObject = {
        "paths": [*settings.paths], "options": [*settings.options], "exactly": settings.exactly,
        "checks": settings.checks,
        "rounds": settings.rounds, "fault": None, "fault_function": None, "tests": [*settings.tests],
    }  # fmt: skip
    if settings.mutate:
        code = {"mutate": [*settings.mutate], "budget_seconds": settings.budget_seconds, "workers": settings.workers}
        parameters = {**parameters, **code, "most_mutants": None}
    return {
        **_TEMPLATE,
        "id": settings.name,
        "title": f"The tests at {' '.join(settings.paths)} test what they did"[:120],
        "profiles": {
            "full": {
                "requires": {"device": "any", "modules": ["pytest", *(["cosmic_ray"] if settings.mutate else [])]},
                "parameters": parameters,
                "limits": {"seconds": settings.seconds + 2 * settings.budget_seconds * bool(settings.mutate)},
            }
        },
        "observation": _observation(settings),
        "mutants": _mutants(settings, planted),
        "sources": [{"uri": settings.source, "locator": " ".join(settings.paths)}],
    }


def choose_faults(tests: Sequence[str], root: Path) -> Mapping[str, str]:
    """Return a test for each kind of defect: of those in which it can be planted, one with the most assertions."""
    expected = stated(tests)
    ranked = sorted((-min(places for places, _ in cells.values()), name) for name, cells in expected.items())
    asserting = [name for places, name in ranked if places]
    tests_by_kind = {
        kind: next((name for name in asserting if _fits(kind, name, root)), None) for kind in weakened.FAULTS
    }
    tests_by_kind[weakened.COLLAPSED] = next((name for name in asserting if len(expected[name]) > 1), None)
    return {kind: name for kind, name in tests_by_kind.items() if name is not None}


def _fits(kind: str, function: str, root: Path) -> bool:
    try:
        source = regular_file.read(root / function.partition("::")[0]).decode("utf-8")
        return weakened.can_plant(source, {"kind": kind, "function": function})
    except (OSError, ValueError, SyntaxError):
        return False


def _observation(settings: SuiteSettings) -> dict[str, Any]:
    properties = {
        name: schema
        for name, schema in _TEMPLATE["observation"]["properties"].items()
        if settings.mutate or not name.startswith(_MUTANT_PREFIXES)
    }
    example = {name: {"array": [], "integer": 1, "number": 0.0}[schema["type"]] for name, schema in properties.items()}
    if settings.most_survivors is not None:
        limit = {"maximum": settings.most_survivors, "x-source": "what the suite is held to"}
        properties["survived_share"] = {**properties["survived_share"], **limit}
    return {"type": "object", "properties": properties, "examples": [example]}


def _mutants(settings: SuiteSettings, planted: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a mutant for each kind of defect, and one that kills no mutant of the code if survivors are limited."""
    mutants = []
    for kind, function in planted.items():
        tests = [line for line in settings.tests if line.startswith(f"{function}: ")]
        without_code: dict[str, Any] = {"mutate": []} if settings.mutate else {}
        mutants.append(_mutant(kind, function, tests=tests, rounds=int(kind == "failures-caught"), **without_code))
    if settings.most_survivors is not None:
        mutants.append(_mutant(weakened.HIDDEN, "", rounds=0, most_mutants=3))
    return mutants


def _mutant(kind: str, function: str, **parameters: Any) -> dict[str, Any]:
    fault = weakened.FAULTS[kind]
    return {
        "id": kind,
        "subject": "harness.tools.suite.session:of_project",
        "parameters": {"fault": kind, "fault_function": function, **parameters},
        "violates": [fault.violates],
        "defect": f"{fault.defect}: {function}" if function else fault.defect,
    }
