"""The falsifier of F-DISTILL-STEP-001 on a short run."""

from __future__ import annotations

from pathlib import Path

from falsifiers.distill import step
from falsifiers.distill.oracle.tolerances import TOLERANCES
from falsifiers.distill.reference import Distillation
from tests.falsifiers.distill.trials import a_setting, a_trial

MEASURED = frozenset(
    f"{quantity}_error" for quantity in ({*TOLERANCES["float32"], "number", "count"} - {"gradient"})
) | {"steps_executed", "steps_checked", "foreign_slots", "worst_tensors"}


def test_it_measures_each_quantity_and_the_checked_steps(tmp_path: Path) -> None:
    """All steps of a run of three are checked, and each quantity is within its tolerance."""
    trial, heard = a_trial(a_setting(tmp_path), Distillation, MEASURED)
    step.falsify(trial)
    assert heard.measurements.keys() == MEASURED
    assert heard.measurements["steps_checked"] == heard.steps == [1, 2, 3]
    assert heard.measurements["foreign_slots"] == []
    for quantity, tolerance in TOLERANCES["float32"].items():
        assert heard.measurements.get(f"{quantity}_error", 0.0) <= tolerance
    assert heard.resolved == {"device": "cpu", "dtype": "float32", "steps": 3}
