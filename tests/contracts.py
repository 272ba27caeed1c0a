"""A tiny project with one valid contract, for tests to break in one place at a time."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base.device import Device
from harness.contract import Contract, parse
from harness.judging.observation import Observation, Residency

__all__ = [
    "FALSIFIER",
    "IDENTIFIER",
    "contract_of",
    "document",
    "healthy",
    "observe",
    "put",
    "write_calibrated",
    "write_project",
]

IDENTIFIER = "F-DEMO-SORT-001"

FALSIFIER = '''\
"""A falsifier, its subject and a mutant, small enough for a test."""

from harness import Setting, Trial


class Sorter:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def sort(self, items: list[float]) -> list[float]:
        return sorted(items)


class Forgetful(Sorter):
    def sort(self, items: list[float]) -> list[float]:
        return sorted(items)[1:]


def falsify(trial: Trial[Sorter]) -> None:
    items = [3.0, 1.0, 2.0]
    with trial.subject_fault():
        result = trial.subject.sort(items)
    trial.measure(given=len(items), returned=len(result), smallest=min(result), largest=max(result), values=result)
    trial.resolve(device="cpu", steps=3)
'''

_DOCUMENT: dict[str, Any] = {
    "$schema": "../../schema/contract.schema.json",
    "id": IDENTIFIER,
    "issue": "DEMO-1",
    "spec": "SPEC-DEMO-001",
    "title": "Sorting keeps every item",
    "claim": "The sorter returns every item it was given, the smallest first.",
    "sources": [{"uri": "https://example.org/sorting", "locator": "section 1"}],
    "falsifier": "falsifiers.demo.sorting:falsify",
    "subject": "falsifiers.demo.sorting:Sorter",
    "target": {"type": "cpu"},
    "profiles": {
        "full": {"requires": {"device": "any"}, "parameters": {"steps": 3}, "limits": {"seconds": 60}},
        "reduced": {"requires": {"device": "any"}, "parameters": {"steps": 3}, "limits": {"seconds": 30}},
    },
    "observation": {
        "type": "object",
        "properties": {
            "given": {"type": "integer", "const": 3, "x-source": "the falsifier gives three items"},
            "returned": {"type": "integer", "minimum": 0},
            "smallest": {"type": "number"},
            "largest": {"type": "number"},
            "values": {"type": "array", "minItems": 1, "items": {"type": "number"}},
        },
    },
    "rules": [
        {"id": "nothing-lost", "rule": "self.returned == self.given", "message": "items were lost or made up"},
        {"id": "ordered", "rule": "self.smallest <= self.largest", "message": "the smallest is not the smallest"},
    ],
    "mutants": [
        {
            "id": "forgets-one",
            "subject": "falsifiers.demo.sorting:Forgetful",
            "violates": ["nothing-lost"],
            "defect": "drops the first item",
        }
    ],
}


def document(**changes: Any) -> dict[str, Any]:
    """The valid contract as parsed JSON, with top-level keys replaced; a key set to `...` is left out."""
    whole = {**copy.deepcopy(_DOCUMENT), **changes}
    return {key: value for key, value in whole.items() if value is not ...}


def contract_of(content: dict[str, Any]) -> Contract:
    """The contract of parsed JSON. Its entry points are not looked up."""
    return parse(content, Path("contracts/demo/F-DEMO-SORT-001/contract.json"), b"")


def timed(contract: Contract) -> Contract:
    """The contract with a device of its own in each profile."""
    return replace(
        contract, profiles={name: replace(profile, exclusive=True) for name, profile in contract.profiles.items()}
    )


def healthy(**changes: Any) -> dict[str, Any]:
    """Measurements that satisfy the valid contract, some of them replaced; a name set to `...` is left out."""
    whole = {"given": 3, "returned": 3, "smallest": 1.0, "largest": 3.0, "values": [1.0, 2.0, 3.0], **changes}
    return {name: value for name, value in whole.items() if value is not ...}


def observe(measurements: Any, **changes: Any) -> Observation:
    """An observation of these measurements. Its circumstances are as requested, and its other fields as given."""
    given: dict[str, Any] = {
        "subject": "falsifiers.demo.sorting:Sorter",
        "profile": "reduced",
        "parameters": {"steps": 3},
        "device": Device("cpu", "a CPU"),
        "measurements": measurements,
        "resolved": {"device": "cpu", "steps": 3},
        "residency": Residency(),
    }
    return Observation(**{**given, **changes})


def write_project(root: Path, *contents: dict[str, Any]) -> Path:
    """Write a project with these contracts (by default the valid one) and the falsifier; return its root."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text("[tool.harness]\n", encoding="utf-8")
    falsifiers = root / "falsifiers" / "demo"
    falsifiers.mkdir(parents=True, exist_ok=True)
    (falsifiers / "sorting.py").write_text(FALSIFIER, encoding="utf-8")
    for content in contents or (document(),):
        write_contract(root, content)
    return root


def write_calibrated(root: Path, content: dict[str, Any], ratios: dict[str, dict[str, dict[str, float]]]) -> Path:
    """Write a contract and its calibration, by profile, mutant and clause; return the calibration's path."""
    profiles = {profile: {"mutants": mutants} for profile, mutants in ratios.items()}
    calibration = json.dumps({"id": content["id"], "profiles": profiles}).encode()
    contract = write_contract(root, {**content, "calibration": hashlib.sha256(calibration).hexdigest()})
    path = contract.with_name("calibration.json")
    path.write_bytes(calibration)
    return path


def put(path: Path, text: str) -> Path:
    """Write a file, and the folders that it needs; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_contract(root: Path, content: dict[str, Any] | str, name: str = "") -> Path:
    """Write one contract into a project, as JSON or as raw text; return its path."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    stem = name or (IDENTIFIER if isinstance(content, str) else str(content.get("id", IDENTIFIER)))
    return put(root / "contracts" / "demo" / stem / "contract.json", text)
