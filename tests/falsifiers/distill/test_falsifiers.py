"""Every falsifier of this spec on the healthy subject, in runs as short as they can be."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from falsifiers.distill.mutants import ZeroIsEndless
from falsifiers.distill.reference import Distillation
from tests.falsifiers.distill.trials import CONTRACTS, a_setting, a_trial

QUICKER: dict[str, dict[str, Any]] = {
    "F-DISTILL-MAXSTEPS-001": {"requests": [1, 2], "refused": [0, -1]},
}
"""What a claim asks for beyond the usual parameters of a quick run."""


def measured(claim: str, folder: Path, subject: Any = Distillation, **changed: Any) -> dict[str, Any]:
    """What the claim's falsifier measures of a subject in this process."""
    contract = json.loads((CONTRACTS / f"{claim}.json").read_text())
    module, _, name = contract["falsifier"].partition(":")
    setting = a_setting(folder, **{**QUICKER[claim], **changed})
    trial, recorded = a_trial(setting, subject, frozenset(contract["observation"]["properties"]))
    getattr(importlib.import_module(module), name)(trial)
    assert recorded.resolved["device"] == "cpu"
    return recorded.measurements


@pytest.mark.parametrize("claim", QUICKER)
def test_a_falsifier_measures_what_its_contract_declares(tmp_path: Path, claim: str) -> None:
    """Everything, and nothing else."""
    declared = json.loads((CONTRACTS / f"{claim}.json").read_text())["observation"]["properties"]
    assert measured(claim, tmp_path).keys() == declared.keys()


def test_steps_are_counted_and_nonsense_is_refused(tmp_path: Path) -> None:
    """The profile's own steps first, then the other requests."""
    seen = measured("F-DISTILL-MAXSTEPS-001", tmp_path)
    assert seen["requested"] == seen["executed"] == [3, 1, 2]
    assert seen["surplus"] == seen["idle"] == seen["overstated"] == [0, 0, 0]
    assert seen["accepted"] == []


def test_a_run_without_end_is_ended(tmp_path: Path) -> None:
    """And the request that it took for 'no limit' is told."""
    assert measured("F-DISTILL-MAXSTEPS-001", tmp_path, ZeroIsEndless)["accepted"] == [0]
