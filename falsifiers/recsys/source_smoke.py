"""F-HSTU-SOURCE-SMOKE-001: the source's smoke test covers its matrix, and detects a wrong result in every cell."""

import os
import sys

from falsifiers.recsys.smoke import SmokeTests
from harness import Trial
from harness.tools.suite.ledger import PASSED, Ledger
from harness.tools.suite.session import Suite

_FILE, _SETTINGS, _TEST = "test_hstu_smoke.py", "pytest.ini", "test_fbgemm_hstu_fwd_bwd"


def falsify(trial: Trial[SmokeTests]) -> None:
    """Run every cell on each capability with a right attention, and with one that has one wrong result at a time."""
    parts, capabilities = trial.parameters["parts"], trial.parameters["capabilities"]
    root = trial.workspace / "suite"
    with trial.subject_fault():
        files = trial.subject.files()
    for part in ("right", *parts):
        for capability in capabilities:
            folder = root / f"{part}_on_{capability}"
            folder.mkdir(parents=True)
            (folder / _FILE).write_text(files[_FILE], encoding="utf-8")
    (root / _SETTINGS).write_text(files[_SETTINGS], encoding="utf-8")
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    chosen = ["--import-mode=importlib", "-k", _TEST, "."]
    ledger = Suite(root, chosen, trial.workspace / "sessions", environment).run()
    passed, failed = _cells(ledger, PASSED), _cells(ledger, "failed")
    trial.measure(
        broken=sorted(ledger.broken),
        deaf=[f"{part}, {cell}" for part in parts for cell in passed.get(part, [])],
        noticed=sum(len(failed.get(part, [])) for part in parts),
        failed=failed.get("right", []),
        **{f"cells_on_{number}": _on(number, passed.get("right", [])) for number in capabilities},
    )
    trial.resolve(device="cpu")


def _cells(ledger: Ledger, outcome: str) -> dict[str, list[str]]:
    """By part, `CAPABILITY: ID` of each cell, with the id that pytest prints in brackets."""
    by_part: dict[str, list[str]] = {}
    for name, _, cell in ledger.cells(outcome):
        part, _, capability = name.partition("/")[0].partition("_on_")
        by_part.setdefault(part, []).append(f"{capability}: {cell.identifier.partition('[')[2].rstrip(']')}")
    return {part: sorted(cells) for part, cells in by_part.items()}


def _on(number: int, cells: list[str]) -> list[str]:
    return [cell.partition(": ")[2] for cell in cells if cell.startswith(f"{number}: ")]
