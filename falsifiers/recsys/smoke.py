"""F-HSTU-ASSERT-COUNT-001 and F-HSTU-COVERAGE-001: what the smoke test of the attention executes, and what it asserts.

The tests run in forks of this process, which has imported torch with the subject.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Protocol

from harness import Trial
from harness.suite.falsifier import deaf_tests
from harness.suite.ledger import PASSED, Ledger
from harness.suite.session import ForkedSuite

__all__ = ["SmokeTests", "falsify_assertions", "falsify_cells"]

_FILE = "test_hstu_smoke.py"
_BACKWARD = frozenset({"backward", "grad"})


class SmokeTests(Protocol):
    """The tests of the attention; built as `Subject(setting)`."""

    def files(self) -> Mapping[str, str]:
        """Return the text of test_hstu_smoke.py, and of pytest's settings in pytest.ini."""
        ...


def falsify_assertions(trial: Trial[SmokeTests]) -> None:
    """Count what asserts before and after the backward pass, and make each assertion fail."""
    suite, text = _suite(trial, 9)
    ledger = suite.run()
    backward = _line_of_backward(text)
    before, after = [], []
    for _, _, cell in ledger.cells(PASSED):
        lines = [int(place.split(":")[-2]) for place in cell.forcible]
        before.append(sum(line < backward for line in lines))
        after.append(sum(line >= backward for line in lines))
    trial.measure(
        executed_cells=len(before), forward_assertions=before, backward_assertions=after, failed=_failed(ledger)
    )
    trial.measure(**deaf_tests(suite, ledger, trial.parameters["rounds"], trial.seed))
    trial.resolve(device=trial.device.partition(":")[0])


def falsify_cells(trial: Trial[SmokeTests]) -> None:
    """List the cells that pass on each compute capability, which is pretended."""
    for capability in (8, 9, 10):
        suite, _ = _suite(trial, capability)
        ledger = suite.run()
        cells = sorted(text for _, text, _ in ledger.cells(PASSED))
        trial.measure(**{f"cells_on_{capability}": cells, f"failed_on_{capability}": _failed(ledger)})
    trial.resolve(device=trial.device.partition(":")[0])


def _suite(trial: Trial[SmokeTests], capability: int) -> tuple[ForkedSuite, str]:
    folder = trial.workspace / f"on-{capability}"
    folder.mkdir()
    with trial.subject_fault():
        files = trial.subject.files()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    trial.used(["falsifiers/recsys/suites/test_hstu_smoke.py"])
    given = {"HSTU_CAPABILITY": str(capability), "HSTU_SIZES": " ".join(map(str, trial.parameters["sizes"]))}
    arguments = ["-c", str(folder / "pytest.ini"), "--disable-plugin-autoload", "--import-mode=importlib", _FILE]
    return ForkedSuite(folder, arguments, trial.workspace / f"sessions-{capability}", given), files[_FILE]


def _line_of_backward(text: str) -> int:
    """Return the line of the first backward pass; past the end if there is none."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    lines = [one.lineno for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr in _BACKWARD]
    return min(lines, default=len(text))


def _failed(ledger: Ledger) -> list[str]:
    return [*ledger.broken, *(f"{name} [{text}]" for name, text, _ in ledger.cells("failed"))]
