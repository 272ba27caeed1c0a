"""Suites with one known defect each: pytest says nothing of cases that it does not collect."""

from __future__ import annotations

from typing import ClassVar

from falsifiers.recsys.reference.counted_suite import StandIn

__all__ = [
    "CasesTwice", "DecoratorLost", "FileIgnored", "FileSkipped", "HalfDeselected", "NameShadowed", "NotATest",
    "SyntaxBroken", "WidthsCollapsed",
]  # fmt: skip


class _Edited(StandIn):
    """The suite with a place of one file replaced, or with a file more."""

    edits: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    more: ClassVar[tuple[tuple[str, str], ...]] = ()

    def files(self) -> dict[str, str]:
        """Replace each place, which must be there, and add the files."""
        files = super().files()
        for name, old, new in self.edits:
            assert old in files[name], old
            files[name] = files[name].replace(old, new, 1)
        return files | dict(self.more)


class WidthsCollapsed(_Edited):
    """Three widths are one, as in [32, 64, 128] made [64]."""

    edits = (("test_triton_silu.py", '"width", range(3)', '"width", [1]'),)


class DecoratorLost(_Edited):
    """A parameter's decorator is a comment, and the parameter has a default."""

    edits = (
        ("test_hstu_layer.py", '@pytest.mark.parametrize("heads"', '# @pytest.mark.parametrize("heads"'),
        ("test_hstu_layer.py", "heads, ", ""),
    )


class NotATest(_Edited):
    """A function's name no longer begins with test_."""

    edits = (("test_addmm.py", "def test_addmm", "def check_addmm"),)


class NameShadowed(_Edited):
    """Two functions have one name, so the first is lost."""

    edits = (("test_ln_mul_dropout.py", "def test_empty", "def test_values"),)


class FileIgnored(_Edited):
    """conftest.py leaves a file out."""

    more = (("conftest.py", 'collect_ignore = ["test_hstu_preprocess.py"]\n'),)


class HalfDeselected(_Edited):
    """conftest.py drops every second case."""

    more = (("conftest.py", "def pytest_collection_modifyitems(items):\n    del items[::2]\n"),)


class FileSkipped(_Edited):
    """A file is skipped as a whole."""

    edits = (("test_ln_silu.py", "import pytest\n", 'import pytest\npytest.skip("later", allow_module_level=True)\n'),)


class SyntaxBroken(_Edited):
    """A file is not valid Python."""

    edits = (("test_ln_silu.py", "def test_ln_silu(", "def test_ln_silu(("),)


class CasesTwice(_Edited):
    """A parameter has a value twice."""

    edits = (("test_addmm.py", '"rows", range(3)', '"rows", [0, 1, 2, 2]'),)
