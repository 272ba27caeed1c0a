"""The index: which claims were tried on which devices, and every bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.base.vocabulary import Verdict
from harness.evidence.findings import NOT_ACCEPTED, UNSOUND, Code, Verification
from harness.report.html.matrix import Matrix
from harness.report.html.templating import marked, page
from harness.report.verification_lines import signed

__all__ = ["Entry", "render"]

_SIGNATURE = frozenset({Code.UNSIGNED, Code.UNKNOWN_KEY})


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
    def signed(self) -> str:
        """Who signed it, in a few words."""
        return signed(self.verification)

    @property
    def codes(self) -> list[Code]:
        """What verifying found and remarked beside the signature, each once."""
        found = (*self.verification.findings, *self.verification.remarks)
        return list(dict.fromkeys(one.code for one in found if one.code not in _SIGNATURE))


def render(entries: Sequence[Entry], matrix: Matrix, asked: Sequence[Sequence[str]]) -> str:
    """The page.

    Args:
        entries: the bundles in the order in which they are to be listed.
        asked: what they were held against (see `harness.report.verification_lines.asked`).
    """
    words = [*map(str, Verdict), NOT_ACCEPTED, UNSOUND]
    standings = [entry.verification.standing for entry in entries]
    signatures = [entry.signed for entry in entries]
    return page(
        "index.html.j2",
        entries=entries,
        matrix=matrix,
        counts=[(word, standings.count(word)) for word in words if word != NOT_ACCEPTED or word in standings],
        signatures=[(word, signatures.count(word)) for word in sorted(set(signatures))],
        asked=list[Markup](map(marked, asked)),
    )
