"""A trial that tries only the known cases of a claim, so that tests are fast and need no seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis.strategies import SearchStrategy

from harness import Trial

__all__ = ["KnownCases"]


class KnownCases(Trial[Any]):
    """A trial whose search tries only the known cases."""

    def search(
        self,
        cases: SearchStrategy[Any],
        check: Callable[[Any], Mapping[str, Any]],
        *,
        examples: int,
        first: Iterable[Mapping[str, Any]] = (),
    ) -> int:
        """Run `check` on every case of `first`."""
        lists: dict[str, list[Any]] = {}
        for case in first:
            for name, value in check(case).items():
                lists.setdefault(name, []).append(value)
        self.measure(**lists)
        return examples
