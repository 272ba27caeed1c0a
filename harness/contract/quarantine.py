"""Claims whose NOT_MEASURED is expected for a while: `[[tool.harness.quarantine]]` in pyproject.toml.

    [[tool.harness.quarantine]]
    claim = "F-DISTILL-SMOKE-001"
    device = "NVIDIA H200"
    reason = "the node has no room for the teacher until the new disk is there"
    until = 2026-12-31

The verdict stays, and is shown with a remark. It only does not count for the exit status, and only if it is
NOT_MEASURED: a FAIL and a VOID always count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, final

from harness.base.vocabulary import Verdict

__all__ = ["Quarantine", "parse"]


@final
@dataclass(frozen=True)
class Quarantine:
    """One claim on one class of device."""

    claim: str
    device: str
    """A part of the name of the class, as for `harness status --device`."""
    reason: str
    until: date
    """The last day."""

    def covers(self, claim: str, device: str) -> bool:
        """Whether the entry names this claim and class of device. The last day does not matter here."""
        return claim == self.claim and self.device in device

    def excuses(self, verdict: Verdict, today: date) -> bool:
        """Whether a verdict does not count for the exit status."""
        return verdict is Verdict.NOT_MEASURED and today <= self.until

    def text(self, today: date) -> str:
        """The remark beside the verdict."""
        return f"{self.mark(today)}: {self.reason}"

    def mark(self, today: date) -> str:
        """The remark without its reason."""
        return f"quarantine on {self.device} until {self.until}{'' if today <= self.until else ' is over'}"


def parse(settings: object) -> tuple[Quarantine, ...]:
    """Read the settings.

    Raises:
        ValueError: an entry is no table of the four fields.
    """
    entries: Iterable[Any] = settings if isinstance(settings, list) else [None]
    quarantines = []
    for entry in entries:
        fields = {"claim": str, "device": str, "reason": str, "until": date}
        if (
            not isinstance(entry, dict)
            or entry.keys() != fields.keys()
            or not all(isinstance(entry[name], kind) and entry[name] for name, kind in fields.items())
            or isinstance(entry["until"], datetime)
        ):
            raise ValueError("each [[tool.harness.quarantine]] has claim, device, reason, and until as a date")
        quarantines.append(Quarantine(**entry))
    return tuple(quarantines)
