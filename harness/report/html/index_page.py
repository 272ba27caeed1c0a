"""The index: which claims were tried on which devices, and every bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.evidence.findings import Verification
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
    overridden: bool = False

    @property
    def standing(self) -> str:
        """The verdict, where the bundle is sound."""
        return self.verdict if self.verification.sound else UNSOUND


def render(entries: Sequence[Entry]) -> str:
    """The page, for bundles in the order in which they are to be listed."""
    claims = sorted({entry.id for entry in entries if entry.id})
    devices = sorted({entry.device for entry in entries if entry.device})
    newest: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        if entry.verification.sound:
            newest.setdefault((entry.id, entry.device), entry)
    words = [*map(str, Verdict), UNSOUND]
    return page(
        "index.html.j2",
        entries=entries,
        titles={entry.id: entry.title for entry in reversed(entries)},
        claims=claims,
        devices=devices,
        cells=newest,
        counts=[(word, sum(entry.standing == word for entry in entries)) for word in words],
    )
