"""Imports with one known defect each."""

from __future__ import annotations

from falsifiers.recsys.reference.import_order import FirstThenWanted

__all__ = ["ErrorSwallowed", "FoundOnly", "HollowModule", "InAFunction", "OrderReversed", "PackageOnly"]


class OrderReversed(FirstThenWanted):
    """The wanted module comes first."""

    def program(self, first: str, wanted: str) -> str:
        """Exchange them."""
        return super().program(wanted, first)


class InAFunction(FirstThenWanted):
    """The first import stands in a function, which runs later."""

    def program(self, first: str, wanted: str) -> str:
        """Put it there."""
        return f"def prepare():\n    import {first}\n\nimport {wanted}\nprepare()\n"


class ErrorSwallowed(FirstThenWanted):
    """No failed import shows."""

    def program(self, first: str, wanted: str) -> str:
        """Catch all of them."""
        return f"try:\n    import {first}\n    import {wanted}\nexcept ImportError:\n    pass\n"


class PackageOnly(FirstThenWanted):
    """The package of the first module is imported, without the module."""

    def program(self, first: str, wanted: str) -> str:
        """Leave the last part out."""
        return super().program(first.rpartition(".")[0], wanted)


class FoundOnly(FirstThenWanted):
    """The first module is looked up, and not imported."""

    def program(self, first: str, wanted: str) -> str:
        """Find it."""
        return f"import importlib.util\nassert importlib.util.find_spec({first!r})\nimport {wanted}\n"


class HollowModule(FirstThenWanted):
    """An empty module stands in for the first one."""

    def program(self, first: str, wanted: str) -> str:
        """Put it where Python looks."""
        return f"import sys, types\nsys.modules[{first!r}] = types.ModuleType({first!r})\nimport {wanted}\n"
