"""The index: which claims were tried on which devices, and every bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.evidence.findings import Verification
from harness.report.html.matrix import Matrix
from harness.report.html.templating import page
from harness.verdict import Verdict

__all__ = ["Entry", "render"]

UNSOUND = "UNSOUND"


@dataclass(frozen=True)
class Entry:
    """A bundle as the index shows it."""

    page: str
    """Its page, relative to the index."""
    id: str
    title: str
    verification: Verification
    issue: str = ""
    spec: str = ""
    verdict: str = ""
    reason: str = ""
    proven: bool = False
    profile: str = ""
    device: str = ""
    started: str = ""
    seconds: float = 0.0
    killed: int = 0
    mutants: int = 0
    skipped: bool = False
    """Whether the mutants were."""
    overridden: bool = False

    @property
    def standing(self) -> str:
        """The verdict, where the bundle is sound."""
        return self.verdict if self.verification.sound else UNSOUND


def render(entries: Sequence[Entry], matrix: Matrix) -> str:
    """The page, for bundles in the order in which they are to be listed."""
    words = [*map(str, Verdict), UNSOUND]
    return page(
        "index.html.j2",
        entries=entries,
        matrix=matrix,
        counts=[(word, sum(entry.standing == word for entry in entries)) for word in words],
    )
