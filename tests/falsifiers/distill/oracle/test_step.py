"""The falsifier of F-DISTILL-STEP-001 on short runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest
import torch
from torch import Tensor

from falsifiers.distill import step
from falsifiers.distill.oracle.one_step import is_one_step
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.oracle.tolerances import TOLERANCES
from falsifiers.distill.reference import Distillation
from harness import NotMeasured
from tests.falsifiers.distill.trials import CONTRACTS, Heard, a_mutant, a_setting, a_trial

CONTRACT = json.loads((CONTRACTS / "F-DISTILL-STEP-001" / "contract.json").read_text())
SHORT = {
    "steps": 5,
    "warmup_steps": 1,
    "checkpoint_every": 3,
    "log_every": 1,
    "probe_dropout": 0.1,
    "corpus": topics.__file__,  # one file of text is read faster than the whole standard library
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, so that the teacher is trained once."""
    return tmp_path_factory.mktemp("cache")


def measured(subject: type[Distillation] | str, folder: Path, cache: Path, **parameters: Any) -> Heard:
    """The measurements of a short run of a subject, or of the mutant of that name."""
    if isinstance(subject, str):
        with a_mutant("F-DISTILL-STEP-001", subject) as (patched, falsify):
            return _heard(patched, falsify, folder, cache, **parameters)
    return _heard(subject, step.falsify, folder, cache, **parameters)


def _heard(subject: Any, falsify: Callable[[Any], None], folder: Path, cache: Path, **parameters: Any) -> Heard:
    setting = replace(a_setting(folder, **{**SHORT, **parameters}), cache=cache)
    trial, heard = a_trial(setting, subject, frozenset(CONTRACT["observation"]["properties"]))
    falsify(trial)
    return heard


def test_a_healthy_run_is_interrupted_resumed_and_checked(tmp_path: Path, cache: Path) -> None:
    """All quantities are measured. The run ends after step 4, and resumes from the checkpoint of step 3."""
    heard = measured(Distillation, tmp_path, cache)
    seen = heard.measurements
    assert seen.keys() == CONTRACT["observation"]["properties"].keys()
    assert heard.steps == [1, 2, 3, 4, 4, 5]
    assert heard.resolved == {"device": "cpu", "dtype": "float32", "steps": 5}
    assert (seen["steps_executed"], seen["resumed_after"]) == (5, 3)
    assert seen["steps_checked"] == [1, 2, 3, 4, 4, 5]
    assert seen["foreign_slots"] == seen["unseeded"] == seen["misreported"] == []
    for quantity, tolerance in TOLERANCES["float32"].items():
        assert seen.get(f"{quantity}_error", 0.0) <= tolerance


