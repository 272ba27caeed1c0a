"""Exceptions that say why a trial ends, and whose fault it is."""

from __future__ import annotations

__all__ = [
    "NOT_THE_SUBJECTS",
    "FalsifierFault",
    "MeasurementTooLarge",
    "NotMeasured",
    "NotObserved",
    "SubjectFault",
    "UndeclaredMeasurement",
]


class NotMeasured(Exception):
    """The machine, not the subject, keeps the falsifier from measuring. The text says why."""


class NotObserved(NotMeasured):
    """The subject works outside the trial's process and does not show this. The text says what and why."""


class UndeclaredMeasurement(ValueError):
    """A falsifier measured something that its contract does not declare."""


class MeasurementTooLarge(ValueError):
    """A falsifier measured more than a bundle can hold."""


class SubjectFault(Exception):
    """The subject raised; the cause is its exception."""


class FalsifierFault(Exception):
    """The falsifier raised while the subject called it back; the cause is its exception."""


NOT_THE_SUBJECTS = (NotMeasured, UndeclaredMeasurement, MeasurementTooLarge, FalsifierFault)
"""Exceptions that are not the subject's fault, even when they pass through its code."""
