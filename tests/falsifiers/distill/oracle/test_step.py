"""The falsifier of F-DISTILL-STEP-001 on short runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pydoc_data import topics
from typing import Any

import pytest

from falsifiers.distill import step
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
