"""The built-in clauses, which every contract has."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COMPLETES", "CONTRADICTION", "RESOLVED", "UNLIKE_FILES", "builtin_clauses"]

COMPLETES = "subject.completes"
"""The clause on how the trial ended.

NOT_MEASURED if something other than the subject cut the trial short. For an external trainer, also NOT_MEASURED if its
output does not show all that is needed: then it is unknown whether the trainer itself failed."""

CONTRADICTION = "reported.contradiction"
"""The clause that what a trainer in another process says of its run does not contradict itself.

Other subjects have no such clause."""

UNLIKE_FILES = "reported.files"
"""The clause that what a trainer in another process says of its run does not contradict the files that it left.

Other subjects have no such clause, nor have runs whose output or files cannot be compared."""

RESOLVED = ("dtype", "backend", "steps")
"""Parameters that must equal the resolved values. The device is always compared."""


def builtin_clauses(parameters: Iterable[str]) -> tuple[str, ...]:
    """The ids of the built-in clauses for a contract whose profiles set these parameters."""
    names = set(parameters)
    resolved = [f"resolved.{name}" for name in RESOLVED if name in names]
    return (COMPLETES, "resolved.device", *resolved, "residency.allocator", "residency.driver")
