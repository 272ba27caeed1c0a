"""Suites that were green and tested nothing: their files, which are right with `mended`.

Each has the code under test in `kernel.py`, and tests of it. The code is right in both forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

__all__ = [
    "always_equal", "broadcast_comparison", "cells_of_absent_backend", "early_return", "exits_with_success",
    "failures_made_passes", "healthy", "loose_tolerance", "message_for_expected", "misspelt_mock", "nan_is_not_greater",
    "nan_never_the_largest", "nan_of_itself", "pass_return",
]  # fmt: skip

Files = Mapping[str, str]

_CODE = """
    def attend(weights, values, scale=1.0):
        total = 0.0
        for weight, value in zip(weights, values):
            total += weight * value
        return total * scale


    def norm(values):
        total = 0.0
        for value in values:
            total += value * value
        return total ** 0.5
"""


def _suite(tests: str, **more: str) -> Files:
    extra = {name.replace("__", "."): dedent(text) for name, text in more.items()}
    return {"kernel.py": dedent(_CODE), "test_kernel.py": dedent(tests), "pytest.ini": "[pytest]\n", **extra}


def healthy(mended: bool) -> Files:
    """Tests that test, in both forms."""
    del mended
    return _suite(
        """
        import pytest
        from kernel import attend, norm


        @pytest.mark.parametrize("scale", [1.0, 2.0, 0.5])
        def test_attend(scale):
            assert attend([0.5, 0.25], [2.0, 4.0], scale) == 2.0 * scale
            assert attend([1.0, -1.0], [3.0, 1.0], scale) == 2.0 * scale


        def test_norm():
            assert norm([3.0, 4.0]) == 5.0
            assert norm([1.0, 2.0, 2.0]) == 3.0
        """
    )


def early_return(mended: bool) -> Files:
    """A test returns where the hardware is missing, and counts as passed."""
    guard = "pass" if mended else "if not HAS_GPU:\n                return"
    return _suite(
        f"""
        from kernel import attend, norm

        HAS_GPU = False


        def test_attend():
            {guard}
            assert attend([0.5, 0.25], [2.0, 4.0]) == 2.0
            assert attend([1.0, -1.0], [3.0, 1.0], 2.0) == 4.0


        def test_norm():
            assert norm([3.0, 4.0]) == 5.0
            assert norm([1.0, 2.0, 2.0]) == 3.0
        """
    )


def pass_return(mended: bool) -> Files:
    """For one width, the test runs the backward pass and returns before it asserts anything of it."""
    guard = "pass" if mended else "if width == 32:\n                return"
    return _suite(
        f"""
        import pytest
        from kernel import attend, norm


        @pytest.mark.parametrize("width", [32, 64, 128])
        def test_smoke(width):
            out = attend([1.0 / width] * width, [2.0] * width)
            gradient = norm([1.0] * width)
            {guard}
            assert abs(out - 2.0) < 1e-9
            assert abs(gradient - width ** 0.5) < 1e-9
        """
    )


def cells_of_absent_backend(mended: bool) -> Files:
    """Backends are those that can be imported: a machine without one tests less, and says nothing."""
    backends = '["plain", "fast"]' if mended else '["plain", *(["fast"] if find_spec("absent_backend") else [])]'
    return _suite(
        f"""
        from importlib.util import find_spec
        import pytest
        from kernel import attend, norm

        BACKENDS = {backends}


        @pytest.mark.parametrize("backend", BACKENDS)
        def test_attend(backend):
            assert attend([0.5, 0.25], [2.0, 4.0], 3.0) == 6.0
            assert norm([3.0, 4.0]) == 5.0
        """
    )


def loose_tolerance(mended: bool) -> Files:
    """Data between 0.5 and 1, and a tolerance of 0.5: a result without relation to the right one passes."""
    tolerance = "1e-9" if mended else "0.5 + 0.2 * abs(right)"
    data = "[0.5, -2.0], [7.0, 3.0]" if mended else "[0.5, 0.6], [0.7, 0.8]"
    right = "-2.5" if mended else "0.83"
    return _suite(
        f"""
        from kernel import attend, norm


        def close(found, right):
            return abs(found - right) <= {tolerance}


        def test_attend():
            right = {right}
            assert close(attend({data}), right)
            assert close(attend({data}, 2.0), 2 * right)


        def test_norm():
            assert close(norm([0.6, 0.8]), 1.0)
            assert close(norm([0.3, 0.4]), 0.5)
        """
    )


def _with_comparison(comparison: str) -> Files:
    return _suite(
        f"""
        from kernel import attend, norm


        def fails(found, right):
            return {comparison}


        def test_attend():
            assert not fails(attend([0.5, 0.25], [2.0, 4.0]), 2.0)
            assert not fails(attend([1.0, -1.0], [3.0, 1.0], 2.0), 4.0)


        def test_norm():
            assert not fails(norm([3.0, 4.0]), 5.0)
            assert not fails(norm([1.0, 2.0, 2.0]), 3.0)
        """
    )


def nan_is_not_greater(mended: bool) -> Files:
    """A test fails if the error is greater than the tolerance, which NaN is not."""
    return _with_comparison("not abs(found - right) <= 1e-9" if mended else "abs(found - right) > 1e-9")


def nan_never_the_largest(mended: bool) -> Files:
    """The largest error is compared, and NaN is never the largest."""
    return _with_comparison(
        "not all(abs(one - right) <= 1e-9 for one in [found])" if mended else "max(0.0, abs(found - right)) > 1e-9"
    )


def nan_of_itself(mended: bool) -> Files:
    """The helper asks twice whether the one number is NaN, and never whether the other is: NaN equals everything."""
    other = "right" if mended else "found"
    return _with_comparison(f"not (abs(found - right) <= 1e-9 or (found != found and {other} != {other}))")


def message_for_expected(mended: bool) -> Files:
    """assertTrue takes the expected value for its message."""
    name = "assertEqual" if mended else "assertTrue"
    return _suite(
        f"""
        import unittest
        from kernel import attend, norm


        class Test(unittest.TestCase):
            def test_attend(self):
                self.{name}(attend([0.5, 0.25], [2.0, 4.0]), 2.0)
                self.{name}(attend([1.0, -1.0], [3.0, 1.0], 2.0), 4.0)

            def test_norm(self):
                self.{name}(norm([3.0, 4.0]), 5.0)
                self.{name}(norm([1.0, 2.0, 2.0]), 3.0)
        """
    )


def always_equal(mended: bool) -> Files:
    """The answer is an object that equals everything."""
    answer = "found" if mended else "AlwaysEqual(found)"
    return _suite(
        f"""
        from kernel import attend, norm


        class AlwaysEqual(float):
            def __eq__(self, other):
                return True

            __hash__ = float.__hash__


        def answer(found):
            return {answer}


        def test_attend():
            assert answer(attend([0.5, 0.25], [2.0, 4.0])) == 2.0
            assert answer(attend([1.0, -1.0], [3.0, 1.0], 2.0)) == 4.0


        def test_norm():
            assert answer(norm([3.0, 4.0])) == 5.0
            assert answer(norm([1.0, 2.0, 2.0])) == 3.0
        """
    )


def exits_with_success(mended: bool) -> Files:
    """The process ends with status 0 before a test has run."""
    ends = "pass" if mended else "os._exit(0)"
    return _suite(
        f"""
        import os
        from kernel import attend, norm


        def test_attend():
            {ends}
            assert attend([0.5, 0.25], [2.0, 4.0]) == 2.0
            assert attend([1.0, -1.0], [3.0, 1.0], 2.0) == 4.0


        def test_norm():
            assert norm([3.0, 4.0]) == 5.0
            assert norm([1.0, 2.0, 2.0]) == 3.0
        """
    )


def failures_made_passes(mended: bool) -> Files:
    """A hook in conftest.py reports every failure as a pass."""
    hook = """
        import pytest


        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_makereport(item, call):
            report = (yield).get_result()
            if report.when == "call" and report.failed:
                report.outcome, report.longrepr = "passed", None
    """
    return {**healthy(mended), "conftest.py": "" if mended else dedent(hook)}


def broadcast_comparison(mended: bool) -> Files:
    """A comparison broadcasts: one number equals a whole tensor of it."""
    shapes = "found.shape == right.shape and" if mended else ""
    return _suite(
        f"""
        import numpy as np
        from kernel import attend, norm


        def close(found, right):
            found, right = np.asarray(found), np.asarray(right)
            return bool({shapes} np.allclose(found, right))


        def test_attend():
            values = np.ones((2, 3))
            assert close(attend([0.5, 0.25], values), np.full(3, 0.75))
            assert close(attend([2.0, -1.0], values, 2.0), np.full(3, 2.0))


        def test_norm():
            assert close(norm([3.0, 4.0]), 5.0)
            assert close(norm([1.0, 2.0, 2.0]), 3.0)
        """
    )


def misspelt_mock(mended: bool) -> Files:
    """A misspelt assertion of a mock is one more attribute of it, and always true."""
    called = "assert_called_once_with" if mended else "called_once_with"
    return _suite(
        f"""
        from unittest.mock import Mock
        from kernel import attend, norm


        def test_attend():
            log = Mock()
            log(attend([0.5, 0.25], [2.0, 4.0], 3.0))
            log.{called}(6.0)


        def test_norm():
            log = Mock()
            log(norm([3.0, 4.0]))
            log.{called}(5.0)
        """
    )
