"""The declarations of the modules of contract/, judging/ and evidence/.

A limit decides which bundles are accepted, and every version of the harness must have the same one. So each number is
recorded, and a change is deliberate: `python -m tests.test_core` records the present numbers.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PACKAGES = ("harness.contract", "harness.judging", "harness.evidence")
PLACE = Path(__file__).parent / "recorded" / "core.json"
RECORDED: dict[str, dict[str, Any]] = json.loads(PLACE.read_text())


def modules() -> Iterator[ModuleType]:
    """Every module of the core."""
    for package in PACKAGES:
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
            yield importlib.import_module(f"{package}.{found.name}")


def numbers(module: ModuleType) -> dict[str, Any]:
    """The numbers that a module states, without those that it computes or imports."""
    source = inspect.getsource(module)
    stated = re.findall(r"^([A-Za-z_][A-Za-z_, ]*)(?:: [\w\[\]]+)? = [-(\d]", source, flags=re.MULTILINE)
    names = [name for names in stated for name in names.split(", ")]
    return {name: value for name in names if type(value := vars(module).get(name)) in (int, float)}


def qualities(kind: type[Any]) -> dict[str, Any]:
    """The form in which a class is declared, and the numbers among the defaults of its fields."""
    description: dict[str, Any] = {"final": getattr(kind, "__final__", False)}
    if dataclasses.is_dataclass(kind):
        description["frozen"] = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        description["slots"] = "__slots__" in vars(kind)
        description |= {
            field.name: field.default for field in dataclasses.fields(kind) if type(field.default) in (int, float, bool)
        }
    return description


def declared(module: ModuleType) -> dict[str, Any]:
    """The limits of a module, the form of its classes, and the number of answers that its functions keep."""
    description: dict[str, Any] = numbers(module)
    for name, var in vars(module).items():
        if getattr(var, "__module__", "") != module.__name__:
            continue
        if isinstance(var, type):
            description |= {f"{name}.{quality}": value for quality, value in qualities(var).items()}
        elif callable(var):
            description[name] = getattr(var, "cache_parameters", lambda: None)()
    return {name: value for name, value in description.items() if value is not None}


def test_every_module_can_be_imported() -> None:
    """Some modules declare nothing that is recorded."""
    assert {module.__name__ for module in modules()} >= RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_module_declares(name: str) -> None:
    """Names may come and go. A new name needs no record until `make mutants` finds that no test depends on it."""
    module = importlib.import_module(name)
    now = declared(module)
    recorded = {key: value for key, value in RECORDED[name].items() if key in now or hasattr(module, key)}
    assert {key: now.get(key) for key in recorded} == recorded


if __name__ == "__main__":
    found = {module.__name__: told for module in modules() if (told := declared(module))}
    PLACE.write_text(json.dumps(found, indent=1) + "\n")
