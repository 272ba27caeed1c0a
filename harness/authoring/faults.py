"""Exceptions that end a trial, by who is at fault."""

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
    """The machine, not the subject, prevents the measurement. The text states the reason."""


class NotObserved(NotMeasured):
    """An external subject does not expose a value. The text states which and why."""


class UndeclaredMeasurement(ValueError):
    """A measurement is not declared in the contract."""


class MeasurementTooLarge(ValueError):
    """A measurement exceeds the size limit of a bundle."""


class SubjectFault(Exception):
    """The subject raised; `__cause__` is its exception."""


class FalsifierFault(Exception):
    """The falsifier raised in a callback from the subject; `__cause__` is its exception."""


NOT_THE_SUBJECTS = (NotMeasured, UndeclaredMeasurement, MeasurementTooLarge, FalsifierFault)
"""Exceptions that are not the subject's fault, even if they propagate through its code."""
