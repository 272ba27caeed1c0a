"""A project whose falsifier searches. Its subject is wrong, raises, dies or hangs on some cases."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from tests.contracts import put

__all__ = ["CLAIM", "CONTRACT", "write_searching_project"]

CLAIM = "F-TOY-ADD-001"

CONTRACT: dict[str, Any] = {
    "id": CLAIM,
    "issue": "TOY-2",
    "spec": "SPEC-TOY",
    "title": "Adding adds",
    "claim": "The sum of two numbers below a thousand is their sum.",
    "sources": [{"uri": "urn:toy"}],
    "falsifier": "toy.adding:falsify",
    "subject": "toy.adding:Adder",
    "profiles": {
        "reduced": {
            "requires": {"device": "any"},
            "parameters": {"cases": 60, "how": "well", "largest": 1000},
            "limits": {"seconds": 20},
        }
    },
    "observation": {
        "type": "object",
        "properties": {
            "cases": {"type": "integer", "minimum": 1, "x-source": "none tried, none refuted"},
            "errors": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "number", "minimum": 0, "maximum": 0.5, "x-source": "integers"},
            },
        },
    },
    "rules": [{"id": "every-case-tried", "rule": "self.cases == parameters.cases", "message": "cases were left out"}],
    "mutants": [
        {
            "id": "overflows",
            "subject": "toy.adding:Adder",
            "parameters": {"how": "overflows"},
            "violates": ["errors[].maximum"],
            "defect": "a sum beyond 255 starts again at 0",
        },
        {
            "id": "dies-of-large-numbers",
            "subject": "toy.adding:Adder",
            "parameters": {"how": "dies"},
            "violates": ["subject.completes"],
            "defect": "the process ends where a number exceeds 300",
        },
    ],
}

MODULE = """
import os
import signal
import time

from hypothesis import strategies as st


class Adder:
    def __init__(self, setting):
        self.how = setting.parameters["how"]
        self.calls = self.wrong = 0

    def add(self, left, right):
        match self.how:
            case "overflows":
                return (left + right) % 256
            case "raises" if left + right > 200:
                raise ArithmeticError("token=hunter2hunter2 too large")
            case "dies" if max(left, right) > 300:
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hangs" if left > 300:
                time.sleep(60)
            case "is wrong once" if left + right > 255:
                self.wrong += 1
                return left + right + (self.wrong == 1)
            case "is wrong and dies later":
                self.calls += 1
                if self.calls > 60:
                    os.kill(os.getpid(), signal.SIGKILL)
                return (left + right) % 256
            case "nan" if left > 300:
                return float("nan")
        return left + right


class Repaired(Adder):
    def add(self, left, right):
        return left + right


class StillWrong(Adder):
    def add(self, left, right):
        return left + right + 1


class NoFloats(Adder):
    def add(self, left, right):
        raise SystemExit("no")


def falsify(trial):
    trial.resolve(device="cpu")
    largest = trial.parameters["largest"]
    numbers = st.integers(0, largest)

    def check(case):
        if trial.parameters["how"] == "falsifier raises":
            raise KeyError("mine")
        with trial.subject_fault():
            total = trial.subject.add(case["left"], case["right"])
        return {"errors": abs(total - case["left"] - case["right"])}

    cases = st.fixed_dictionaries({"left": numbers, "right": numbers})
    tried = trial.search(cases, check, examples=trial.parameters["cases"], first=[{"left": 0, "right": 0}])
    trial.measure(cases=tried)
"""


def write_searching_project(root: Path, **changes: Any) -> Path:
    """Write the project, top-level keys of its contract replaced; return its root."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "toy").mkdir(exist_ok=True)
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "adding.py").write_text(MODULE)
    (root / "contracts").mkdir(exist_ok=True)
    contract = {**copy.deepcopy(CONTRACT), **changes}
    put(root / "contracts" / CLAIM / "contract.json", json.dumps(contract))
    return root
