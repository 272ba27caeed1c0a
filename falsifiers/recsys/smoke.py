"""F-HSTU-ASSERT-COUNT-001 and F-HSTU-COVERAGE-001: what the smoke test of the attention executes and asserts.

The tests run under pytest in a separate process. The compute capability is simulated: a conftest.py sets it before the
tests are imported.
"""

import ast
import os
import sys
from collections.abc import Mapping
from typing import Protocol

from harness import NotMeasured, Trial
from harness.machine.triton_interpreter import misfit
from harness.tools.suite.falsifier import deaf_tests
from harness.tools.suite.ledger import PASSED, Ledger
from harness.tools.suite.session import Suite

_FILE, _SETTINGS = "test_hstu_smoke.py", "pytest.ini"
_BACKWARD = frozenset({"backward", "grad"})


class SmokeTests(Protocol):
    """The tests of the attention; built as `Subject(setting)`."""

    def files(self) -> Mapping[str, str]:
        """Return the text of test_hstu_smoke.py, and of pytest's settings in pytest.ini."""
        ...


def falsify_assertions(trial: Trial[SmokeTests]) -> None:
    """Count the assertions before and after the backward pass, and make each assertion fail."""
    suite, text = _suite(trial, [9])
    ledger = _run(suite)
    backward = _line_of_backward(text)
    before, after = [], []
    for _, _, cell in ledger.cells(PASSED):
        lines = [int(place.split(":")[-2]) for place in cell.forcible]
        before.append(sum(line < backward for line in lines))
        after.append(sum(line >= backward for line in lines))
    trial.measure(
        executed_cells=len(before), forward_assertions=before, backward_assertions=after, failed=_failed(ledger, "")
    )
    trial.measure(**deaf_tests(suite, ledger, trial.parameters["rounds"], trial.seed))
    trial.resolve(device=trial.device.partition(":")[0])


def falsify_cells(trial: Trial[SmokeTests]) -> None:
    """List the cells that pass on each compute capability."""
    suite, _ = _suite(trial, [8, 9, 10])
    ledger = _run(suite)
    for number in (8, 9, 10):
        cells = sorted(text for name, text, _ in ledger.cells(PASSED) if name.startswith(f"on_{number}/"))
        trial.measure(**{f"cells_on_{number}": cells, f"failed_on_{number}": _failed(ledger, f"on_{number}/")})
    trial.resolve(device=trial.device.partition(":")[0])


def _suite(trial: Trial[SmokeTests], capabilities: list[int]) -> tuple[Suite, str]:
    root = trial.workspace / "suite"
    with trial.subject_fault():
        files = trial.subject.files()
    for number in capabilities:
        folder = root / f"on_{number}"
        folder.mkdir(parents=True)
        (folder / _FILE).write_text(files[_FILE], encoding="utf-8")
        (folder / "conftest.py").write_text(
            f"import os\nos.environ['HSTU_CAPABILITY'] = '{number}'\n", encoding="utf-8"
        )
    (root / _SETTINGS).write_text(files[_SETTINGS], encoding="utf-8")
    trial.used(["falsifiers/recsys/suites/test_hstu_smoke.py"])
    environment = {
        "HSTU_SIZES": " ".join(map(str, trial.parameters["sizes"])),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return Suite(root, ["--import-mode=importlib", "."], trial.workspace / "sessions", environment), files[_FILE]


def _run(suite: Suite) -> Ledger:
    """Run the tests. If one fails because Triton's interpreter does not work here, raise NotMeasured."""
    ledger = suite.run()
    if _failed(ledger, "") and (why := misfit()):
        raise NotMeasured(why)
    return ledger


def _line_of_backward(text: str) -> int:
    """Return the line of the first backward pass; past the end if there is none."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    lines = [call.lineno for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD]
    return min(lines, default=len(text))


def _failed(ledger: Ledger, beginning: str) -> list[str]:
    failed = (f"{name} [{text}]" for name, text, _ in ledger.cells("failed") if name.startswith(beginning))
    return [*ledger.broken, *failed]
