"""The built-in clauses: what every observation is held against, whatever its contract says."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COMPLETES", "RESOLVED", "builtin_clauses"]

COMPLETES = "subject.completes"
"""The clause on how the trial ended.

NOT_MEASURED where something else than the subject cut it short, and where a subject that is seen from outside did not
show all that was looked for, however it ended itself: of a run that is over nobody saw the end, and the log of one that
was cut short tells of no fault."""

RESOLVED = ("dtype", "backend", "steps")
"""Parameters that are compared with what ran. The device is always compared."""


def builtin_clauses(parameters: Iterable[str]) -> tuple[str, ...]:
    """The ids of the built-in clauses for a contract whose profiles set these parameters."""
    names = set(parameters)
    resolved = [f"resolved.{name}" for name in RESOLVED if name in names]
    return (COMPLETES, "resolved.device", *resolved, "residency.allocator", "residency.driver")
