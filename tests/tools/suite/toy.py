"""A toy suite: one function for each thing that can happen, and the same with a fault in each function."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FAULTS", "write"]

_CONFTEST = """
import pytest

@pytest.fixture(params=["near", "far"])
def place(request):
    assert request.param
    return request.param

def check(value):
    assert value > 0
    assert value < 1000
"""
_HEALTHY = """
import unittest
import pytest
from tests.helper import check

@pytest.mark.parametrize("contextuals", [0, 4])
@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_collapsed(head_dim, contextuals):
    assert head_dim * 2 > contextuals

@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_same_ids(head_dim):
    assert head_dim in (32, 64, 128)

def test_returns_early(place):
    x = len(place)
    assert x > 0
    check(x)

def test_commented():
    x = [1]
    assert x
    assert len(x) == 1

def test_branch():
    x = 1
    assert x == 1

def test_loop():
    for x in (1, 2, 3):
        assert x > 0

def test_constant():
    x = 1
    assert x == 1

def test_skipped():
    check(1)

def test_expected_to_fail():
    check(1)

def test_deleted():
    check(1)

def test_caught():
    x = 1
    assert x == 1

def test_in_a_thread():
    x = 1
    assert x == 1

def test_mocked(monkeypatch):
    case = unittest.TestCase()
    case.assertEqual(len([1]), 1)

def test_helper_emptied():
    check(1)

class TestOfUnittest(unittest.TestCase):
    def test_raises(self):
        with self.assertRaises(ValueError):
            int("x")
"""
FAULTS = {
    "test_collapsed": ("[32, 64, 128]", "[64]", "missing"),
    "test_same_ids": ("[32, 64, 128])", "[64, 64, 64], ids=['32', '64', '128'])", "missing"),
    "test_returns_early": ("    x = len", "    pass  # return\n    return\n    x = len", "fewer_assertions"),
    "test_commented": ("    assert len", "    # assert len", "fewer_assertions"),
    "test_branch": ("    assert x", "    if x > 1: assert x", "fewer_assertions"),
    "test_loop": ("(1, 2, 3)", "(1,)", "fewer_checks"),
    "test_constant": ("assert x == 1", "assert x == 1 or True", "fewer_assertions"),
    "test_skipped": ("def", "@pytest.mark.skip(reason='slow')\ndef", "skipped"),
    "test_expected_to_fail": ("def", "@pytest.mark.xfail(reason='flaky')\ndef", "expected_to_fail"),
    "test_deleted": ("def test", "def _test", "missing"),
    "test_caught": ("    assert x == 1", "    try: assert x == 1\n    except AssertionError: pass", "deaf"),
    "test_in_a_thread": (
        "    assert x == 1",
        "    def ask():\n        assert x == 1\n"
        "    import threading\n    thread = threading.Thread(target=ask)\n    thread.start()\n    thread.join()",
        "deaf",
    ),
    "test_mocked": ("    case.", "    case.assertEqual = unittest.mock.MagicMock()\n    case.", "fewer_assertions"),
    "test_helper_emptied": ("check(1)", "(lambda value: None)(1)", "fewer_assertions"),
}
"""By function: its changed text, and the measurement that shows the fault."""


def write(folder: Path, *, faulty: bool) -> None:
    """Write the suite: tests/test_toy.py, a helper and conftest.py."""
    conftest, helper = _CONFTEST.split("\ndef check")
    text = _HEALTHY
    if faulty:
        blocks = []
        for block in text.split("\n\n"):
            before, after, _ = next((FAULTS[name] for name in FAULTS if f"def {name}(" in block), ("", "", ""))
            assert before in block
            blocks.append(block.replace(before, after, 1) if before else block)
        text = "\n\n".join(blocks).replace("import unittest\n", "import unittest.mock\n", 1)
    tests = folder / "tests"
    tests.mkdir()
    for name, content in {
        "__init__.py": "", "conftest.py": conftest, "helper.py": f"def check{helper}", "test_toy.py": text,
    }.items():  # fmt: skip
        (tests / name).write_text(content)
