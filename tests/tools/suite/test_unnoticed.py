"""Results that are replaced in a toy package, with a suite that notices all, and suites that do not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.authoring.faults import NotMeasured
from harness.tools.suite.replaced_result import replaced
from harness.tools.suite.session import Suite
from harness.tools.suite.unnoticed import try_results

_CODE = """import numpy as np


def scaled(values, by=2.0):
    note = "größer als 1"
    return np.asarray(values) * (
        by
    )


def unused():
    return 1.0
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugin of this environment, which saves most of a session's time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def tried(root: Path, test: str) -> tuple[list[str], int]:
    """Replace the results of the toy, with one test."""
    for file, text in {
        "src/toy/__init__.py": _CODE,
        "tests/test_toy.py": f"import numpy as np\nfrom toy import scaled\n\n\ndef test():\n    {test}\n",
    }.items():
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text(text, encoding="utf-8")
    before = {file: file.read_bytes() for file in root.rglob("*.py")}
    try:
        return try_results(Suite(root, ["tests"], root / "runs"), ["src/toy"], workspace=root / "work")
    finally:
        assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize(
    ("test", "unnoticed"),
    [
        ("np.testing.assert_array_equal(scaled([1.0, 2.0]), [2.0, 4.0], strict=True)", []),
        ("assert np.allclose(scaled([1.0, 2.0]), [2.0, 4.0])", ["a further axis"]),
        ("assert not (abs(scaled([0.5]) - 1.0) > 0.6).any()", ["NaN", "half", "a further axis"]),
    ],
)
def test_what_a_suite_does_not_notice(tmp_path: Path, test: str, unnoticed: list[str]) -> None:
    """A result that no test reaches is not tried."""
    assert tried(tmp_path, test) == ([f"src/toy/__init__.py:6 {place}" for place in unnoticed], 3)


def test_a_suite_that_reaches_nothing(tmp_path: Path) -> None:
    """Nothing is tried."""
    assert tried(tmp_path, "assert scaled") == ([], 0)


def test_a_suite_that_fails(tmp_path: Path) -> None:
    """It notices nothing."""
    with pytest.raises(NotMeasured, match=r"tests/test_toy\.py::test"):
        tried(tmp_path, "assert not scaled")


@pytest.mark.parametrize(
    ("name", "result", "other"),
    [
        ("NaN", 2.0, math.nan),
        ("half", (3.0, "text", [4.0]), (1.5, "text", [2.0])),
        ("a further axis", np.ones(2), np.ones((1, 2))),
        ("NaN", np.float32(1.0), np.float32(math.nan)),
    ],
)
def test_replacements(name: str, result: Any, other: Any) -> None:
    """Numbers within tuples and lists, too."""
    np.testing.assert_equal(replaced(name, result), other)


@pytest.mark.parametrize(
    ("name", "result"), [("NaN", 1), ("NaN", True), ("NaN", "text"), ("half", 0.0), ("a further axis", 1.0)]
)
def test_what_cannot_be_replaced(name: str, result: object) -> None:
    """It raises, which fails the test, so that it never counts as unnoticed."""
    with pytest.raises(TypeError, match=name):
        replaced(name, result)
