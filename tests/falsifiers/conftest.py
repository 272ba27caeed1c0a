"""Instead of a family that has passed with the present sources, one test that says so and is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.falsifiers.families import FAMILIES, has_passed

HERE = Path(__file__).parent


class _Passed(pytest.Item):
    def runtest(self) -> None:
        """Say that the tests of this family were not run."""
        pytest.skip(f"{self.name}: all tests passed with these sources; --families all runs them")


class _Family(pytest.Directory):
    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for the family."""
        yield _Passed.from_parent(self, name=self.name)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Do not collect a family that has passed, unless the caller names it or asks for all."""
    config = parent.config
    paths = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    named = config.getoption("families") == "all" or any(path.is_relative_to(HERE) for path in paths)
    if path.parent == HERE and path.name in FAMILIES and not named and has_passed(path.name):
        # With the path of its parent: pytest imports the conftest.py of a node's folder, which costs seconds.
        return _Family.from_parent(parent, path=HERE, name=path.name, nodeid=f"{parent.nodeid}/{path.name}")
    return None