@pytest.mark.parametrize(
    ("subject", "name", "value"),
    [
        ("optimizer-forgotten", "count_error", 0.75),
        ("logs-loss-before", "misreported", [f"log: step {step}" for step in (2, 3, 4, 5)]),
        ("stops-early", "steps_executed", 4),
        ("wide-start", "initial_scale_error", pytest.approx(0.25 * 8**0.5, abs=0.1)),
        ("low-rank-start", "initial_rank_error", pytest.approx(0.4, abs=0.1)),
        ("batch-of-one-seed", "unseeded", ["batch, of another seed"]),
        ("one-mask", "unseeded", ["masks, of another step"]),
        ("drops-half-as-much", "unseeded", ["masks, of the share 0.05"]),
        ("never-in-training", "unseeded", ["masks, of another step"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_defect_is_measured(
    tmp_path: Path, cache: Path, subject: type[Distillation] | str, name: str, value: object
) -> None:
    """The defect's own measurement shows it."""
    assert measured(subject, tmp_path, cache).measurements[name] == value


def test_what_is_refuted_first_ends_the_trial(tmp_path: Path, cache: Path) -> None:
    """A wrong start ends the trial before the first step, and a wrong step after resuming ends it at that step."""
    assert measured("wide-start", tmp_path / "start", cache).steps == []
    heard = measured("optimizer-forgotten", tmp_path / "resumed", cache)
    assert heard.steps == [1, 2, 3, 4, 4]
    assert "steps_executed" not in heard.measurements


def test_a_run_without_a_checkpoint_is_not_measured(tmp_path: Path, cache: Path) -> None:
    """Without a checkpoint there is nothing to resume from."""
    with pytest.raises(NotMeasured):
        measured(Distillation, tmp_path, cache, checkpoint_every=5)


def test_the_contract_has_the_tolerances_of_the_oracle() -> None:
    """The oracle ends a trial by its own table, and the contract judges by its rules, so the two must agree."""
    bounds: dict[str, dict[str, float]] = {"float32": {}, "bfloat16": {}}
    for rule in CONTRACT["rules"]:
        for dtype in bounds if "parameters.dtype" in rule["rule"] else ():
            quantity = re.search(r"self\.(\w+)_error", rule["rule"])
            bound = re.search(rf"'{dtype}': ([-.\de]+)", rule["rule"])
            assert quantity
            assert bound
            bounds[dtype][quantity[1]] = float(bound[1])
    for dtype, found in bounds.items():
        for name, schema in CONTRACT["observation"]["properties"].items():
            if name.endswith("_error") and schema.get("maximum"):
                found[name.removesuffix("_error")] = schema["maximum"]
        assert found == {name: value for name, value in TOLERANCES[dtype].items() if name != "update"}


CONFIGURATION = Configuration("none", learning_rate=0.01, alpha=0.3, temperature=4.0)


def seen(
    change: Callable[[torch.optim.AdamW, Tensor], None], dtype: torch.dtype = torch.float32, steps: int = 4
) -> list[bool]:
    """The answer after each of several steps of torch's AdamW, each made by `change`."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(size, generator=generator).to(dtype).requires_grad_() for name, size in (("a", 64), ("b", 7))
    }
    optimizer = torch.optim.AdamW(weights.values(), lr=0.01)
    answers = []
    for _ in range(steps):
        before = {name: weight.detach().clone() for name, weight in weights.items()}
        for weight in weights.values():
            weight.grad = torch.randn(weight.shape, generator=generator).to(dtype)
        change(optimizer, weights["b"])
        slots = {name: optimizer.state[weight] for name, weight in weights.items()}
        answers.append(is_one_step(CONFIGURATION, before, weights, slots))
    return answers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_step_is_one(dtype: torch.dtype) -> None:
    """A step counts as one step, in each dtype of the parameters."""
    assert seen(lambda optimizer, weight: optimizer.step(), dtype) == [True] * 4


def doubled(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Make two steps."""
    optimizer.step()
    optimizer.step()


def at_another_rate(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Make a step with a rate that is a quarter too high."""
    optimizer.param_groups[0]["lr"] = 0.0125
    optimizer.step()


def put_back(optimizer: torch.optim.AdamW, weight: Tensor) -> None:
    """Put one of the two tensors back without the optimizer's knowledge."""
    before = weight.detach().clone()
    optimizer.step()
    with torch.no_grad():
        weight.copy_(before)


@pytest.mark.parametrize("change", [doubled, at_another_rate, put_back])
def test_what_is_not_one_step(change: Callable[[torch.optim.AdamW, Tensor], None]) -> None:
    """Each of these defects is detected from the first step on."""
    assert seen(change) == [False] * 4


ROOT = Path(__file__).parents[4]
ORACLE = ROOT / "falsifiers" / "distill" / "oracle"


def modules_of(source: Path) -> Iterator[str]:
    """The modules that a file imports, also in functions. `from a import b` counts as `a` and `a.b`."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: a relative import hides what it imports"
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def reached(sources: list[Path]) -> set[str]:
    """All modules of this repository's falsifiers that the files import, directly or through others."""
    found: set[str] = set()
    while sources:
        for name in modules_of(sources.pop()):
            path = ROOT / name.replace(".", "/")
            source = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
            if name.startswith("falsifiers.") and source and name not in found:
                found.add(name)
                sources.append(source)
    return found


def test_the_oracle_reaches_no_subject() -> None:
    """The oracle may import the Protocol.

    It imports neither the reference nor a mutant, directly or through another module.
    """
    found = reached(sorted(ORACLE.glob("*.py")))
    assert "falsifiers.distill.subject" in found
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []
